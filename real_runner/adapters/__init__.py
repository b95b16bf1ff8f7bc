"""A target that drafts for itself: mask tokens, and a low-rank change that these alone feel. Begin with gated.

config says of what sizes an adapter is; masked lays masks behind tokens and reads them in passes of their own.
"""
