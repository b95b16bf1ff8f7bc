"""The trace's files: columns, manifest, shards, ids and checks.

Begin with schema, the columns of each file, and manifest, what was recorded. `records` are the rows of one text in
memory, `frames` turns them into columns and back, `checks` holds the invariants.
"""
