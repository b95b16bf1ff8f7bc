"""Orders of nodes: which node enters a tree next?

Read `node_order` first: the protocol `NodeOrder`, the `OrderLayer` that all budgets of an order share, and how rounds
are made of a layer.
`best_first`, `chain_orders` and `expand_parent` are the orders on a drafter's candidates, `lattice_order` those
on a channel's, which `lattice_sources` reads.
"""
