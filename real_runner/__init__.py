"""Real models: the target, its drafter, and what is recorded of them."""
