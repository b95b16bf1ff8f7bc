"""A profile of this machine: its options, which load no torch, and what is made of the measurement."""
