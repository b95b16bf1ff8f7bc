"""Work on the threads of this process."""

import os
import platform
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol, TypeVar

from simlab.ids import versions_of

# Work in units that any worker does alike: what a job is, and what does it.


Unit = TypeVar("Unit")
Unit_contra = TypeVar("Unit_contra", contravariant=True)
Part = TypeVar("Part")
Value = TypeVar("Value")
Value_co = TypeVar("Value_co", covariant=True)

Report = Callable[[str, int], None]
"""Told what a worker is at, and how much more of it is done, while a unit goes on."""


class Opened(Protocol[Unit_contra, Part, Value_co]):
    """A job in one process, with what it reads in memory."""

    def parts(self, unit: Unit_contra, /) -> Iterable[Part]:
        """What a unit is made of, read one after the other."""
        ...

    def work(self, part: Part, /) -> Value_co:
        """What comes of a part; threads call this at the same time."""
        ...


class Job(Protocol[Unit_contra, Part, Value_co]):
    """Work on units. It can be pickled, and a unit that is done twice gives the same."""

    def open(self, report: Report, /) -> Opened[Unit_contra, Part, Value_co]:
        """Read what all units need, once in each process."""
        ...


class Workers(Protocol):
    """Whatever does jobs: threads, or workers of Ray."""

    @property
    def shares_memory(self) -> bool:
        """Whether a job is opened in this process, so that it may hold what is open here."""
        ...

    def results(self, job: Job[Unit, Part, Value], units: Iterable[Unit], report: Report) -> Iterator[Value]:
        """The values of all parts, in the order of the units; few units are held at a time.

        Args:
            job: what is done.
            units: of which; read as workers become free.
            report: hears what workers report.
        """
        ...


def ignore_progress(_what: str, _number: int) -> None:
    """Hear nothing of what workers report."""


# What a worker runs on: one that differs from the driver is refused, since its last bits might differ too.


REPLAYING = ("simlab", "numpy", "numba", "llvmlite", "polars", "scipy")
"""The packages that result rows depend on. A recording's manifest names its own."""

Kind = Mapping[str, str]
"""By name: the versions of packages and of Python, and the processor's architecture."""


def kind_of_this_process() -> Kind:
    """What this process runs on."""
    versions = versions_of(REPLAYING)
    major, minor, _ = platform.python_version_tuple()
    return versions | {"python": f"{major}.{minor}", "architecture": platform.machine()}


def difference(driver: Kind, worker: Kind) -> str | None:
    """In what a worker differs from the driver, in words; None: in nothing.

    >>> difference({"numba": "0.68.1"}, {"numba": "0.67.0"})
    'numba 0.67.0, and the driver has numba 0.68.1'
    """
    for name, ours in driver.items():
        theirs = worker.get(name, "none")
        if theirs != ours:
            return f"{name} {theirs}, and the driver has {name} {ours}"
    return None


@dataclass(frozen=True, slots=True)
class Threads:
    """Threads of this process.

    Attributes:
        num: how many; None: as many as there are cores.
    """

    num: int | None = None

    @property
    def shares_memory(self) -> bool:
        """True: jobs are opened here."""
        return True

    def results(self, job: Job[Unit, Part, Value], units: Iterable[Unit], report: Report) -> Iterator[Value]:
        """The values of all parts, in the order of the units."""
        opened = job.open(report)
        parts = (part for unit in units for part in opened.parts(unit))
        return in_order(parts, opened.work, self.num or num_cores())


def in_order(parts: Iterator[Part], work: Callable[[Part], Value], threads: int) -> Iterator[Value]:
    """What work makes of each part, in their order; as few parts as keep the threads busy are held at a time."""
    with ThreadPoolExecutor(threads) as pool:
        waiting: deque[Future[Value]] = deque()
        try:
            for part in parts:
                waiting.append(pool.submit(work, part))
                if len(waiting) > 2 * threads:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def num_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
