"""What other processes run in the tests of several devices: they import it by this name, which a test file has not."""

import inspect
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import tiny_models

from simlab.errors import ModelError
from simlab.real_runner.record.devices import OtherDevices
from simlab.real_runner.record.options import RecordOptions
from simlab.real_runner.record.progress import ProgressReporter
from simlab.traces.writer import TraceWriter


def options_of(folder: Path, out: Path) -> RecordOptions:
    """Twelve shards of two prompts, two turns each."""
    return RecordOptions(
        target=str(folder / "target"),
        draft=str(folder / "drafter"),
        prompts=folder / "prompts.jsonl",
        out=out,
        max_new_tokens=32,
        temperature=0.8,
        batch_size=2,
        resume=True,
    )


def takes_nothing(_others: OtherDevices) -> Iterator[int]:
    """A first process that leaves all shards to the others."""
    return iter(())


def run_the_others_only(arguments: list[str]) -> None:
    """The command line with a first process that records nothing itself."""
    OtherDevices.taken = takes_nothing  # type: ignore[method-assign, assignment]
    tiny_models.run_simlab(arguments)


class Silent:
    """Nobody looks."""

    def decoded(self, num_tokens: int) -> None:
        pass

    def recorded(self, num_positions: int) -> None:
        pass


def refuses(_options: RecordOptions, _writer: TraceWriter, _numbers: Iterator[int], _told: ProgressReporter) -> None:
    raise ModelError("the prompts are others now")


def dies(_options: RecordOptions, _writer: TraceWriter, numbers: Iterator[int], _told: ProgressReporter) -> None:
    next(numbers)
    os._exit(9)


def dies_holding_the_list(
    _options: RecordOptions, _writer: TraceWriter, numbers: Iterator[int], _told: ProgressReporter
) -> None:
    inspect.getgeneratorlocals(numbers)["self"].num_taken.get_lock().acquire()  # type: ignore[arg-type]
    os._exit(9)


def stays(_options: RecordOptions, writer: TraceWriter, numbers: Iterator[int], _told: ProgressReporter) -> None:
    """Leave notes of who it is and whether an interruption would reach it, and never end."""
    (writer._folder / "blocked").write_text(str(signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, [])))
    (writer._folder / "who").write_text(str(os.getpid()))
    time.sleep(600)


def others(folder: Path, out: Path, recorder: object, num: int = 3) -> OtherDevices:
    options = replace(options_of(folder, out), more_devices=("cpu",))
    writer = TraceWriter.__new__(TraceWriter)
    writer._folder = out
    return OtherDevices(options, writer, range(num), recorder, Silent())  # type: ignore[arg-type]


def hold(folder: Path, out: Path) -> None:
    """A first process with another that never ends, and that begins what forks it itself."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    with others(folder, out, stays) as o:
        o.wait()


def run_and_tell_who(arguments: list[str], path: Path) -> None:
    """The command line; a file gets the process ids of the other devices."""
    real = OtherDevices.__enter__

    def told(self: OtherDevices) -> OtherDevices:
        entered = real(self)
        half = path.with_suffix(".partial")
        half.write_text(" ".join(str(process.pid) for process in self._processes.values()))
        half.rename(path)
        return entered

    OtherDevices.__enter__ = told  # type: ignore[method-assign]
    tiny_models.run_simlab(arguments)
