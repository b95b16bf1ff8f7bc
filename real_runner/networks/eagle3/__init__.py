"""A head on the target's own states, which needs no drafter. config is its value, head the network, pool its drafts."""
