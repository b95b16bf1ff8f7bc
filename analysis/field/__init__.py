"""Figures of the field: every system's gains at equal nodes, and its speed, predicted and measured."""
