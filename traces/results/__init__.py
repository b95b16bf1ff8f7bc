"""Result rows, one per policy, sequence and cost file, and rows of single rounds.

Begin with rows: the columns, reading and writing. `store` is a result file that a killed replay goes on with.
"""
