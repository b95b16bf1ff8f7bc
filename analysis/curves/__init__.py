"""Expected tokens per second by tree size at each root, and what stopping rules lose. Begin with rows."""
