"""Files beside a trace: cost files, n-grams, fitted tables, choices, confirmations, a target's shape.

Begin with cost: the file of measured seconds. Each module reads and writes one kind of file; `kinds` tells which kind a
file is, and `schemas` has the published JSON Schemas.
"""
