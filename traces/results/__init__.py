"""Result rows, one per policy, sequence and cost file, and rows of single rounds.

Begin with rows: the columns, and what must hold of them. `files` reads and writes them, also a file that a killed
replay goes on with.
"""
