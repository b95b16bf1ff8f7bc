"""Drafting at every root of a text at once."""

from collections.abc import Iterator

import torch
from torch import Tensor

from simlab.real_runner.dflash import Context, DFlashDrafter
from simlab.real_runner.target import Target


@torch.inference_mode()
def draft_logits(
    drafter: DFlashDrafter, target: Target, features: Tensor, tokens: Tensor, roots: Tensor, blocks_per_pass: int
) -> Iterator[tuple[Tensor, Tensor]]:
    """The drafter's logits at many roots of one sequence.

    The context is projected once; a block sees only what lies before its own root, and its own
    masks, so a row is what drafting at that root alone would give.

    Args:
        drafter: and its target, whose embedding and head it borrows.
        target: see there.
        features: ``[C, taps x H]``, tapped target states of positions 0 .. C-1.
        tokens: int64 ``[L]``, the whole sequence.
        roots: int64 ``[R]``, absolute positions, each at most C.
        blocks_per_pass: bounds the memory of a pass.

    Yields:
        The roots of a pass, and float32 logits ``[R', D, V]``.
    """
    context = drafter.context(features[None])
    for start in range(0, len(roots), blocks_per_pass):
        some = roots[start : start + blocks_per_pass]
        yield some, block_logits(drafter, target, tokens[some], some, context)


def block_logits(
    drafter: DFlashDrafter, target: Target, root_tokens: Tensor, positions: Tensor, context: Context
) -> Tensor:
    """float32 logits ``[R, D, V]`` of blocks below root tokens ``[R]`` at absolute positions ``[R]``."""
    config = drafter.config
    blocks = torch.full((1, len(positions), config.block_size), config.mask_token_id, device=positions.device)
    blocks[0, :, 0] = root_tokens
    hidden = drafter(target.embedding(blocks), positions[None], context)[0, :, 1:]
    # One contiguous matrix: a strided batch sends some CPU kernels down a path 60 times slower.
    logits = target.logits(hidden.reshape(-1, hidden.shape[-1]))
    return logits.view(len(positions), config.depth, -1)
