"""The one clock of the runner: stages are timed from the outside, none times itself."""

import time
from collections.abc import Callable

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
