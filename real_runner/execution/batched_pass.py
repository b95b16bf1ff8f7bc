"""One pass of the target over the tokens of several sequences."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from simlab.real_runner.attention.packed import PackedPart, PackedPass, packed_pass
from simlab.real_runner.execution.batched_buffers import BatchedCache
from simlab.real_runner.targets.model import Target
from simlab.tree import DraftTree


def packed_states(target: Target, ids: Tensor, positions: Tensor, cache: BatchedCache, packed: PackedPass) -> Tensor:
    """States after the final norm, ``[1, N, H]``.

    Args:
        target: reads the tokens.
        ids: int64 ``[1, N]``.
        positions: int64 ``[1, N]``, absolute, each in its own sequence.
        cache: receives keys and values; its lengths count the tokens afterwards.
        packed: which token belongs where.
    """
    cache.packed = packed
    output = target.states(ids, cache, None, positions, packed)
    cache.rows.extend(packed)
    return output


def prompt_pass(row: int, num: int, device: torch.device) -> tuple[PackedPass, Tensor]:
    """A whole prompt read into an empty row: its places, and positions int64 ``[1, num]``."""
    return packed_pass([PackedPart(row, 0, 0, num, None)], device), torch.arange(num, device=device)[None]


def trees_pass(
    trees: Sequence[DraftTree], rows: Sequence[int], positions: Sequence[int], device: torch.device
) -> tuple[PackedPass, Tensor, Tensor]:
    """Trees of several sequences as one pass.

    Args:
        trees: of ``N_s + 1`` nodes each.
        rows: of the store.
        positions: absolute positions of the roots; so many tokens lie before each.
        device: of the target.

    Returns:
        The places; token ids and absolute positions, int64 ``[1, N]``.
    """
    parts, start = [], 0
    for tree, row, position in zip(trees, rows, positions, strict=True):
        hidden = torch.from_numpy(~tree.ancestor_mask()).to(device)
        parts.append(PackedPart(row, position, start, tree.num_nodes, hidden))
        start += tree.num_nodes
    ids = np.concatenate([tree.tokens for tree in trees]).astype(np.int64)
    places = np.concatenate([p + t.depths().astype(np.int64) for p, t in zip(positions, trees, strict=True)])
    return (
        packed_pass(parts, device),
        torch.from_numpy(ids)[None].to(device),
        torch.from_numpy(places)[None].to(device),
    )
