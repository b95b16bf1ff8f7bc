"""One recording on several devices: a process for each, which take shards from one list.

A shard is the same whoever records it, so the files are those of a recording by one process, and a recording may
be resumed with more or fewer devices. The calling process records too, on the first device.
"""

import multiprocessing
import os
import queue
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from multiprocessing import connection, forkserver
from multiprocessing.context import ForkServerContext, SpawnContext
from multiprocessing.process import BaseProcess
from multiprocessing.queues import Queue
from multiprocessing.sharedctypes import Synchronized
from types import TracebackType
from typing import TypeAlias

import torch

from simlab.errors import ModelError, SimlabError
from simlab.real_runner.models import check_device
from simlab.real_runner.record.manifests import device_name
from simlab.real_runner.record.options import RecordOptions
from simlab.real_runner.record.progress import ProgressReporter
from simlab.traces.writer import TraceWriter

_SECONDS_BETWEEN_LOOKS = 0.2

Message: TypeAlias = tuple[str, int | str]
Recorder: TypeAlias = Callable[[RecordOptions, TraceWriter, Iterator[int], ProgressReporter], None]
"""Loads the models on ``options.device`` and records the shards that it is given, one after the other."""


@dataclass(frozen=True, slots=True)
class _SharedList:
    """Numbers that several processes take, each number once."""

    numbers: tuple[int, ...]
    num_taken: "Synchronized[int]"

    def taken(self, done: Callable[[int], object], look: Callable[[], object]) -> Iterator[int]:
        """The numbers that this process takes, each when it asks for it.

        Args:
            done: called with a number when the next is asked for.
            look: called now and then while another process holds the list; one that was killed holds it for ever.
        """
        lock = self.num_taken.get_lock()
        while True:
            while not lock.acquire(timeout=_SECONDS_BETWEEN_LOOKS):
                look()
            try:
                place = self.num_taken.value
                self.num_taken.value = place + 1
            finally:
                lock.release()
            if place >= len(self.numbers):
                return
            yield self.numbers[place]
            done(self.numbers[place])


@dataclass(frozen=True, slots=True)
class _MessageProgress:
    """What a process reports, sent to the one that shows it."""

    messages: "Queue[Message]"

    def decoded(self, num_tokens: int) -> None:
        self.messages.put(("decoded", num_tokens))

    def recorded(self, num_positions: int) -> None:
        self.messages.put(("recorded", num_positions))

    def written(self, number: int) -> None:
        self.messages.put(("written", number))


class OtherDevices:
    """The processes of all devices but the first; a context manager that ends them, and the progress of all."""

    def __init__(
        self,
        options: RecordOptions,
        writer: TraceWriter,
        numbers: Sequence[int],
        recorder: Recorder,
        progress: ProgressReporter,
    ) -> None:
        """Prepare one process for each of ``options.more_devices``, where there are shards enough.

        Args:
            options: see there.
            writer: of the trace; the processes write their shards with copies of it.
            numbers: the shards that are to be recorded.
            recorder: a function of a module, which a new process can import.
            progress: learns of what all processes do.
        """
        context = _context()
        context.set_forkserver_preload([recorder.__module__])
        self._progress = progress
        self._messages: Queue[Message] = context.Queue()
        self._shared = _SharedList(tuple(numbers), context.Value("q", 0))
        self._left = set(numbers)
        self._processes: dict[str, BaseProcess] = {}
        for place, device in enumerate(options.more_devices[: max(len(numbers) - 1, 0)]):
            own = replace(options, device=device, more_devices=())
            given = (recorder, own, writer, self._shared, self._messages, torch.get_num_threads())
            name = f"process {place + 2} on {device}"
            self._processes[name] = context.Process(target=_record, args=given, name=name)

    def __enter__(self) -> "OtherDevices":
        try:
            with _deaf_to_interruptions():
                _begin_forking()
            for process in self._processes.values():
                process.start()
        except BaseException as error:
            self.__exit__(type(error), error, error.__traceback__)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is KeyboardInterrupt:
            _end_forking()
        begun = [process for process in self._processes.values() if process.pid is not None]
        for process in begun:
            process.terminate()
        for process in begun:
            process.join()
        self._messages.close()

    def taken(self) -> Iterator[int]:
        """The shards that are left to the calling process.

        Raises:
            ModelError: a process failed, or ended before it was done.
        """
        return self._shared.taken(self._left.discard, self._read_messages)

    def decoded(self, num_tokens: int) -> None:
        """The calling process decoded so many tokens."""
        self._progress.decoded(num_tokens)
        self._read_messages()

    def recorded(self, num_positions: int) -> None:
        """The calling process recorded a text of so many positions."""
        self._progress.recorded(num_positions)
        self._read_messages()

    def wait(self) -> None:
        """Until every shard is written, by whatever process.

        Raises:
            ModelError: a process failed, or ended before it was done.
        """
        while self._left:
            running = [process.sentinel for process in self._processes.values() if process.is_alive()]
            connection.wait(running, _SECONDS_BETWEEN_LOOKS)
            self._read_messages()
            if self._left and not running:
                raise ModelError(f"{len(self._left)} batches were not recorded; add --resume to go on")

    def _read_messages(self) -> None:
        ended = [(name, process.exitcode) for name, process in self._processes.items() if process.exitcode]
        while True:
            try:
                kind, what = self._messages.get(timeout=_SECONDS_BETWEEN_LOOKS if ended else 0)
            except queue.Empty:
                break
            self._take_in(kind, what)
        for name, code in ended:
            raise ModelError(
                f"the recording {name} ended early (exit code {code}); finished batches are kept: add --resume to go on"
            )

    def _take_in(self, kind: str, what: int | str) -> None:
        if isinstance(what, str):
            raise ModelError(what)
        if kind == "written":
            self._left.discard(what)
        elif kind == "decoded":
            self._progress.decoded(what)
        else:
            self._progress.recorded(what)


def _context() -> ForkServerContext | SpawnContext:
    """How processes are begun: a GPU that is in use does not survive a fork."""
    if "forkserver" in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("forkserver")
    return multiprocessing.get_context("spawn")


def _begin_forking() -> None:
    """Begin the process that forks the others, without waiting until it has loaded what they need."""
    if "forkserver" in multiprocessing.get_all_start_methods():
        forkserver.ensure_running()


def _end_forking() -> None:
    """End the process that forks the others, which may be about to fork one that nobody knows of."""
    number = getattr(getattr(forkserver, "_forkserver", None), "_forkserver_pid", None)
    if number is not None:
        with suppress(ProcessLookupError):
            os.kill(number, signal.SIGTERM)


@contextmanager
def _deaf_to_interruptions() -> Iterator[None]:
    """What is begun within never sees Ctrl-C, not even while it loads: a terminal sends it to every process.

    The calling process ends the others. What it has blocked they inherit, and the processes that they fork.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def check_devices(devices: Sequence[str]) -> None:
    """Refuse devices that are not there, or that would not compute the same bits.

    Raises:
        ModelError: one is not there, or they are not of one kind.
    """
    for device in devices:
        check_device(device)
    kinds = {device_name(device): device for device in devices}
    if len(kinds) > 1:
        named = ", ".join(f"{device} is {kind}" for kind, device in kinds.items())
        raise ModelError(
            f"the devices of a recording must be of one kind, or its shards would differ in their last bits; {named}"
        )


def _record(
    recorder: Recorder,
    options: RecordOptions,
    writer: TraceWriter,
    shared: _SharedList,
    messages: "Queue[Message]",
    num_threads: int,
) -> None:
    """The life of a process. As many threads as the first: the last bits of a matrix product depend on them."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(num_threads)
    progress = _MessageProgress(messages)
    try:
        recorder(options, writer, shared.taken(progress.written, _nothing), progress)
    except SimlabError as error:
        messages.put(("failed", f"on {options.device}: {error}"))


def _nothing() -> None:
    """What the other processes do while they wait: the first one notices who was killed, and ends them."""


def _end_with_parent() -> None:
    """A recording that is killed ends whole: nothing goes on to write into its folder."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
