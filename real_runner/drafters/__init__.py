"""Block-diffusion drafters: the network and what it proposes. Begin with dflash.

config describes the network; dense drafts at many roots at once, or along one text; ranked turns
logits into candidates and into what a trace keeps; vocabulary maps a vocabulary of its own to that of the
target.
"""
