"""LiLiCorr: config is what its lattice head is, head the scores and the channel."""
