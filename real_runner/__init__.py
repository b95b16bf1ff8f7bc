"""Real models: recording traces, timing rounds, confirming predictions and training drafters. Read models.py first.

From the bottom up: `attention` < `targets` < `drafters` < `checkpoints`, `execution` < `models` < `decoding` <
`tap_offset` < `record`, `profile` < `train`, `confirm`; a package imports only what stands left of it.
"""

import warnings

# What transformers says of its own future is for its developers, and would stand in every log.
warnings.filterwarnings("ignore", message=".*(deprecated|will be removed).*", category=FutureWarning)
