"""Drafters' checkpoints: their layouts, their files, and what one is before it is loaded. Begin with layouts.

layouts has the table `LAYOUTS`; a new layout is a module such as zlab or speculators and a line in that table. files
loads and saves checkpoints; the package networks has those beside a drafter, which make channels. parts takes one apart
into drafter and head, and explained says in words what one is; both need no torch.
"""
