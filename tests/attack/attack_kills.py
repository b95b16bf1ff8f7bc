"""Commands that are killed at any moment and run again, and commands of which two write to one place.

Each runs in a process of its own, forked from one that has the imports behind it, so that kills fall into the work.
"""

import multiprocessing
import os
import shutil
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from random import Random
from typing import TypeVar

import polars as pl
from attack_judge import MOST_SECONDS, PERSON_CAN_FIX

from simlab.cli.main import main
from simlab.traces.artefacts.cost import read_cost_file
from simlab.traces.reader import packaged_trace

FINE, LOST = "fine", "lost"

_FORK = multiprocessing.get_context("fork")
T = TypeVar("T")


Problem = Callable[[Path, Path], str]
"""What is wrong with a folder of outputs, beside that of an undisturbed run; empty where nothing is."""


@dataclass(frozen=True, slots=True)
class Writer:
    """A command that writes.

    Attributes:
        name: as in what is printed.
        words: of the command, for an output.
        out: its name in a folder.
        problem: see `Problem`.
        resumes: it is gone on with ``--resume``; others are run again.
        begins: what is there before, by its name among the inputs; empty: nothing.
        codes: exit codes of a finished command.
    """

    name: str
    words: Callable[[Path], list[str]]
    out: str
    problem: Problem
    resumes: bool = False
    begins: str = ""
    codes: tuple[int, ...] = (0,)

    def fresh(self, folder: Path, inputs: Path) -> Path:
        """A new folder to write in; the output there."""
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        if self.begins:
            shutil.copytree(inputs / self.begins, folder / self.out)
        return folder / self.out


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


def _files(folder: Path) -> dict[str, bytes]:
    """All files, without what says when and where they were made, or is no output."""
    paths = (path for path in folder.rglob("*") if path.is_file() and path.name not in ("said.txt", "recording.json"))
    here = str(folder).encode()
    return {one.relative_to(folder).as_posix(): one.read_bytes().replace(here, b"HERE") for one in paths}


def _same_files(found: Path, undisturbed: Path) -> str:
    here, there = _files(found.parent), _files(undisturbed.parent)
    differing = sorted(name for name in {*here, *there} if here.get(name) != there.get(name))
    return f"differs in {', '.join(differing)}" if differing else ""


def _same_names(found: Path, undisturbed: Path) -> str:
    """Of what has times or numbers of trials in it."""
    here, there = (set(_files(one.parent)) for one in (found, undisturbed))
    return f"differs in {', '.join(sorted(here ^ there))}" if here != there else ""


def _same_rows(found: Path, undisturbed: Path) -> str:
    """Rows in any order, as those that were there before a kill stand first."""
    tables = []
    for path in (found, undisturbed):
        rows = {one.name: pl.read_parquet(one, glob=False) for one in sorted(path.parent.glob("*.parquet"))}
        tables.append({name: table.select(sorted(table.columns)) for name, table in rows.items()})
    here, there = tables
    names = _same_names(found, undisturbed)
    keys = ("policy_id", "cost_id", "sequence", "position", "round")
    differing = [
        name
        for name in (here if not names else ())
        if not _sorted(here[name], keys).equals(_sorted(there[name], keys), null_equal=True)
    ]
    return names or (f"rows of {', '.join(differing)} differ" if differing else "")


def _sorted(rows: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
    return rows.sort([key for key in keys if key in rows.columns], nulls_last=True)


def _problem_of_prices(found: Path, undisturbed: Path) -> str:
    file, other = read_cost_file(found), read_cost_file(undisturbed)
    if not file.is_complete or set(file.samples) != set(other.samples):
        return "cells are missing"
    fewer = [cell for cell in other.samples if len(file.samples[cell]) < len(other.samples[cell])]
    return f"samples of {fewer[:3]} are missing" if fewer else ""


def writers(inputs: Path, address: str) -> list[Writer]:
    """Every command that writes.

    Args:
        inputs: the undamaged ones.
        address: of a server that does what the packaged trace predicts.
    """
    trace, models = ["--trace", str(inputs / "trace")], inputs / "models"
    head = inputs / "heads/treeflash"
    target, draft = ["--target", str(models / "target")], ["--draft", str(models / "drafter")]
    both, priced = [*target, *draft], [*trace, "--cost", str(inputs / "cost.json")]
    few = ["--max-new-tokens", "8", "--batch-size", "2"]
    grid = ["--node-counts", "1,2", "--contexts", "8,16", "--repeats", "2", "--threads", "1"]
    timed = ["--counts", "root-included", "--draft-s", "0.01"]

    def out(*words: object, option: str = "--out") -> Callable[[Path], list[str]]:
        return lambda path: [*map(str, words), option, str(path)]

    def added(option: str, name: str, *more: str) -> Callable[[Path], list[str]]:
        return lambda path: ["record", "--trace", str(path), *target, *more, option, name]

    def rounds(path: Path) -> list[str]:
        return [*replay(path), "--rounds", str(path.with_name("n.parquet"))]

    def stored(path: Path) -> list[str]:
        ranged = ["-p", "ddtree:budget=2~8", "--trials", "4", "--storage", f"sqlite:///{path.with_name('trials.db')}"]
        return ["optimize", *priced, *ranged, "--out", str(path)]

    replay = out("replay", *priced, "-p", "ddtree:budget=2..6")
    search = ("optimize", *priced, "-p", "ddtree:budget=2..6", "--no-halving")
    parts = (inputs / "part0.parquet", inputs / "part.parquet")
    checked = ("crosscheck", "--endpoint", address, "--limit", 2, "--shared-server", "--trace", packaged_trace())
    prompts = ("prompts", "gsm8k", "--from", inputs / "gsm8k.jsonl")
    return [
        Writer("replay --out", replay, "r.parquet", _same_rows, True),
        Writer("replay --rounds", rounds, "r.parquet", _same_rows, True),
        Writer("record", out("record", *both, "--prompts", models / "more.jsonl", *few), "t", _same_files, True),
        Writer("record --add-channel", added("--add-channel", f"treeflash={head},previous=2,top_k=3", *draft),
               "t", _same_files, True, "models/trace"),
        Writer("record --add-draft", added("--add-draft", f"second={models / 'drafter'}"), "t", _same_files, True,
               "models/trace"),
        Writer("profile", out("profile", *both, *grid), "c.json", _problem_of_prices, True),
        Writer("optimize --out", out(*search), "o.json", _same_files),
        Writer("optimize --storage", stored, "o.json", _same_names),
        Writer("optimize --shard", out(*search, "--shard", "0/2", option="--sums"), "s.parquet", _same_files),
        Writer("merge", out("merge", *parts), "m.parquet", _same_files),
        Writer("import", out("import", inputs / "timings.csv", *timed, *trace), "c.json", _same_files),
        Writer("import candidates", out("import", inputs / "candidates.jsonl"), "t", _same_files),
        Writer("confirm", out("confirm", "--trace", models / "trace", *both, "-p", "ddtree:budget=4", "--limit", 2,
                              "--threads", 1), "run", _same_names, True, codes=(0, 1)),
        Writer("report", out("report", inputs / "results.parquet", *trace), "r.html", _same_files),
        Writer("export", out("export", "--format", "conformance", *trace, "-p", "chain"), "c.jsonl", _same_files),
        Writer("export --push", out("export", *trace, option="--push"), "sent", _same_files),
        Writer("train ngram", out("train", "ngram", *trace), "n.parquet", _same_files),
        Writer("train calibration", out("train", "calibration", *trace), "c.json", _same_files),
        Writer("prompts", out(*prompts), "p.jsonl", _same_files),
        Writer("crosscheck", out(*checked), "x", _same_names, codes=(0, 1)),
    ]  # fmt: skip


NEEDS = (
    *("trace", "cost.json", "models", "heads", "results.parquet", "part.parquet", "part0.parquet", "timings.csv"),
    *("gsm8k.jsonl", "candidates.jsonl"),
)
"""Inputs that the writers read."""


def _serve(connection: Connection) -> None:
    """Serve what the packaged trace predicts, until this process is killed."""
    from engine_server import FakeEngine, serving

    from simlab.studies.engines.predictions import predicted_texts
    from simlab.studies.inputs.trace import sample_trace

    trace = sample_trace()
    with serving(FakeEngine(predicted_texts(trace, trace.draft_name(None), 7, 2))) as served:
        connection.send(served.address)
        threading.Event().wait()


@dataclass(slots=True)
class Kills:
    """Kills commands and has them finish; lets two write to one place at once.

    Args:
        inputs: undamaged inputs.
        folder: to work in.
        only: names of the writers that are asked; empty: all.
    """

    inputs: Path
    folder: Path
    only: Sequence[str] = ()
    _whole_s: dict[str, float] = field(default_factory=dict)

    def run(self, num_kills: int, num_races: int, seed: int) -> list[Trial]:
        """Trials until so many commands have been killed, and so many races."""
        shutil.rmtree(self.folder, ignore_errors=True)
        ours, theirs = _FORK.Pipe()
        server = _FORK.Process(target=_serve, args=(theirs,), daemon=True)
        server.start()
        try:
            some = [one for one in writers(self.inputs, ours.recv()) if one.name in (self.only or {one.name})]
            found: list[Trial] = []
            killed, raced = 0, 0
            while killed < num_kills or raced < num_races:
                # Each in turn, so that none is left out.
                number, writer = seed * 1_000_000 + len(found), some[(seed + len(found)) % len(some)]
                chance = Random(f"kill {number}")
                if killed < num_kills:
                    found.append(self._trial(writer, number, chance))
                    killed += found[-1].kills
                if raced < num_races:
                    found.append(self._race(writer, number, chance))
                    raced += 1
            return found
        finally:
            server.kill()
            server.join()

    def _undisturbed(self, writer: Writer) -> Path:
        """The output of a command that nobody disturbs; it is run twice, to know its seconds when all is compiled."""
        folder = self.folder / f"undisturbed {writer.name}"
        for _ in range(0 if writer.name in self._whole_s else 2):
            out, begun = writer.fresh(folder, self.inputs), time.monotonic()
            if (code := ended(start(writer.words(out), folder / "said.txt"))) not in writer.codes:
                raise RuntimeError(f"{writer.name} ends with {code}: {(folder / 'said.txt').read_text()[-1000:]}")
            self._whole_s[writer.name] = time.monotonic() - begun
        return folder / writer.out

    def _trial(self, writer: Writer, number: int, chance: Random) -> Trial:
        undisturbed, folder = self._undisturbed(writer), self.folder / f"{writer.name} {number}"
        out, said, kills = writer.fresh(folder, self.inputs), folder / "said.txt", 0
        name = f"{writer.name}, killed"
        for _ in range(chance.choice((1, 1, 2, 3))):
            process = start(self._words(writer, out), said)
            process.join(chance.random() * self._whole_s[writer.name])
            if not process.is_alive():
                process.join()
                break
            os.kill(process.pid or 0, signal.SIGKILL)
            process.join()
            kills += 1
            is_compared = out.is_file() and writer.problem is _same_files
            if is_compared and _files(out.parent)[out.name] != _files(undisturbed.parent)[out.name]:
                return Trial(name, number, LOST, f"after a kill {out.name} is not whole", kills)
        code = ended(start(self._words(writer, out), said))
        problem = apart(writer.problem, out, undisturbed)
        if code not in writer.codes and (code != PERSON_CAN_FIX or problem):
            problem = f"run again, exit code {code}: {said.read_text()[-300:]!r}; {problem}"
        if not problem:
            shutil.rmtree(folder)
        return Trial(name, number, LOST if problem else FINE, problem, kills)

    def _race(self, writer: Writer, number: int, chance: Random) -> Trial:
        """Two at once: what is there in the end is what one makes, and who was refused was told so in one sentence."""
        undisturbed, folder = self._undisturbed(writer), self.folder / f"{writer.name} race {number}"
        out, said = writer.fresh(folder, self.inputs), [folder / "said.txt", folder.with_suffix(".txt")]
        words = writer.words(out)
        first = start(words, said[0])
        first.join(chance.choice((0.0, 0.0, chance.random())) * self._whole_s[writer.name])
        codes = [ended(one) for one in (first, start(words, said[1]))]
        problem = apart(writer.problem, out, undisturbed)
        if not set(codes) & set(writer.codes) or not set(codes) <= {*writer.codes, PERSON_CAN_FIX}:
            problem = f"exit codes {codes}; {problem}; {said[0].read_text()[-200:]!r} {said[1].read_text()[-200:]!r}"
        for code, path in zip(codes, said, strict=True):
            if code == PERSON_CAN_FIX and not path.read_text().lstrip().startswith("simlab: "):
                problem = f"{problem}; refused with {path.read_text()[-300:]!r}"
        return Trial(f"{writer.name}, two at once", number, LOST if problem else FINE, problem)

    def _words(self, writer: Writer, out: Path) -> list[str]:
        """The command; `simlab profile` resumes only what is there."""
        words = writer.words(out)
        return [*words, "--resume"] if writer.resumes and (out.exists() or "profile" not in words) else words
