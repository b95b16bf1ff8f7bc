"""Expected tokens per second by tree size at each root, and what stopping rules lose.

Begin with rows: a row for each edge model, machine, rule and root. `tallies` is where rules decide, at measured prices
and at drawn ones; `summaries` averages, with intervals that hold the noise of prices, `text` shows them, and picks
one root.
"""
