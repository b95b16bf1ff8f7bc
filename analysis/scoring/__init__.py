"""Are edge probabilities right, and where is the true path in a policy's order of nodes?

Begin with score: one walk over a trace that sums everything. `reliability` reads the edge models, `path_places` the
orders, `gap_and_waste` the policies; `text` shows them.
"""
