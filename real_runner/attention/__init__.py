"""Attention under tree masks: grouped heads, packed texts, batch-invariant passes."""
