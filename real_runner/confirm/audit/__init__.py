"""The audit of a confirmation: is every decoded text the target's own, but for ties? Begin with audit."""
