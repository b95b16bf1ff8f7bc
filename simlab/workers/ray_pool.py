"""The workers of one command on Ray: which of them does what, and who replaces those that are lost."""

import logging
import os
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic

import ray
from ray import ObjectRef
from ray.actor import ActorHandle
from ray.exceptions import RayError, RayTaskError

from simlab.errors import SimlabError, reason_of
from simlab.workers.on_ray import LOCAL, RayOptions, WorkerError
from simlab.workers.threads import Job, Kind, Part, Report, Unit, Value, difference, kind_of_this_process, num_cores

# Threads of OpenMP that wait do not spin: beside other workers on the same cores, spinning ones take many times as
# long. It is read when a library with OpenMP is loaded, so it stands above whatever a job imports.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

from collections import Counter
from collections.abc import Sequence

from simlab.workers.threads import Opened


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
            reports, self._reports = dict(self._reports), Counter()
        return reports

    def _report(self, what: str, number: int) -> None:
        with self._lock:
            self._reports[what] += number


MOST_LOSSES = 10
"""A unit that lost so many workers is given up: it is what ends them, by its need of memory for instance."""

_UNITS_BEFORE = 4
"""Times the number of workers: units that may be done before an earlier one is."""

_SECONDS_BETWEEN_LOOKS = 0.5
_SECONDS_TO_WAIT_IN_SILENCE = 20.0
_SECONDS_TO_ANSWER = 10.0
_STORE_BYTES = 512 << 20

_ENDING: list[threading.Thread] = []
"""What is still ending a Ray of this process."""


@contextmanager
def connected(options: RayOptions) -> Iterator["RayWorkers"]:
    """Workers of a Ray that this command begins or joins; of one that this process is connected to already, of that."""
    for ending in _ENDING:
        ending.join()
    _ENDING.clear()
    begun = not ray.is_initialized()
    if begun:
        _begin(options)
    try:
        workers = RayWorkers(options)
        try:
            yield workers
        finally:
            workers.close()
    finally:
        if begun:
            _end()


def _end() -> None:
    """End Ray, which takes more than a second, while the command goes on; a process ends after its threads."""
    thread = threading.Thread(target=ray.shutdown, name="simlab-ray-shutdown")
    thread.start()
    _ENDING.append(thread)


def _begin(options: RayOptions) -> None:
    """Begin a Ray of this command's own, or join a cluster."""
    _check_there(options.address)
    try:
        if options.address != LOCAL:
            ray.init(address=options.address, log_to_driver=False, logging_level=logging.ERROR)
            return
        # A worker takes a core of Ray's count, so there may be more of them than there are cores.
        cores = max(num_cores(), options.workers or 0)
        with _visible(options.visible_gpus):
            ray.init(
                address=LOCAL,
                num_cpus=cores,
                include_dashboard=False,
                object_store_memory=_STORE_BYTES,
                log_to_driver=False,
                logging_level=logging.ERROR,
            )
    except (ConnectionError, OSError, RuntimeError, ValueError) as error:
        what = "a local Ray could not be started" if options.address == LOCAL else f"no Ray at {options.address}"
        raise WorkerError(_no_ray(what, error)) from error


def _check_there(address: str) -> None:
    """Refuse an address at which nothing answers; Ray itself would ask there for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not port.isdecimal():
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_SECONDS_TO_ANSWER).close()
    except OSError as error:
        raise WorkerError(_no_ray(f"no Ray at {address}", error)) from error


def _no_ray(what: str, error: Exception) -> str:
    return (
        f"{what} ({reason_of(error)}); give --ray local, or the address of a running cluster (`ray start --head` on "
        "its first machine prints it)"
    )


@contextmanager
def _visible(gpus: tuple[str, ...] | None) -> Iterator[None]:
    """What is begun within sees these GPUs only."""
    if gpus is None:
        yield
        return
    name = "CUDA_VISIBLE_DEVICES"
    before = os.environ.get(name)
    os.environ[name] = ",".join(gpus)
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


class RayWorkers:
    """Workers of the Ray that this process is connected to; begun when the first job comes, and kept for the next.

    Args:
        options: how many, and what each needs.
    """

    def __init__(self, options: RayOptions) -> None:
        self._options = options
        self._kind = kind_of_this_process()
        self._idle: list[_Worker] = []
        self._num_jobs = 0
        self._wanted = _num_workers(options)

    @property
    def shares_memory(self) -> bool:
        """False: a job is sent to other processes."""
        return False

    def results(self, job: Job[Unit, Part, Value], units: Iterable[Unit], report: Report) -> Iterator[Value]:
        """The values of all parts, in the order of the units."""
        self._num_jobs += 1
        run: _Run[Unit, Value] = _Run(
            self._start,
            self._kind,
            (self._num_jobs, [ray.put(job)]),
            report,
            self._options.units_ahead,
            self._wanted,
            self._idle,
        )
        try:
            yield from run.results(iter(units))
        finally:
            self._idle = run.left()

    def close(self) -> None:
        """End all workers of this command."""
        for worker in self._idle:
            with suppress(Exception):
                ray.kill(worker.handle)
        self._idle = []

    def _start(self) -> "_Worker":
        # A lost worker is replaced by the driver, which knows what it was at; Ray would wait for its old place.
        actor = ray.remote(  # type: ignore[call-overload]  # Ray's types know no groups of methods
            num_cpus=1, num_gpus=self._options.gpus, max_restarts=0, concurrency_groups={"reports": 1}
        )(RayWorker)
        handle = actor.remote(str(Path.cwd()))
        return _Worker(handle, handle.kind.remote())


def _num_workers(options: RayOptions) -> int:
    """As many as were asked for, or as the cluster has room for."""
    resources = ray.cluster_resources()
    room = int(resources.get("CPU", 0))
    if options.gpus:
        room = min(room, int(resources.get("GPU", 0)) // options.gpus)
    if room < 1:
        raise WorkerError(
            f"a worker needs 1 core and {options.gpus} GPUs, and Ray has {int(resources.get('CPU', 0))} cores and "
            f"{int(resources.get('GPU', 0))} GPUs; add machines to the cluster, or give another --device"
        )
    return options.workers or room


@dataclass(slots=True, eq=False)
class _Worker:
    """A worker, as the driver knows it.

    Attributes:
        handle: of Ray's actor.
        kind: what it will answer first of all.
        is_ready: whether it has.
        asked: a question for its reports that is still open.
    """

    handle: "ActorHandle[RayWorker[object, object, object]]"
    kind: "ObjectRef[Kind]"
    is_ready: bool = False
    asked: "ObjectRef[dict[str, int]] | None" = None


@dataclass(slots=True, eq=False)
class _Task(Generic[Unit]):
    """A unit that is to be done or is being done, and how many workers were lost over it."""

    number: int
    unit: Unit
    losses: int = 0


@dataclass(slots=True, eq=False)
class _Run(Generic[Unit, Value]):
    """One job on all workers: which units are where.

    Attributes:
        start: begins one more worker.
        driver: what this process runs on; no worker may differ.
        job: its number, and where it is.
        report: hears what workers report.
        ahead: units that a worker has at a time.
        wanted: how many workers there are to be.
        workers: those that are there.
    """

    start: Callable[[], _Worker]
    driver: Kind
    job: tuple[int, "list[ObjectRef[object]]"]
    report: Report
    ahead: int
    wanted: int
    workers: list[_Worker]
    _waiting: "deque[_Task[Unit]]" = field(default_factory=deque)
    _running: "dict[ObjectRef[list[Value]], tuple[_Task[Unit], _Worker]]" = field(default_factory=dict)
    _done: dict[int, list[Value]] = field(default_factory=dict)
    _num_taken: int = 0
    _next: int = 0
    _deaths_at_start: int = 0
    _looked: float = field(default_factory=time.monotonic)
    _stirred: float = field(default_factory=time.monotonic)

    def results(self, units: Iterator[Unit]) -> Iterator[Value]:
        """The values, in the order of the units."""
        while True:
            self._take(units)
            if not self._waiting and not self._running:
                return
            self._begin_workers()
            self._hand_out()
            self._wait()
            while self._next in self._done:
                yield from self._done.pop(self._next)
                self._next += 1

    def left(self) -> list[_Worker]:
        """Workers for another job; one that is still at a unit of this one is ended."""
        busy = [worker for _, worker in self._running.values()]
        for worker in busy:
            with suppress(Exception):
                ray.kill(worker.handle)
        return [worker for worker in self.workers if worker not in busy]

    def _take(self, units: Iterator[Unit]) -> None:
        """As many units as may be done next; lost ones wait before them."""
        while len(self._waiting) <= self.wanted and self._num_taken - self._next < _UNITS_BEFORE * self.wanted:
            try:
                unit = next(units)
            except StopIteration:
                return
            self._waiting.append(_Task(self._num_taken, unit))
            self._num_taken += 1

    def _begin_workers(self) -> None:
        """No more than there are units for."""
        while len(self.workers) < min(self.wanted, len(self._waiting) + len(self._running)):
            self.workers.append(self.start())

    def _hand_out(self) -> None:
        """To workers that do nothing first; ahead only where units are left for those that are beginning."""
        counts = {id(worker): 0 for worker in self.workers if worker.is_ready}
        for _, worker in self._running.values():
            # One that was lost may have more to answer for.
            counts[id(worker)] = counts.get(id(worker), 0) + 1
        beginning = sum(not worker.is_ready for worker in self.workers)
        for load in range(self.ahead):
            for worker in self.workers:
                idle = counts.get(id(worker)) == load
                if idle and len(self._waiting) > (beginning if load else 0):
                    task = self._waiting.popleft()
                    number, job = self.job
                    self._running[worker.handle.do.remote(number, job, task.unit)] = task, worker
                    counts[id(worker)] += 1

    def _wait(self) -> None:
        """Until something ends or begins, or it is time to look at what workers report."""
        beginning = {worker.kind: worker for worker in self.workers if not worker.is_ready}
        done, _ = ray.wait([*self._running, *beginning], num_returns=1, timeout=_SECONDS_BETWEEN_LOOKS)
        for ref in done:
            self._stirred = time.monotonic()
            if ref in beginning:
                self._meet(beginning[ref])
            else:
                self._take_in(ref)
        now = time.monotonic()
        if now - self._looked > _SECONDS_BETWEEN_LOOKS:
            self._looked = now
            self._hear()
            self._say_what_is_waited_for(now, len(beginning))

    def _meet(self, worker: _Worker) -> None:
        """A worker has begun, or failed to."""
        try:
            other = difference(self.driver, ray.get(worker.kind))
        except RayError as error:
            self.workers.remove(worker)
            self._deaths_at_start += 1
            if self._deaths_at_start >= MOST_LOSSES:
                raise WorkerError(
                    f"{MOST_LOSSES} workers in a row ended while they began: {reason_of(error)}"
                ) from error
            return
        if other is not None:
            raise WorkerError(f"a worker has {other}, so its results might differ; install the same on all machines")
        worker.is_ready, self._deaths_at_start = True, 0

    def _take_in(self, ref: "ObjectRef[list[Value]]") -> None:
        """A unit is done, or its worker is lost."""
        task, worker = self._running.pop(ref)
        try:
            self._done[task.number] = ray.get(ref)
        except RayTaskError as error:
            if isinstance(error.cause, SimlabError):
                raise error.cause from None
            raise
        except RayError as error:
            if worker in self.workers:
                self.workers.remove(worker)
            task.losses += 1
            if task.losses >= MOST_LOSSES:
                raise WorkerError(
                    f"{MOST_LOSSES} workers ended one after the other while they did the same unit of work: "
                    f"{reason_of(error)}; finished units are kept"
                ) from error
            self._waiting.appendleft(task)

    def _hear(self) -> None:
        """What workers report; the question is not asked twice."""
        for worker in self.workers:
            if not worker.is_ready:
                continue
            if worker.asked is not None:
                ready, _ = ray.wait([worker.asked], timeout=0)
                if not ready:
                    continue
                with suppress(RayError):
                    for what, number in ray.get(worker.asked).items():
                        self.report(what, number)
            worker.asked = worker.handle.reports.remote()

    def _say_what_is_waited_for(self, now: float, beginning: int) -> None:
        """Where nothing runs for long: a cluster may have lost the machines that had room for a worker."""
        if not self._running and now - self._stirred > _SECONDS_TO_WAIT_IN_SILENCE:
            self._stirred = now
            sys.stderr.write(f"waiting for Ray to begin {beginning} workers; is there room on the cluster?\n")
