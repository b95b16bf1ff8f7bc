"""Policies on a recorded trace: rounds, result rows and the table of them. Begin with run."""
