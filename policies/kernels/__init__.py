"""Compiled loops that several orders and rules share.

`take_in_order` builds a best-first tree with a heap: read it first. All others say where the true path is in such a
tree without building it: `true_places` for one root, whatever scores the edges; `insertion` and `corrected_insertion`
count how many nodes come before a node, on plain and on corrected scores; `best_scores` has the scores of the first
nodes; `gather` and `corrected_step` are their inner loops.
"""
