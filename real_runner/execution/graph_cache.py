"""Keys and values at addresses that never change, written at slots that a tensor names.

A captured pass runs at the same addresses each time, so what differs between rounds, such as where the tree's rows go,
is read from tensors. Rows behind the text hold numbers of earlier rounds; masks hide them, and none is NaN.
"""

import torch
from torch import Tensor
from transformers.cache_utils import Cache, DynamicLayer

from simlab.real_runner.drafters.dflash import DrafterContext


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

    def fill(self, rows: Tensor) -> None:
        """Copy rows ``[parts, 1, E, L, F]`` to the first slots."""
        self.tensor[:, :, :, : rows.shape[3]] = rows

    def write(self, part: int, slots: Tensor, new: Tensor) -> None:
        """Write ``[1, E, L, F]`` to slots, int64 ``[L]``."""
        self.tensor[part].index_copy_(2, slots, new)

    def first(self, part: int, num: int) -> Tensor:
        """The first slots, as a view."""
        return self.tensor[part][:, :, :num]

    def move(self, start: Tensor, kept: Tensor) -> None:
        """Move rows ``start + kept[i]`` to ``start + i``; both on the device, int64 ``[1]`` and ``[K]``."""
        moved = self.tensor.index_select(3, start + kept)
        self.tensor.index_copy_(3, start + torch.arange(len(kept), device=kept.device), moved)

    def context(self, num: int) -> DrafterContext:
        """The first slots, as the drafter's context."""
        keys = tuple(self.first(part, num) for part in range(0, len(self.tensor), 2))
        return DrafterContext(keys, tuple(self.first(part, num) for part in range(1, len(self.tensor), 2)))


class FixedLayer(DynamicLayer):
    """One layer's part of the rows, in the form in which transformers asks for it."""

    def __init__(self, cache: "FixedCache", index: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._cache, self._index = cache, index

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        self.dtype, self.device = key_states.dtype, key_states.device
        self.is_initialized = True

    def get_seq_length(self) -> int:
        return self._cache.num_seen

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: object, **kwargs: object
    ) -> tuple[Tensor, Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        cache, part = self._cache, 2 * self._index
        cache.rows.write(part, cache.slots, key_states)
        cache.rows.write(part + 1, cache.slots, value_states)
        return cache.rows.first(part, cache.num_seen), cache.rows.first(part + 1, cache.num_seen)


class FixedCache(Cache):
    """Such a layer for each layer of the target.

    Attributes:
        rows: of all layers.
        slots: where the next pass writes, int64 ``[R]``.
        num_seen: so many slots are attended to, where the mask shows them.
    """

    def __init__(self, rows: FixedRows) -> None:
        self.rows = rows
        self.slots = torch.empty(0, dtype=torch.int64)
        self.num_seen = 0
        super().__init__(layers=[FixedLayer(self, index) for index in range(len(rows.tensor) // 2)])
