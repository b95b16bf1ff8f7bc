"""Decoding loops: plain, speculative, batched, captured; the text is the same under all. Begin with decode."""
