"""Paired comparisons of two runs, and their verdicts. Begin with comparisons."""
