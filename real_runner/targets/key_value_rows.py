"""Keys and values that are written in place: room is doubled when it runs out, never copied per token."""

from torch import Tensor

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
