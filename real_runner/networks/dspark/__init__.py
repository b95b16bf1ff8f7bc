"""DSpark: config is its drafter with a Markov head, head the laws below other tokens than those of its chain."""
