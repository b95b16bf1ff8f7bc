"""The command `simlab train`: networks, and what is fitted without any, a kind each."""
