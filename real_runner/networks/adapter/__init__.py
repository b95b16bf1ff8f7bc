"""A target that drafts for itself. config is the adapter's value, gated its weights, masked what its masks say."""
