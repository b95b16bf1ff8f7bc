"""Expected tokens per second by tree size at each root, and what stopping rules lose.

Begin with rows: a row for each edge model, machine, rule and root. `summaries` averages them, `examples` picks one
root to show.
"""
