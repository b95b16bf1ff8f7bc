"""TAPS: a scorer of paths through a drafter's candidates. config is its value, scorer the network, pool its channel."""
