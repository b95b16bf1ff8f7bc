"""Jobs for workers of Ray, which import them by name; and a Ray of a few tests' own."""

import logging
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from simlab.errors import SimlabError
from simlab.workers.threads import Report


@dataclass(frozen=True, slots=True)
class Squares:
    """Squares of the numbers up to each unit; a part is a number.

    Attributes:
        folder: where marks are left.
        dies_at: units at which a worker ends itself, once each.
        always: whether it does so each time.
        fails_at: a part at which it says what is wrong.
        breaks_at: a part at which it raises what nobody expected.
        wait_s: seconds a part takes.
    """

    folder: Path
    dies_at: tuple[int, ...] = ()
    always: bool = False
    fails_at: int | None = None
    breaks_at: int | None = None
    wait_s: float = 0.0

    def open(self, report: Report) -> "OpenedSquares":
        """Leave a mark for each process that opens the job."""
        (self.folder / f"opened-{os.getpid()}").touch()
        return OpenedSquares(self, report)


@dataclass(frozen=True, slots=True)
class OpenedSquares:
    """The job in one process."""

    job: Squares
    report: Report

    def parts(self, unit: int) -> Iterator[int]:
        """The numbers below a unit, and it."""
        mark = self.job.folder / f"died-{unit}"
        if unit in self.job.dies_at and (self.job.always or not mark.exists()):
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        yield from range(unit + 1)

    def work(self, part: int) -> int:
        """The square of a number."""
        if part == self.job.fails_at:
            raise SimlabError(f"no square of {part}")
        if part == self.job.breaks_at:
            raise ZeroDivisionError(f"at {part}")
        time.sleep(self.job.wait_s)
        self.report("squares", 1)
        return part * part


@contextmanager
def ray_of_tests(num_cpus: int) -> Iterator[None]:
    """A local Ray whose workers find what the tests import, used by all commands within."""
    ray = pytest.importorskip("ray")
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(one for one in sys.path if one)
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        ray.init(
            address="local",
            num_cpus=num_cpus,
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.ERROR,
            object_store_memory=256 << 20,
        )
        yield
    finally:
        ray.shutdown()
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before


def worker_ids() -> list[int]:
    """The process ids of the workers of Rays that this process has started."""
    found = []
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if process.name().startswith("ray::RayWorker"):
                found.append(process.pid)
    return found


@contextmanager
def random_kills(seed: int, most: int, seconds: float) -> Iterator[list[int]]:
    """Workers are killed by signal 9 while this is entered; gives whom it killed.

    Args:
        seed: of the choice of worker and moment.
        most: kills at most.
        seconds: between kills, in the mean.
    """
    chance, ended, killed = random.Random(seed), threading.Event(), list[int]()

    def kill() -> None:
        while len(killed) < most and not ended.wait(seconds * (0.5 + chance.random())):
            if there := worker_ids():
                with suppress(ProcessLookupError):
                    os.kill(one := chance.choice(there), signal.SIGKILL)
                    killed.append(one)

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        yield killed
    finally:
        ended.set()
        thread.join()
