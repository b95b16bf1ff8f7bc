"""Work that is captured once as a CUDA graph and replayed; on another device it is simply done."""

import time
from collections.abc import Callable, Hashable, Sequence

import torch
from torch import Tensor

from simlab.real_runner.execution.fused_layers import where_torch_compiles

_WARM_UPS = 2

Work = Callable[[], None]
"""Reads tensors at fixed addresses and writes to such; launches kernels only, and waits for none."""


class Moment:
    """A moment in the work of a device that the host waits for; beside a CPU it has always come."""

    def __init__(self, device: torch.device) -> None:
        self._event = torch.cuda.Event() if device.type == "cuda" else None
        # Asking for it costs more than the mark.
        self._stream = torch.cuda.current_stream(device) if device.type == "cuda" else None

    def mark(self) -> None:
        """It comes when all that was launched is done."""
        if self._event is not None:
            self._event.record(self._stream)

    def wait(self) -> None:
        """Until the last mark is reached."""
        if self._event is not None:
            self._event.synchronize()


class CapturedGraphs:
    """Captured work, by what it depends on.

    Attributes:
        seconds: spent on capturing so far, which belongs to no round.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._captured: dict[Hashable, torch.cuda.CUDAGraph] = {}
        self._calls: dict[Hashable, tuple[list[Tensor], list[Tensor]]] = {}
        # One stream of its own for warm-ups and captures: what libraries keep for a stream then lies outside the
        # memory of the graphs, and is shared with no other captures.
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self._pool = torch.cuda.graph_pool_handle() if device.type == "cuda" else None
        self.seconds = 0.0

    def run(self, key: Hashable, work: Work, changed: Sequence[Tensor] = ()) -> None:
        """Do the work, or what was captured of it under this key.

        Args:
            key: of all that is not in tensors: shapes, options.
            work: launches.
            changed: what it reads and then changes; capturing does the work several times, and puts these back.
        """
        if self._stream is None:
            work()
            return
        if key not in self._captured:
            self._captured[key] = self._capture(work, changed, self._stream)
        self._captured[key].replay()

    def call(self, key: Hashable, work: Callable[..., Sequence[Tensor]], *inputs: Tensor) -> Sequence[Tensor]:
        """The tensors that work makes of some inputs, captured once for this key and these shapes.

        They are valid until the next such call, where nothing is captured too: they lie in the same memory each time.
        """
        key = ("call", key, *((tensor.shape, tensor.dtype) for tensor in inputs))
        if key not in self._calls:
            self._calls[key] = [torch.empty_like(tensor, device=self._device) for tensor in inputs], []
        held, made = self._calls[key]
        for own, tensor in zip(held, inputs, strict=True):
            own.copy_(tensor, non_blocking=True)

        fresh: list[Tensor] = []

        def run() -> None:
            fresh[:] = work(*held)

        self.run(key, run)
        if not made or self._stream is not None:
            # Of captured work these are its own memory, and a replay makes none.
            made[:] = fresh or made
        else:
            for own, tensor in zip(made, fresh, strict=True):
                own.copy_(tensor)
        return made

    def forget(self) -> None:
        """After addresses have changed. A pool that has lost all its graphs cannot be used again."""
        self._captured.clear()
        self._calls.clear()
        self._pool = torch.cuda.graph_pool_handle() if self._stream is not None else None

    def _capture(self, work: Work, changed: Sequence[Tensor], stream: torch.cuda.Stream) -> torch.cuda.CUDAGraph:
        torch.cuda.synchronize(self._device)
        began = time.perf_counter()
        before = [tensor.clone() for tensor in changed]

        def put_back() -> None:
            for tensor, was in zip(changed, before, strict=True):
                tensor.copy_(was)

        current = torch.cuda.current_stream(self._device)
        stream.wait_stream(current)
        with torch.cuda.stream(stream):
            for _ in range(_WARM_UPS):
                with where_torch_compiles():
                    work()
                put_back()
        current.wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        # The outer one brings the stream back where a capture fails.
        with torch.cuda.stream(current), torch.cuda.graph(graph, pool=self._pool, stream=stream):
            work()
        # The first replay takes longer.
        graph.replay()
        put_back()
        torch.cuda.synchronize(self._device)
        self.seconds += time.perf_counter() - began
        return graph
