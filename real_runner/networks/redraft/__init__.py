"""A drafter's own checkpoint as a network: redrafts behind a chain (D²SD), or pools of its own paths (JetSpec)."""
