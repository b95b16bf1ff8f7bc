"""The target's keys and values of texts that grow, in the form in which transformers asks for them."""

from torch import Tensor
from transformers.cache_utils import Cache, DynamicLayer

from simlab.real_runner.targets.key_value_rows import KeyValueRows
from simlab.real_runner.targets.model import Target


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
