"""Predicted beside measured: errors, the verdict, groups of texts, width of intervals. Begin with table."""
