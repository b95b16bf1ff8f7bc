"""Training a network on a drafter that stays as it is: a first-order head, a scorer of pools. Begin with run.

treeflash and taps are what each learns and how it is measured on held-out texts; card describes the result.
"""
