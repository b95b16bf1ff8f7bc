"""Commands that are killed at any moment and run again, and commands of which two write to one place."""

import contextlib
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random

import polars as pl
from attack_attempt import Place
from attack_cases import ADDRESS, HARMLESS, LOST, Finding
from attack_judge import PERSON_CAN_FIX, codes_of
from attack_run import MOST_SECONDS, Held

from simlab.traces.artefacts.cost import read_cost_file
from simlab.traces.reader import packaged_trace

KILLED, RACED = "killed", "two-at-once"

_NO_OUTPUTS = ("stdout", "stderr", "second", "scratch", "recording.json")
"""What lies beside outputs, or says when they were made."""

_INPUTS = "INPUTS/"
_PACKAGED = "PACKAGED"
"""Stands for the trace that is installed with simlab, which the server's engine predicts."""

Same = Callable[[Path], object]
"""What of an output must be as if nobody had disturbed the command."""


def _bytes(path: Path) -> object:
    """All of it, with one word for the folder that it stands in."""
    return path.read_bytes().replace(str(path.parent).encode(), b"HERE")


def _name(_path: Path) -> object:
    """No more than that it is there, as it has times or numbers of trials in it."""
    return None


def _rows(path: Path) -> object:
    """Rows in any order, as those that were there before a kill stand first."""
    rows = pl.read_parquet(path, glob=False)
    keys = [key for key in ("policy_id", "cost_id", "sequence", "position", "round") if key in rows.columns]
    return rows.select(sorted(rows.columns)).sort(keys).to_dict(as_series=False)


def _cells(path: Path) -> object:
    """The cells of a cost file of two runs each."""
    file = read_cost_file(path)
    return file.is_complete, {cell: min(len(samples), 2) for cell, samples in file.samples.items()}


def _outputs(folder: Path, same: Same) -> dict[str, object]:
    """What must be the same, by the names of the outputs."""
    paths = {path.relative_to(folder): path for path in folder.rglob("*") if path.is_file()}
    kept = {name: path for name, path in paths.items() if not {name.parts[0], name.name} & set(_NO_OUTPUTS)}
    return {name.as_posix(): same(path) for name, path in kept.items()}


@dataclass(frozen=True, slots=True)
class Writer:
    """A command that writes.

    Attributes:
        command: behind ``simlab``; words that begin with ``INPUTS/`` are undamaged inputs, others are of its folder.
        same: see `Same`.
        begins: the input that is there before, as ``t``; empty: nothing.
    """

    command: str
    same: Same = _bytes
    begins: str = ""

    @property
    def out(self) -> str:
        """The name of what it writes."""
        words = self.command.split()
        options = [words.index(option) for option in ("--out", "--sums", "--push") if option in words]
        return "t" if self.begins else words[options[0] + 1]

    @property
    def resumes(self) -> bool:
        """Whether it is gone on with ``--resume``; others are run again."""
        words = self.command.split()
        return words[0] in ("record", "profile", "confirm") or (words[0] == "replay" and "--out" in words)


_PRICED = "--trace INPUTS/trace --cost INPUTS/cost.json"
_MODELS = "--target INPUTS/models/target --draft INPUTS/models/drafter"
_REPLAY = f"replay {_PRICED} -p ddtree:budget=2..6 --out r.parquet"
_SEARCH = f"optimize {_PRICED} -p ddtree:budget=2..6 --no-halving"
_RANGED = f"optimize {_PRICED} -p ddtree:budget=2~8 --trials 4 --storage sqlite:///trials.db --out o.json"
_ADDED = "record --trace t --target INPUTS/models/target"
_TRANSITIONS = "--draft INPUTS/models/drafter --add-channel treeflash=INPUTS/heads/treeflash,previous=2,top_k=3"

WRITERS = (
    Writer(_REPLAY, _rows),
    Writer(f"{_REPLAY} --rounds n.parquet", _rows),
    Writer(f"record {_MODELS} --prompts INPUTS/models/more.jsonl --max-new-tokens 8 --batch-size 2 --out t"),
    Writer(f"{_ADDED} {_TRANSITIONS}", begins="models/trace"),
    Writer(f"{_ADDED} --add-draft second=INPUTS/models/drafter", begins="models/trace"),
    Writer(f"profile {_MODELS} --node-counts 1,2 --contexts 8,16 --repeats 2 --threads 1 --out c.json", _cells),
    Writer(f"{_SEARCH} --out o.json"),
    Writer(_RANGED, _name),
    Writer(f"{_SEARCH} --shard 0/2 --sums s.parquet"),
    Writer("merge INPUTS/part0.parquet INPUTS/part.parquet --out m.parquet"),
    Writer("import INPUTS/timings.csv --counts root-included --draft-s 0.01 --trace INPUTS/trace --out c.json"),
    Writer("import INPUTS/candidates.jsonl --out t"),
    Writer(f"confirm --trace INPUTS/models/trace {_MODELS} -p ddtree:budget=4 --limit 2 --threads 1 --out run",
           _name),
    Writer("report INPUTS/results.parquet --trace INPUTS/trace --out r.html"),
    Writer("export --format conformance --trace INPUTS/trace -p chain --out c.jsonl"),
    Writer("export --trace INPUTS/trace --push sent"),
    Writer("train ngram --trace INPUTS/trace --out n.parquet"),
    Writer("train calibration --trace INPUTS/trace --out c.json"),
    Writer("prompts gsm8k --from INPUTS/gsm8k.jsonl --out p.jsonl"),
    Writer(f"crosscheck --endpoint {ADDRESS} --limit 2 --shared-server --trace {_PACKAGED} --out x", _name),
)  # fmt: skip
"""Every command that writes."""

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


@contextlib.contextmanager
def _served(command: str) -> Iterator[str]:
    """The address of such a server, in a process of its own, where a command asks for one."""
    if ADDRESS not in command:
        yield ""
        return
    ours, theirs = Pipe(duplex=False)
    if (pid := os.fork()) == 0:
        try:
            _serve(theirs)
        finally:
            os._exit(1)
    try:
        yield ours.recv()
    finally:
        os.kill(pid, 9)
        os.waitpid(pid, 0)


@dataclass(frozen=True, slots=True)
class _Trial:
    """A writer in folders of its own, in a process that starts no threads before it compares."""

    writer: Writer
    place: Place
    address: str

    def fresh(self, name: str) -> Path:
        """A folder to write in, with what is there before."""
        folder = self.place.slot(name)
        if self.writer.begins:
            shutil.copytree(self.place.inputs / self.writer.begins, folder / self.writer.out)
        return folder

    def begin(self, folder: Path, slot: Path | None = None, resume: bool = False) -> Held:
        """Start the command in a folder, and let it go on where it was stopped if it can."""
        inputs, held = f"{self.place.inputs}/", Held(self.place.main)
        replaced = {_INPUTS: inputs, ADDRESS: self.address, _PACKAGED: str(packaged_trace())}
        words = self.writer.command.split()
        for name, text in replaced.items():
            words = [word.replace(name, text) for word in words]
        # `simlab profile` resumes only what is there.
        goes_on = resume and self.writer.resumes and ("profile" not in words or (folder / self.writer.out).exists())
        held.start([*words, "--resume"] if goes_on else words, folder, slot or folder)
        return held

    def undisturbed(self, name: str) -> float:
        """Run it where nobody disturbs it, twice; the seconds that it takes when all is compiled."""
        seconds = 0.0
        for _ in range(2):
            folder, begun = self.fresh(name), time.monotonic()
            code, _ = self.begin(folder, resume=True).end(2 * MOST_SECONDS)
            seconds = time.monotonic() - begun
            if code not in codes_of(self.writer.command.split()[0]):
                raise RuntimeError(f"`{self.writer.command}`: {code} {(folder / 'stderr').read_text()[-1000:]}")
        return seconds


def attempt_kill(kind: str, seed: int, place: Place) -> Finding:
    """Kill a command up to three times and run it again, or run two at once; each in turn, so that none is left out."""
    from simlab.studies.replay import run as replay_run

    replay_run.KEEP_EVERY_ROWS = replay_run.ROOTS_AT_ONCE = 1  # every row is kept as soon as it is made
    number, chance = seed % len(WRITERS), Random(f"{kind}:{seed}")
    writer, name = WRITERS[number], f"{kind}-{seed}"
    codes, kills = codes_of(writer.command.split()[0]), 0
    with _served(writer.command) as address:
        trial = _Trial(writer, place, address)
        whole_s = place.kept(f"undisturbed-{number}", lambda: trial.undisturbed(f"undisturbed-{number}"))
        undisturbed, folder = place.folder / "cases" / f"undisturbed-{number}", trial.fresh(name)
        path, problem = folder / writer.out, ""
        if kind == KILLED:
            for _ in range(chance.choice((1, 1, 2, 3))):
                code, _ = trial.begin(folder, resume=True).end(chance.random() * whole_s)
                kills += code < 0
                if writer.same is _bytes and path.is_file() and _bytes(path) != _bytes(undisturbed / writer.out):
                    problem = f"after a kill {writer.out} is not whole"
            ends = [trial.begin(folder, resume=True).end(2 * MOST_SECONDS)[0]]
        else:
            first = trial.begin(folder, resume=True)
            time.sleep(chance.choice((0.0, 0.0, chance.random())) * whole_s)
            second = trial.begin(folder, folder / "second")
            ends = [held.end(2 * MOST_SECONDS)[0] for held in (first, second)]
    said = [(folder / part / "stderr").read_text()[-300:] for part in ("", "second")[: len(ends)]]
    here, there = (_outputs(outputs, writer.same) for outputs in (folder, undisturbed))
    differing = [name for name in sorted({*here, *there}) if name not in here or here[name] != there.get(name, b"")]
    problem = problem or (f"differs in {', '.join(differing)}" if differing else "")
    is_well = set(ends) <= {*codes, PERSON_CAN_FIX} and (kind == KILLED or set(ends) & set(codes))
    is_told = [end != PERSON_CAN_FIX or "simlab: " in text for end, text in zip(ends, said, strict=True)]
    if not is_well or not all(is_told):
        problem = f"exit codes {ends}; {problem}; {said!r}"
    if not problem:
        shutil.rmtree(folder)
    return Finding(kind, seed, LOST if problem else HARMLESS, problem, kind, writer.command, kills=kills)
