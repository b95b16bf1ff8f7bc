"""Attention for the tokens of several sequences in one pass, one sequence after the other without padding.

Each sequence has a text before its tokens, all of which they see, and a tree among them. The two are
attended to apart and put together by their sums (as blocks are in Dao et al. 2022, "FlashAttention",
arXiv 2205.14135), so that the only mask there is has the size of a tree: none grows with the context.

Letters: A query heads, E key-value heads, L tokens of one sequence, N tokens of the pass, F head size.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass(frozen=True, slots=True, eq=False)
class PackedPart:
    """The tokens of one sequence in a pass.

    Attributes:
        row: of the store of keys and values.
        num_before: tokens of the sequence before these.
        start: the first of them in the pass.
        num: L, how many there are.
        hidden: bool ``[L, L]``, tokens of the part that a token does not see; None: those behind itself.
    """

    row: int
    num_before: int
    start: int
    num: int
    hidden: Tensor | None

    def __post_init__(self) -> None:
        if self.hidden is None and self.num_before and self.num > 1:
            raise ValueError("several tokens after others need a tree; a text is read from its beginning")


@dataclass(frozen=True, slots=True, eq=False)
class PackedPass:
    """Which token of a pass belongs where.

    Attributes:
        parts: in the order of the pass.
        rows: int64 ``[N]``, the row of the store of each token.
        slots: int64 ``[N]``, its place in that row.
    """

    parts: tuple[PackedPart, ...]
    rows: Tensor
    slots: Tensor


def packed_pass(parts: Sequence[PackedPart], device: torch.device) -> PackedPass:
    """The places of all tokens of some parts."""
    rows = torch.cat([torch.full((part.num,), part.row) for part in parts])
    slots = torch.cat([torch.arange(part.num_before, part.num_before + part.num) for part in parts])
    return PackedPass(tuple(parts), rows.to(device), slots.to(device))


def packed_attention(query: Tensor, keys: Tensor, values: Tensor, packed: PackedPass, scaling: float | None) -> Tensor:
    """Attention of every token to its own sequence.

    Args:
        query: ``[1, A, N, F]``.
        keys: ``[rows, E, slots, F]``, of all sequences, those of this pass among them.
        values: the same.
        packed: which token belongs where.
        scaling: of the scores; None: ``F ** -0.5``.

    Returns:
        ``[1, N, A, F]``.
    """
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    mixed = [
        _attend(
            query[:, :, part.start : part.start + part.num],
            keys[part.row : part.row + 1, :, : part.num_before + part.num],
            values[part.row : part.row + 1, :, : part.num_before + part.num],
            part,
            scale,
        )
        for part in packed.parts
    ]
    return torch.cat(mixed, dim=2).transpose(1, 2)


def _attend(query: Tensor, keys: Tensor, values: Tensor, part: PackedPart, scale: float) -> Tensor:
    """``[1, A, L, F]`` of one sequence's queries."""
    _, a, length, f = query.shape
    groups = keys.shape[1]
    if part.hidden is None and length > 1:
        return nn.functional.scaled_dot_product_attention(
            query, keys, values, is_causal=True, scale=scale, enable_gqa=groups < a
        )
    # Heads that read the same keys are laid side by side, as in `simlab.real_runner.attention.grouped`.
    heads = a // groups
    side = query.reshape(1, groups, heads * length, f)
    num = part.num_before
    mixed, log_sums = _over_tree(side, keys[:, :, num:], values[:, :, num:], part.hidden, heads, scale)
    if num:
        before, before_sums = over_context(side, keys[:, :, :num], values[:, :, :num], scale)
        share = torch.sigmoid(before_sums.to(log_sums.dtype) - log_sums)[..., None]
        mixed = mixed + share * (before.to(mixed.dtype) - mixed)
    return mixed.to(query.dtype).view(1, a, length, f)


def _over_tree(
    side: Tensor, keys: Tensor, values: Tensor, hidden: Tensor | None, heads: int, scale: float
) -> tuple[Tensor, Tensor]:
    """Attention among the tokens of a tree, at least in float32: mixed values, and logs of the sums of weights."""
    wide = torch.promote_types(side.dtype, torch.float32)
    scores = (side @ keys.transpose(-1, -2)).to(wide) * scale
    if hidden is not None:
        scores = scores.masked_fill_(hidden.repeat(heads, 1), float("-inf"))
    log_sums = scores.logsumexp(-1)
    weights = scores.sub_(log_sums[..., None]).exp_()
    return (weights.to(values.dtype) @ values).to(wide), log_sums


def over_context(side: Tensor, keys: Tensor, values: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """Attention to tokens that are all seen, without a mask and without a matrix of scores.

    Args:
        side: queries, ``[1, E, Q, F]``.
        keys: ``[1, E, C, F]``, at least one.
        values: the same.
        scale: of the scores.

    Returns:
        Mixed values ``[1, E, Q, F]``, and ``[1, E, Q]``, the log of the sum of the weights of each query.
    """
    if side.device.type == "cpu":
        mixed, log_sums = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(side, keys, values, scale=scale)
    else:
        mixed, log_sums, *_ = torch.ops.aten._scaled_dot_product_efficient_attention(
            side, keys, values, None, compute_log_sumexp=True, scale=scale
        )
    # Some kernels round the number of queries up.
    return mixed, log_sums[..., : side.shape[2]]
