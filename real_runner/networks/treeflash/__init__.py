"""TreeFlash: a first-order head on a drafter's states. config is its value, head the network, rows its channel."""
