"""Checkpoints of networks beside a drafter: first-order heads (treeflash), scorers (taps). Begin with producers.

producers decides what a checkpoint holds, and loads what makes its channel.
"""
