"""A key-value cache that writes in place: room is doubled when it runs out, never copied per token."""

from torch import Tensor
from transformers.cache_utils import Cache, DynamicLayer

from simlab.real_runner.target import Target


class BufferLayer(DynamicLayer):
    """One layer's keys and values; ``keys`` and ``values`` are views of the filled part."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.length = 0

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        self.dtype, self.device = key_states.dtype, key_states.device
        self.key_buffer = key_states.new_empty(*key_states.shape[:2], 0, key_states.shape[3])
        self.value_buffer = value_states.new_empty(*value_states.shape[:2], 0, value_states.shape[3])
        self.is_initialized = True

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: object, **kwargs: object
    ) -> tuple[Tensor, Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        new_length = self.length + key_states.shape[2]
        if new_length > self.key_buffer.shape[2]:
            self._grow(max(new_length + 64, 2 * self.key_buffer.shape[2]))
        self.key_buffer[:, :, self.length : new_length] = key_states
        self.value_buffer[:, :, self.length : new_length] = value_states
        return self._set_length(new_length)

    def keep_rows(self, rows: Tensor) -> None:
        """Drop every sequence of the batch but ``rows``, int64."""
        self.key_buffer = self.key_buffer.index_select(0, rows)
        self.value_buffer = self.value_buffer.index_select(0, rows)
        self._set_length(self.length)

    def _grow(self, room: int) -> None:
        self.key_buffer = _with_room(self.key_buffer, self.length, room)
        self.value_buffer = _with_room(self.value_buffer, self.length, room)

    def _set_length(self, length: int) -> tuple[Tensor, Tensor]:
        self.length = length
        keys, values = self.key_buffer[:, :, :length], self.value_buffer[:, :, :length]
        self.keys, self.values = keys, values
        return keys, values


def _with_room(old: Tensor, length: int, room: int) -> Tensor:
    new = old.new_empty(*old.shape[:2], room, old.shape[3])
    new[:, :, :length] = old[:, :, :length]
    return new


class BufferCache(Cache):
    """Such a layer for each layer of a target whose layers all attend to everything."""

    def __init__(self, target: Target) -> None:
        self.buffers = [BufferLayer() for _ in target.layers]
        super().__init__(layers=list(self.buffers))

    @property
    def length(self) -> int:
        """Tokens held, padding counted."""
        return self.buffers[0].length

    @property
    def num_rows(self) -> int:
        """Sequences held."""
        return self.buffers[0].key_buffer.shape[0]

    def keep_rows(self, rows: Tensor) -> None:
        """Drop every sequence of the batch but ``rows``, int64."""
        for layer in self.buffers:
            layer.keep_rows(rows.to(layer.key_buffer.device))
