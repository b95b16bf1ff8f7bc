"""Checkpoints on disk: layouts of a drafter's configuration, and tensors as files have them. Begin with layout.

A new layout is a module such as zlab or speculators, and a line in `simlab.real_runner.networks.known`. weights says
whether tensors are what a configuration asks for, without torch; files reads and writes them with it.
"""
