"""Are edge probabilities right, and where is the true path in a policy's order? Begin with score."""
