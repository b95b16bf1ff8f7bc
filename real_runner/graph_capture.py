"""Work that is captured once as a CUDA graph and replayed; on another device it is simply done."""

import time
from collections.abc import Callable, Hashable, Sequence

import torch
from torch import Tensor

_WARM_UPS = 2

Work = Callable[[], None]
"""Reads tensors at fixed addresses and writes to such; launches kernels only, and waits for none."""


class Graphs:
    """Captured work, by what it depends on.

    Attributes:
        seconds: spent on capturing so far, which belongs to no round.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._captured: dict[Hashable, torch.cuda.CUDAGraph] = {}
        self._pool = torch.cuda.graph_pool_handle() if device.type == "cuda" else None
        self.seconds = 0.0

    def run(self, key: Hashable, work: Work, changed: Sequence[Tensor] = ()) -> None:
        """Do the work, or what was captured of it under this key.

        Args:
            key: of all that is not in tensors: shapes, options.
            work: launches.
            changed: what it reads and then changes; capturing does the work several times, and puts these back.
        """
        if self._device.type != "cuda":
            work()
            return
        if key not in self._captured:
            self._captured[key] = self._capture(work, changed)
        self._captured[key].replay()

    def forget(self) -> None:
        """After addresses have changed."""
        self._captured.clear()

    def _capture(self, work: Work, changed: Sequence[Tensor]) -> torch.cuda.CUDAGraph:
        torch.cuda.synchronize(self._device)
        began = time.perf_counter()
        before = [tensor.clone() for tensor in changed]
        side = torch.cuda.Stream(self._device)
        side.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(side):
            for _ in range(_WARM_UPS):
                work()
        torch.cuda.current_stream(self._device).wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool):
            work()
        for tensor, was in zip(changed, before, strict=True):
            tensor.copy_(was)
        torch.cuda.synchronize(self._device)
        self.seconds += time.perf_counter() - began
        return graph
