"""Drafting at every root of a text at once."""

from collections.abc import Iterator

import torch
from torch import Tensor

from simlab.real_runner.drafters.dflash import DFlashDrafter, DrafterContext
from simlab.real_runner.targets.model import Target


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
        The roots of a pass, and float32 logits ``[R', D, V]``; V is the drafter's own vocabulary, where it has one.
    """
    context = drafter.context(features[None])
    for start in range(0, len(roots), blocks_per_pass):
        some = roots[start : start + blocks_per_pass]
        yield some, block_logits(drafter, target, tokens[some], some, context)


def block_logits(
    drafter: DFlashDrafter, target: Target, root_tokens: Tensor, positions: Tensor, context: DrafterContext
) -> Tensor:
    """float32 logits ``[R, D, V]`` of blocks below root tokens ``[R]`` at absolute positions ``[R]``.

    The context is of one sequence, or of R sequences with a root each.

    V is the target's vocabulary, or the drafter's own, whose ids `DraftVocabulary` maps.
    """
    config = drafter.config
    num_sequences = context.keys[0].shape[0]
    shape = (num_sequences, len(positions) // num_sequences)
    blocks = torch.full((*shape, config.block_size), config.mask_token_id, device=positions.device)
    blocks[:, :, 0] = root_tokens.view(shape)
    hidden = drafter(_embedded(drafter, target, blocks), positions.view(shape), context)[:, :, config.first_slot :]
    # One contiguous matrix: a strided batch sends some CPU kernels down a path 60 times slower.
    logits = _logits(drafter, target, hidden.reshape(-1, hidden.shape[-1]))
    return logits.view(len(positions), config.depth, -1)


def _embedded(drafter: DFlashDrafter, target: Target, blocks: Tensor) -> Tensor:
    embedding, scale = drafter.embed_tokens or target.embedding, drafter.config.input_embedding_scale
    # The bare rows: some targets scale what their embedding hands out, and drafters ask for their own scale.
    rows = torch.nn.functional.embedding(blocks, embedding.weight)
    return rows if scale == 1 else rows * scale


def _logits(drafter: DFlashDrafter, target: Target, hidden: Tensor) -> Tensor:
    """float32 ``[N, V]``, of the drafter's own vocabulary where it has one, scaled and soft-capped as it asks."""
    logits = target.logits(hidden) if drafter.lm_head is None else drafter.lm_head(hidden).float()
    if drafter.config.output_multiplier != 1:
        logits = logits * drafter.config.output_multiplier
    cap = drafter.config.final_logit_softcapping
    return logits if cap is None else torch.tanh(logits / cap) * cap
