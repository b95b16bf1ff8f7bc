"""Orders of nodes: which node enters a tree next?

Read `node_order` first: the protocol `NodeOrder`, and the `OrderLayer` that all budgets of an order share.
`best_first`, `chain_orders` and `expand_parent` are the orders on a drafter's candidates, `lattice_order` those
on a channel's, which `lattice_sources` reads. `width_caps` bounds the candidates of a depth, and `walk` makes rounds of
a layer.
"""
