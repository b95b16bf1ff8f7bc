"""The training loss of a block drafter: three interventions on cross-entropy.

"Teaching Diffusion to Speculate Left-to-Right" (2026), arXiv 2606.11552: earlier positions weigh
more, the first error weighs extra, and the expected length of the accepted chain is rewarded.
The scale of the decay and whether the weights apply per block are reconstructions: here the decay
is exp(-k / decay), weights within a block sum to one, and every term is a mean over blocks.
"""

import torch
from torch import Tensor

from simlab.real_runner.train.options import LossWeights


def block_loss(log_probs: Tensor, true_log_probs: Tensor, known: Tensor, weights: LossWeights) -> Tensor:
    """The loss of a batch of blocks, a scalar.

    Args:
        log_probs: float32 ``[N, D]``, log-probability of the drafter's most probable token.
        true_log_probs: float32 ``[N, D]``, log-probability of the true token.
        known: bool ``[N, D]``, whether depth d of a block has a true token that counts.
        weights: the three weights.
    """
    depths = torch.arange(log_probs.shape[1], device=log_probs.device)
    if weights.decay > 0:
        per_depth = torch.exp(-depths / weights.decay)
    else:
        per_depth = torch.ones_like(depths, dtype=torch.float32)
    per_depth = per_depth / per_depth.sum()
    blocks = known[:, 0].sum().clamp(min=1)
    loss = -(true_log_probs * known * per_depth).sum() / blocks
    if weights.focal > 0:
        wrong = known & (true_log_probs < log_probs)
        first_wrong = wrong & (wrong.cumsum(1) == 1)
        loss = loss - weights.focal * (true_log_probs * first_wrong).sum() / blocks
    if weights.chain > 0:
        reached = torch.exp((true_log_probs.masked_fill(~known, -1e4)).cumsum(1))
        loss = loss - weights.chain * reached.sum() / blocks
    return loss
