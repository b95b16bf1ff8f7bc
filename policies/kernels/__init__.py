"""Compiled loops that several orders and rules share.

`take_lattice` builds trees on lists of candidates with a heap: read it first. `take_in_order` builds the same trees on
candidates by depth. All others say where the true path is in a best-first tree without building it: `true_places` for
one root, whatever scores the edges; `insertion` counts how many nodes come before a node, on plain and on corrected
scores; `best_scores` has the scores of the first nodes; `gather` and `corrected_step` are their inner loops.
"""
