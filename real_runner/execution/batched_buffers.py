"""Keys and values of several sequences in one store, each a row of its own length, written in place."""

from collections.abc import Sequence
from functools import partial

import numpy as np
import torch
from torch import Tensor
from transformers.cache_utils import Cache

from simlab.real_runner.attention.packed import PackedPart, PackedPass, packed_pass
from simlab.real_runner.execution.kv_buffers import CacheLayer
from simlab.real_runner.targets.model import Target
from simlab.tree import DraftTree

_LEAST_GROWTH = 64


class SequenceRows:
    """One tensor ``[parts, rows, E, slots, F]``; a part is the keys or values of a layer.

    Slots behind the end of a row hold numbers that nobody reads as tokens: zeros, or those of earlier tokens.
    """

    def __init__(self, num_parts: int, num_rows: int, num_slots: int) -> None:
        """Nothing written yet; ``num_slots`` is how long a row is expected to become."""
        self.num_parts, self.num_rows, self.num_slots = num_parts, num_rows, num_slots
        self.lengths = [0] * num_rows
        self.tensor: Tensor | None = None

    def write(self, part: int, new: Tensor, packed: PackedPass) -> None:
        """Write ``[E, N, F]`` of the tokens of a pass to their places; the lengths stay as they are."""
        longest = max(part.num_before + part.num for part in packed.parts)
        if self.tensor is None or longest > self.tensor.shape[3]:
            self._grow(longest, new)
        assert self.tensor is not None
        # One index beside a slice beside another: the tokens come first in what is assigned.
        self.tensor[part][packed.rows, :, packed.slots] = new.transpose(0, 1)

    def extend(self, packed: PackedPass) -> None:
        """Count the tokens of a pass as written."""
        for part in packed.parts:
            self.lengths[part.row] = part.num_before + part.num

    def compact(self, row: int, num_before: int, kept: Tensor) -> None:
        """Keep some of a row's tokens after the first ``num_before``: int64, rising, counted from there."""
        num_kept = len(kept)
        if self.tensor is not None and num_kept and int(kept[-1]) != num_kept - 1:
            moved = self.tensor[:, row].index_select(2, kept.to(self.tensor.device) + num_before)
            self.tensor[:, row, :, num_before : num_before + num_kept] = moved
        self.lengths[row] = num_before + num_kept

    def drop(self, row: int, last: int) -> None:
        """Free a row: what is in the last used row moves there, if it is another."""
        if self.tensor is not None and row != last:
            length = self.lengths[last]
            self.tensor[:, row, :, :length] = self.tensor[:, last, :, :length]
        self.lengths[row], self.lengths[last] = self.lengths[last], 0

    def _grow(self, wanted: int, like: Tensor) -> None:
        held = 0 if self.tensor is None else self.tensor.shape[3]
        slots = max(self.num_slots, wanted + _LEAST_GROWTH if held else wanted, 2 * held)
        grown = like.new_zeros(self.num_parts, self.num_rows, like.shape[0], slots, like.shape[2])
        if self.tensor is not None:
            grown[:, :, :, :held] = self.tensor
        self.tensor = grown


class BatchedCache(Cache):
    """The target's keys and values of several sequences."""

    def __init__(self, target: Target, num_rows: int, num_slots: int) -> None:
        self.rows = SequenceRows(2 * len(target.layers), num_rows, num_slots)
        self.packed: PackedPass | None = None
        """The pass that is running: it is set before a pass, and its tokens are counted in ``rows`` behind it."""
        parts = range(0, self.rows.num_parts, 2)
        super().__init__(layers=[CacheLayer(self._longest, partial(self._write, part)) for part in parts])

    def _longest(self) -> int:
        return max(self.rows.lengths)

    def _write(self, part: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        assert self.packed is not None
        self.rows.write(part, keys[0], self.packed)
        self.rows.write(part + 1, values[0], self.packed)
        assert self.rows.tensor is not None
        return self.rows.tensor[part], self.rows.tensor[part + 1]


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
    position_ids = np.concatenate([p + t.depths().astype(np.int64) for p, t in zip(positions, trees, strict=True)])
    return (
        packed_pass(parts, device),
        torch.from_numpy(ids)[None].to(device),
        torch.from_numpy(position_ids)[None].to(device),
    )
