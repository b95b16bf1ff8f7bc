"""Channels of a trace: what else was recorded along its texts, beside the target's rows and the draft sets.

`columns` are the rows of one text in memory, `frames` turns them into columns of a file and back, `checks` holds the
invariants, `row_checks` those that every read is held to, `shards` reads the files, `ids` says what ids hash.
"""
