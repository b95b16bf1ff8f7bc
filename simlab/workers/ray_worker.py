"""A worker of Ray: a process that opens a job once and does one unit after the other."""

import os

# Threads of OpenMP that wait do not spin: beside other workers on the same cores, spinning ones take many times as
# long. It is read when a library with OpenMP is loaded, so it stands above whatever a job imports.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import threading
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from typing import Generic

import ray

from simlab.workers.job import Job, Opened, Part, Unit, Value
from simlab.workers.kinds import Kind, kind_of_this_process


class RayWorker(Generic[Unit, Part, Value]):
    """What runs in the process of a worker."""

    def __init__(self, folder: str) -> None:
        """Go to the folder that the driver is in, where this machine has it: paths may be relative to it."""
        with suppress(OSError):
            os.chdir(folder)
        self._number = -1
        self._opened: Opened[Unit, Part, Value] | None = None
        self._reports: Counter[str] = Counter()
        self._lock = threading.Lock()

    def kind(self) -> Kind:
        """What this process runs on."""
        return kind_of_this_process()

    def do(self, number: int, job: "Sequence[ray.ObjectRef[Job[Unit, Part, Value]]]", unit: Unit) -> list[Value]:
        """The values of all parts of a unit.

        Args:
            number: of the job; another one than before is opened anew.
            job: where it is; in a list, so that it is fetched only when it is opened.
            unit: of the job.
        """
        if number != self._number or self._opened is None:
            self._opened = None
            self._opened = ray.get(job[0]).open(self._report)
            self._number = number
        return [self._opened.work(part) for part in self._opened.parts(unit)]

    @ray.method(concurrency_group="reports")
    def reports(self) -> dict[str, int]:
        """What was reported since this was last called, summed; answered while a unit is being done."""
        with self._lock:
            found, self._reports = dict(self._reports), Counter()
        return found

    def _report(self, what: str, number: int) -> None:
        with self._lock:
            self._reports[what] += number
