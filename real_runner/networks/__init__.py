"""Networks: what drafts without a drafter of blocks, or makes a channel. Each has a folder of its own, and one value.

Begin with network, what such a value says, and known, the table of them; a folder's config is its value and needs no
torch, the rest is the network. parts and explained take checkpoints apart and say what they are; loading goes from a
checkpoint to what makes a channel (producer) or drafts (drafts). Training is in `simlab.real_runner.train.networks`.
"""
