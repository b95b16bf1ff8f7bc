"""Work on the threads of this process."""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from simlab.workers.job import Job, Part, Report, Unit, Value


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

    def results(self, job: Job[Unit, Part, Value], units: Iterable[Unit], told: Report) -> Iterator[Value]:
        """The values of all parts, in the order of the units."""
        opened = job.open(told)
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
