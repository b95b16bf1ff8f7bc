"""Orders of nodes: which node enters a tree next? Begin with node_order and best_first."""
