"""Policies and results for other programs: conformance files, engines' settings, tables."""
