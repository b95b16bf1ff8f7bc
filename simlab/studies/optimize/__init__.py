"""The search for a policy and its settings on some prompts, reported on others. Begin with search."""
