"""Compiled loops that several orders and rules share."""
