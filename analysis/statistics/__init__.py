"""Bootstrap intervals over prompts, slices, families of comparisons, what can be detected."""
