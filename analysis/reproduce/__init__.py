"""Published figures beside ours: what was printed, what is released, what must be equal."""
