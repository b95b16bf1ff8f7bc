"""The clocks of the runner: stages are timed from the outside, none times itself."""

import time
from collections.abc import Callable
from itertools import pairwise

import torch

Clock = Callable[[], float]
"""Seconds since some fixed moment, when all work before it is done."""


def clock_of(device: torch.device) -> Clock:
    """The clock of a device. A GPU works on while Python goes ahead, so its clock waits for it."""
    if device.type != "cuda":
        return time.perf_counter

    def synchronised() -> float:
        torch.cuda.synchronize(device)
        return time.perf_counter()

    return synchronised


class StageMarks:
    """Marks between stages. On a GPU they are events of the stream, so that no mark waits."""

    def __init__(self, device: torch.device, outside: Callable[[], float]) -> None:
        """Begin with no mark set.

        Args:
            device: that works.
            outside: seconds so far that belong to no stage; the device waits meanwhile.
        """
        self._is_gpu, self._outside = device.type == "cuda", outside
        self._events: list[torch.cuda.Event] = []
        self._times: list[float] = []
        self._outsides: list[float] = []

    def mark(self) -> None:
        """Here one stage ends and the next begins."""
        self._outsides.append(self._outside())
        if self._is_gpu:
            event = torch.cuda.Event(enable_timing=True)
            event.record()
            self._events.append(event)
        else:
            self._times.append(time.perf_counter())

    def seconds(self) -> list[float]:
        """Seconds of each stage since the last call; the device must have reached the last mark."""
        events = [1e-3 * first.elapsed_time(second) for first, second in pairwise(self._events)]
        times = [second - first for first, second in pairwise(self._times)]
        outside = [second - first for first, second in pairwise(self._outsides)]
        self._events, self._times, self._outsides = [], [], []
        # Two clocks may differ a little where a device waited.
        return [max(0.0, spent - other) for spent, other in zip(events or times, outside, strict=True)]
