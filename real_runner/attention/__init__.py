"""Attention of several sequences or trees in one pass, on rows that lie packed. Begin with grouped.

grouped is what every target runs with; packed serves several trees in a pass; batch_invariant gives a row the same
bits whatever stands beside it.
"""
