"""Heads on a drafter's states: networks that score a token given the tokens above it. Begin with treeflash.

producer is what the runner and the recorder ask of any of them, treeflash_producer such a one. treeflash is the network
of a first-order head; base and rows turn a drafter's states and candidates into transitions. The package
eagle3 is a head on the target's own states, which needs no drafter.
"""
