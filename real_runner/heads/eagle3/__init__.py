"""EAGLE-3: a head on the target's own states, which needs no drafter. Begin with head.

text is what it keeps of a text, pool grows its trees, producer makes a channel of them; chain is the head as a drafter
of its own: what it says token by token along its most probable path.
"""
