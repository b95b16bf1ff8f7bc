"""Decoding loops: plain and speculative; the text is the same under all. Begin with decode, then speculation.

speculation goes round by round, for one text or several, by passes: eager_passes of one text, packed_passes of several,
captured_passes of one text on a GPU. plain has no drafter. tree_pass puts a tree before the target, own_rows checks a
run against its own replay.
"""
