"""The target's keys and values of texts that grow, in the form in which transformers asks for them."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from transformers.cache_utils import Cache, DynamicLayer

from simlab.real_runner.drafters.dflash import DrafterContext
from simlab.real_runner.targets.model import KeyValueRows, Target

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
