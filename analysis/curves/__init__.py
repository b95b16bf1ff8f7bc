"""Expected tokens per second by tree size at each root, and what stopping rules lose.

Begin with rows: a row for each edge model, machine, rule and root. `tallies` is where rules decide, at measured prices
and at drawn ones; `summaries` averages, `price_noise` widens its intervals, `text` shows them, and picks one root.
"""
