"""Decoding loops: plain, speculative, batched, captured; the text is the same under all. Begin with decode.

speculation is one text round by round, batched_speculation several, graph_rounds one by captured passes; plain and
graph_plain have no drafter. tree_pass puts a tree before the target, own_rows checks a run against its own replay.
"""
