"""The target's keys and values of texts that grow, in the form in which transformers asks for them."""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import torch
from torch import Tensor
from transformers.cache_utils import Cache, DynamicLayer

from simlab.real_runner.attention.packed import PackedPart, PackedPass, packed_pass
from simlab.real_runner.drafters.dflash import DrafterContext
from simlab.real_runner.targets.model import KeyValueRows, Target
from simlab.tree import DraftTree

# Keys and values at addresses that never change, written at slots that a tensor names.
#
# A captured pass runs at the same addresses each time, so what differs between rounds, such as where the tree's rows
# go, is read from tensors. Rows behind the text hold numbers of earlier rounds; masks hide them, and none is NaN.


class FixedRows:
    """Rows of all layers, ``[parts, 1, E, room, F]``; a part is the keys or values of a layer."""

    def __init__(self, like: Tensor, room: int) -> None:
        self.tensor = like.new_zeros(like.shape[0], 1, like.shape[2], room, like.shape[4])

    @property
    def room(self) -> int:
        """Slots for the tokens of a text."""
        return self.tensor.shape[3]

    def grown(self, room: int) -> "FixedRows":
        """These rows, copied to another place with more slots."""
        larger = FixedRows(self.tensor, room)
        larger.fill(self.tensor)
        return larger

    def fill(self, rows: Tensor, first: int = 0) -> None:
        """Copy rows ``[parts, 1, E, L, F]`` to the slots from ``first`` on."""
        self.tensor[:, :, :, first : first + rows.shape[3]] = rows

    def write(self, part: int, slots: Tensor, new: Tensor) -> None:
        """Write ``[1, E, L, F]`` to slots, int64 ``[L]``."""
        self.tensor[part].index_copy_(2, slots, new)

    def first(self, part: int, num: int) -> Tensor:
        """The first slots, as a view."""
        return self.tensor[part][:, :, :num]

    def of_layers(self) -> list[tuple[Tensor, Tensor]]:
        """Each layer's keys and values, ``[E, room, F]``, as views."""
        parts = self.tensor[:, 0].unbind()
        return list(zip(parts[::2], parts[1::2], strict=True))

    def context(self, num: int) -> DrafterContext:
        """The first slots, as the drafter's context."""
        keys = tuple(self.first(part, num) for part in range(0, len(self.tensor), 2))
        return DrafterContext(keys, tuple(self.first(part, num) for part in range(1, len(self.tensor), 2)))


class CacheLayer(DynamicLayer):
    """One layer of a cache, in the form in which transformers asks for it."""

    def __init__(self, length: Callable[[], int], write: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]) -> None:
        """Hold what the cache does for the layer.

        Args:
            length: tokens before those of a pass.
            write: from keys and values of a pass, ``[S, E, L, F]``, to those that it attends to, its own among them.
        """
        super().__init__()  # type: ignore[no-untyped-call]
        self._length, self._write = length, write

    def get_seq_length(self) -> int:
        return self._length()

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: object, **kwargs: object
    ) -> tuple[Tensor, Tensor]:
        return self._write(key_states, value_states)


class FixedCache(Cache):
    """Keys and values of all layers of the target, at fixed slots.

    Attributes:
        rows: of all layers.
        slots: where the next pass writes, int64 ``[R]``.
        num_seen: so many slots are attended to, where the mask shows them.
    """

    def __init__(self, rows: FixedRows) -> None:
        self.rows = rows
        self.slots = torch.empty(0, dtype=torch.int64)
        self.num_seen = 0
        parts = range(0, len(rows.tensor), 2)
        super().__init__(layers=[CacheLayer(lambda: self.num_seen, partial(self._write, part)) for part in parts])

    def _write(self, part: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        self.rows.write(part, self.slots, keys)
        self.rows.write(part + 1, self.slots, values)
        return self.rows.first(part, self.num_seen), self.rows.first(part + 1, self.num_seen)


class BufferCache(Cache):
    """Keys and values of a target whose layers all attend to everything, of texts that grow.

    ``room`` is how many tokens it will hold, where that is known: then it never grows.
    """

    def __init__(self, target: Target, room: int = 0) -> None:
        devices = target.layer_devices
        self._parts = {device: KeyValueRows(2 * devices.count(device), room) for device in dict.fromkeys(devices)}
        self._lengths = lengths = [0] * len(devices)
        layers = list[CacheLayer]()
        for index, device in enumerate(devices):
            # Nothing refers to the cache itself, so that its memory is free as soon as nobody holds it.
            write = partial(_written, self._parts[device], 2 * devices[:index].count(device), lengths, index)
            layers.append(CacheLayer(partial(lengths.__getitem__, index), write))
        super().__init__(layers=list(layers))

    @property
    def rows(self) -> KeyValueRows:
        """The rows of all layers, which are on one device."""
        (rows,) = self._parts.values()
        return rows

    @property
    def length(self) -> int:
        """Tokens held, padding counted."""
        return self._lengths[0]

    @property
    def num_rows(self) -> int:
        """The number of sequences held."""
        tensor = next(iter(self._parts.values())).tensor
        return 0 if tensor is None else tensor.shape[1]

    def keep_sequences(self, kept: Tensor) -> None:
        """Drop every sequence of the batch but ``kept``, int64."""
        for rows in self._parts.values():
            if rows.tensor is not None:
                rows.tensor = rows.tensor.index_select(1, kept.to(rows.tensor.device))

    def shorten(self, length: int) -> None:
        """Forget all but the first ``length`` tokens."""
        self._lengths[:] = [length] * len(self._lengths)

    def compact(self, num_before: int, kept: Tensor) -> None:
        """Keep some of the tokens after the first ``num_before``, in their order.

        Args:
            num_before: tokens that stay where they are.
            kept: int64 ``[M]``, rising, counted from ``num_before``.
        """
        num_kept = len(kept)
        in_place = bool(num_kept == 0 or kept[-1] == num_kept - 1)
        for rows in self._parts.values():
            if rows.tensor is not None and not in_place:
                moved = rows.tensor.index_select(3, kept.to(rows.tensor.device) + num_before)
                rows.tensor[:, :, :, num_before : num_before + num_kept] = moved
        self.shorten(num_before + num_kept)


def _written(
    rows: KeyValueRows, part: int, lengths: list[int], layer: int, keys: Tensor, values: Tensor
) -> tuple[Tensor, Tensor]:
    """Write keys and values of a layer behind those that it holds; all of them, as views."""
    start = lengths[layer]
    lengths[layer] += keys.shape[2]
    return rows.write(part, start, keys), rows.write(part + 1, start, values)


# Keys and values of several sequences in one store, each a row of its own length, written in place.

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
