"""Keys and values that are written in place: room is doubled when it runs out, never copied per token."""

import torch
from torch import Tensor
from transformers.cache_utils import Cache, DynamicLayer

from simlab.real_runner.drafters.dflash import DFlashDrafter, DrafterContext
from simlab.real_runner.targets.model import Target

LEAST_ROOM = 64
"""Tokens for which there is room at least, beyond those that are written."""


class KeyValueRows:
    """Rows of layers in one tensor, ``[parts, S, E, room, F]``; a part is the keys or values of a layer."""

    def __init__(self, num_parts: int, room: int) -> None:
        self.num_parts = num_parts
        self.room = room
        self.tensor: Tensor | None = None

    def write(self, part: int, start: int, new: Tensor) -> Tensor:
        """Write ``[S, E, L, F]`` from row ``start`` on; what now lies before its end, as a view."""
        stop = start + new.shape[2]
        if self.tensor is None or stop > self.tensor.shape[3]:
            self._grow(start, stop, new)
        assert self.tensor is not None
        self.tensor[part, :, :, start:stop] = new
        return self.tensor[part, :, :, :stop]

    def _grow(self, filled: int, wanted: int, like: Tensor) -> None:
        held = 0 if self.tensor is None else self.tensor.shape[3]
        room = max(self.room, wanted + LEAST_ROOM, 2 * held)
        grown = like.new_empty(self.num_parts, *like.shape[:2], room, like.shape[3])
        if self.tensor is not None:
            # Some layers may have rows of this pass already: all that there is goes along.
            grown[:, :, :, :held] = self.tensor
        self.tensor = grown


class BufferLayer(DynamicLayer):
    """One layer's keys and values, in the form in which transformers asks for them."""

    def __init__(self, rows: KeyValueRows, index: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.rows, self.index, self.length = rows, index, 0

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        self.dtype, self.device = key_states.dtype, key_states.device
        self.is_initialized = True

    def get_seq_length(self) -> int:
        return self.length

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: object, **kwargs: object
    ) -> tuple[Tensor, Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        start = self.length
        self.length += key_states.shape[2]
        keys = self.rows.write(2 * self.index, start, key_states)
        return keys, self.rows.write(2 * self.index + 1, start, value_states)


class BufferCache(Cache):
    """Such a layer for each layer of a target whose layers all attend to everything.

    ``room`` is how many tokens it will hold, where that is known: then it never grows.
    """

    def __init__(self, target: Target, room: int = 0) -> None:
        devices = target.layer_devices
        self._parts = {device: KeyValueRows(2 * devices.count(device), room) for device in dict.fromkeys(devices)}
        places = [devices[:index].count(device) for index, device in enumerate(devices)]
        self.buffers = [BufferLayer(self._parts[device], place) for device, place in zip(devices, places, strict=True)]
        super().__init__(layers=list(self.buffers))

    @property
    def rows(self) -> KeyValueRows:
        """The rows of all layers, which are on one device."""
        (rows,) = self._parts.values()
        return rows

    @property
    def length(self) -> int:
        """Tokens held, padding counted."""
        return self.buffers[0].length

    @property
    def num_rows(self) -> int:
        """The number of sequences held."""
        tensor = self.buffers[0].rows.tensor
        return 0 if tensor is None else tensor.shape[1]

    def keep_sequences(self, kept: Tensor) -> None:
        """Drop every sequence of the batch but ``kept``, int64."""
        for rows in self._parts.values():
            if rows.tensor is not None:
                rows.tensor = rows.tensor.index_select(1, kept.to(rows.tensor.device))

    def shorten(self, length: int) -> None:
        """Forget all but the first ``length`` tokens."""
        for layer in self.buffers:
            layer.length = length

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


class ContextBuffer:
    """The drafter's growing context of one sequence."""

    def __init__(self, drafter: DFlashDrafter, room: int = 0) -> None:
        self.rows = KeyValueRows(2 * drafter.config.num_hidden_layers, room)
        self.length = 0

    def append(self, new: DrafterContext) -> DrafterContext:
        """Add keys and values of further tokens; the whole context, as views that the next call may move."""
        pairs = [
            (self.rows.write(2 * layer, self.length, keys), self.rows.write(2 * layer + 1, self.length, values))
            for layer, (keys, values) in enumerate(zip(new.keys, new.values, strict=True))
        ]
        self.length += new.length
        return DrafterContext(tuple(keys for keys, _ in pairs), tuple(values for _, values in pairs))


class TextContext:
    """A drafter's context of one text that is being written.

    What the target has read since the last draft is projected when the next one is made.
    """

    def __init__(self, drafter: DFlashDrafter, room: int) -> None:
        """Begin with nothing read of the text, and room for so many tokens."""
        self._drafter = drafter
        self._buffer = ContextBuffer(drafter, room)
        self._waiting: list[Tensor] = []
        self._last = torch.empty(0)

    def read(self, features: Tensor) -> None:
        """Take in the tapped states ``[1, L, taps x H]`` of further tokens of the text."""
        self._waiting.append(features)

    def rewind(self, length: int) -> None:
        """Forget all but the first tokens of the context; the last few are left to be projected again."""
        if self._waiting:
            self.context()
        num_again = min(self._last.shape[1], length)
        self._buffer.length = length - num_again
        self._waiting = [self._last[:, :num_again]]

    def context(self) -> DrafterContext:
        """The context of all that was read since the last rewind; there is something new."""
        features = self._waiting[0] if len(self._waiting) == 1 else torch.cat(self._waiting, dim=1)
        self._waiting, self._last = [], features[:, -3:]
        return self._buffer.append(self._drafter.context(features, self._buffer.length))
