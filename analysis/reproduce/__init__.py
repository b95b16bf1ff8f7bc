"""Published figures beside ours: what was printed, what is released, and what must be equal to compare them.

Begin with published: the figures and their sources. `rows` computes ours, `checks` says whether setups agree.
"""
