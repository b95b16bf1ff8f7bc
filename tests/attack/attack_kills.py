"""Commands that are killed at any moment and resumed.

Each runs in a process of its own, forked from one that has the imports behind it, so that kills fall into the work.
"""

import multiprocessing
import os
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from random import Random
from typing import TypeVar

import polars as pl
from attack_judge import MOST_SECONDS

from simlab.cli.main import main
from simlab.traces.artefacts.cost import read_cost_file
from simlab.traces.results.files import read_results

FINE, LOST = "fine", "lost"

_FORK = multiprocessing.get_context("fork")
T = TypeVar("T")
_KEY = ("policy_id", "draft_id", "text_id", "cost_id", "sequence")


@dataclass(frozen=True, slots=True)
class Writer:
    """A command that writes, and goes on where it was ended.

    Attributes:
        name: as in what is printed.
        words: of the command, for an output.
        out: its name in a folder.
        problem: what is wrong with an output, beside that of an undisturbed run; empty where nothing is.
    """

    name: str
    words: Callable[[Path], list[str]]
    out: str
    problem: Callable[[Path, Path], str]


@dataclass(frozen=True, slots=True)
class Trial:
    """One command killed, and what came of it."""

    name: str
    seed: int
    outcome: str
    why: str
    kills: int = 0


def _child(words: Sequence[str], said: Path) -> None:
    """Run a command with output into a file, and keep every row as soon as it is made."""
    from simlab.studies.replay import run as replay_run

    replay_run.KEEP_EVERY_ROWS = 1
    replay_run.ROOTS_AT_ONCE = 1
    with said.open("w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
        try:
            code = main(list(words))
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 1
        except BaseException:  # noqa: BLE001 - as the interpreter does
            traceback.print_exc()
            code = 1
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


def start(words: Sequence[str], said: Path) -> BaseProcess:
    """A process that runs a command."""
    process = _FORK.Process(target=_child, args=(words, said))
    process.start()
    return process


def ended(process: BaseProcess) -> int:
    """The exit code of a process, which is killed where it takes too long."""
    process.join(2 * MOST_SECONDS)
    if process.is_alive():
        process.kill()
        process.join()
    return -9 if process.exitcode is None else process.exitcode


def apart(function: Callable[..., T], *arguments: object) -> T:
    """What a function gives back in a process of its own, so that this one has no threads and can be forked."""
    ours, theirs = _FORK.Pipe()
    process = _FORK.Process(target=lambda: theirs.send(function(*arguments)))
    process.start()
    theirs.close()
    try:
        found: T = ours.recv()
    finally:
        process.join()
    return found


def _rows(path: Path) -> pl.DataFrame:
    return read_results(path).sort("policy_id", "cost_id", "sequence", nulls_last=True)


def _problem_of_results(found: Path, undisturbed: Path) -> str:
    here, there = _rows(found), _rows(undisturbed)
    if not here.equals(there):
        return f"{here.height} rows, an undisturbed replay has {there.height}, or they differ"
    strays = sorted(path.name for path in found.parent.iterdir() if path.name != found.name and path.suffix != ".txt")
    return f"left {', '.join(strays)}" if strays else ""


def _content(folder: Path) -> dict[str, bytes]:
    paths = (path for path in folder.rglob("*") if path.is_file() and path.name != "recording.json")
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def _problem_of_trace(found: Path, undisturbed: Path) -> str:
    here, there = _content(found), _content(undisturbed)
    differing = sorted(name for name in {*here, *there} if here.get(name) != there.get(name))
    return f"differs in {', '.join(differing)}" if differing else ""


def _problem_of_prices(found: Path, undisturbed: Path) -> str:
    file, other = read_cost_file(found), read_cost_file(undisturbed)
    if not file.is_complete or set(file.samples) != set(other.samples):
        return "cells are missing"
    fewer = [cell for cell in other.samples if len(file.samples[cell]) < len(other.samples[cell])]
    return f"samples of {fewer[:3]} are missing" if fewer else ""


def writers(inputs: Path) -> list[Writer]:
    """The commands that can be resumed."""
    trace, models = inputs / "trace", inputs / "models"
    both = ["--target", str(models / "target"), "--draft", str(models / "drafter")]
    replay = ["replay", "--trace", str(trace), "--cost", str(inputs / "cost.json"), "-p", "ddtree:budget=2..6"]
    record = ["record", *both, "--prompts", str(models / "more.jsonl"), "--max-new-tokens", "8", "--batch-size", "2"]
    grid = ["--node-counts", "1,2", "--contexts", "8,16", "--repeats", "2", "--threads", "1"]
    return [
        Writer("replay", lambda out: [*replay, "--out", str(out), "--resume"], "r.parquet", _problem_of_results),
        Writer("record", lambda out: [*record, "--out", str(out), "--resume"], "trace", _problem_of_trace),
        Writer("profile", lambda out: ["profile", *both, *grid, "--out", str(out)], "c.json", _problem_of_prices),
    ]


@dataclass(slots=True)
class Kills:
    """Kills commands and resumes them.

    Args:
        inputs: undamaged inputs.
        folder: to work in.
    """

    inputs: Path
    folder: Path

    def run(self, num_kills: int, seed: int) -> list[Trial]:
        """Trials until so many commands have been killed."""
        shutil.rmtree(self.folder, ignore_errors=True)
        some = writers(self.inputs)
        whole_s = {one.name: self._undisturbed(one) for one in some}
        found: list[Trial] = []
        while sum(trial.kills for trial in found) < num_kills:
            number = seed * 1_000_000 + len(found)
            chance = Random(f"kill {number}")
            (writer,) = chance.choices(some, (6, 3, 1))
            found.append(self._trial(writer, number, chance, whole_s[writer.name]))
        return found

    def _undisturbed(self, writer: Writer) -> float:
        """Run a command that nobody kills; returns its seconds, the second time, when all is compiled."""
        seconds = 0.0
        for _ in range(2):
            folder = self.folder / f"undisturbed-{writer.name}"
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            begun = time.monotonic()
            if code := ended(start(writer.words(folder / writer.out), folder / "said.txt")):
                raise RuntimeError(f"{writer.name} ends with {code}: {(folder / 'said.txt').read_text()[-1000:]}")
            seconds = time.monotonic() - begun
        return seconds

    def _trial(self, writer: Writer, number: int, chance: Random, whole_s: float) -> Trial:
        folder = self.folder / f"{writer.name}-{number}"
        folder.mkdir(parents=True)
        out, said, kills = folder / writer.out, folder / "said.txt", 0
        for _ in range(chance.choice((1, 1, 2, 3))):
            process = start(self._words(writer, out), said)
            process.join(chance.random() * whole_s)
            if not process.is_alive():
                break
            os.kill(process.pid or 0, signal.SIGKILL)
            process.join()
            kills += 1
        code = ended(start(self._words(writer, out), said))
        if code != 0:
            return Trial(writer.name, number, LOST, f"resumed, exit code {code}: {said.read_text()[-300:]!r}", kills)
        problem = apart(writer.problem, out, self.folder / f"undisturbed-{writer.name}" / writer.out)
        if not problem:
            shutil.rmtree(folder)
        return Trial(writer.name, number, LOST if problem else FINE, problem, kills)

    def _words(self, writer: Writer, out: Path) -> list[str]:
        """The command; `simlab profile` resumes only what is there."""
        words = writer.words(out)
        return [*words, "--resume"] if "--resume" not in words and out.exists() else words
