"""Measuring what rounds cost on a machine. Begin with profile."""
