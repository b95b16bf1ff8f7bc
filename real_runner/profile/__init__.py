"""Profiling: what rounds cost on this machine. Begin with profile.

options is what a person asks; sweeps says which cell comes next; rounds and batches time it; setting is what a cost
file says of models and machine.
"""
