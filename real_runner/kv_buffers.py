"""A key-value cache that writes in place: room is doubled when it runs out, never copied per token."""

from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, DynamicLayer

from simlab.real_runner.target import Target


class BufferLayer(DynamicLayer):  # type: ignore[misc]
    """One layer's keys and values; ``keys`` and ``values`` are views of the filled part."""

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        self.dtype, self.device = key_states.dtype, key_states.device
        self.length = 0
        self.key_buffer = key_states.new_empty(*key_states.shape[:2], 0, key_states.shape[3])
        self.value_buffer = value_states.new_empty(*value_states.shape[:2], 0, value_states.shape[3])
        self.is_initialized = True

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        new_length = self.length + key_states.shape[2]
        if new_length > self.key_buffer.shape[2]:
            self._grow(max(new_length + 64, 2 * self.key_buffer.shape[2]))
        self.key_buffer[:, :, self.length : new_length] = key_states
        self.value_buffer[:, :, self.length : new_length] = value_states
        self._set_length(new_length)
        return self.keys, self.values

    def _grow(self, room: int) -> None:
        for name in ("key_buffer", "value_buffer"):
            old = getattr(self, name)
            new = old.new_empty(*old.shape[:2], room, old.shape[3])
            new[:, :, : self.length] = old[:, :, : self.length]
            setattr(self, name, new)

    def _set_length(self, length: int) -> None:
        self.length = length
        self.keys, self.values = self.key_buffer[:, :, :length], self.value_buffer[:, :, :length]

    def keep_rows(self, rows: Tensor) -> None:
        """Drop every sequence of the batch but ``rows``, int64."""
        self.key_buffer = self.key_buffer.index_select(0, rows)
        self.value_buffer = self.value_buffer.index_select(0, rows)
        self._set_length(self.length)


def new_cache(target: Target) -> Cache:
    """An empty cache for a target whose layers all attend to everything."""
    return Cache(layers=[BufferLayer() for _ in target.layers])


def keep_rows(cache: Cache, rows: Tensor) -> None:
    """Drop every sequence of the batch but ``rows``."""
    for layer in cache.layers:
        layer.keep_rows(rows.to(torch.int64))
