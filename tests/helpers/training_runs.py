"""Runs of ``simlab train`` in all its kinds for tests: texts, arguments, bytes, ends.

As a program (``python tests/helpers/training_runs.py RUNS SEED ARGUMENT...``) it makes one run that nothing
interrupts and one that is killed again and again, each in a process of its own.
"""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from tiny_models import make_drafter, make_target, write_prompts

from simlab.cli.main import main
from simlab.real_runner.train import features
from simlab.real_runner.train import text as training_text

NUM_KILLS = 10
_OUTSIDE = ("timing.jsonl",)
LAW = ("--labels", "law", "--law-roots", "40")
"""What a scorer learns from the target's own words at all nodes."""


def write_table(path: Path, num_texts: int = 12, seed: int = 0) -> Path:
    """Texts that repeat themselves, so that there is something to learn, as token ids."""
    chance = random.Random(seed)
    rows = []
    for _ in range(num_texts):
        pattern = [chance.randrange(5, 30) for _ in range(chance.randrange(2, 5))]
        prompt = [chance.randrange(5, 100) for _ in range(chance.randrange(1, 6))]
        rows.append((prompt, (pattern * 12)[: chance.randrange(12, 30)]))
    pl.DataFrame({"prompt_ids": [row[0] for row in rows], "text_ids": [row[1] for row in rows]}).write_parquet(path)
    return path


def write_completions(path: Path, num_texts: int = 8) -> Path:
    """Prompts with their answers, as text."""
    rows = [{"prompt": "say " + "abc"[i % 3], "completion": "abc"[i % 3] * (6 + i)} for i in range(num_texts)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def arguments(target: Path, out: Path, *more: str, steps: int = 12) -> list[str]:
    """A run of seconds."""
    sizes = ["--block-size", "4", "--layers", "1", "--steps", str(steps), "--eval-every", "3"]
    sizes += [] if "--taps" in more else ["--taps", "0,1,2"]
    plan = ["--sequences", "2", "--roots", "4", "--warmup-steps", "2", "--head-tokens", "60"]
    generated = ["--max-new-tokens", "16", "--dev-limit", "4"]
    return ["train", "dflash", "--target", str(target), "--out", str(out), *sizes, *plan, *generated, *more]


def head_arguments(folder: Path, out: Path, *more: str, steps: int = 12) -> list[str]:
    """A run of seconds of a head, on the models and texts of `make_files`."""
    models = ["--target", str(folder / "target"), "--draft", str(folder / "drafter"), *texts(folder)]
    sizes = ["--out", str(out), "--inner-size", "24", "--steps", str(steps), "--eval-every", "3", "--held-out", "0.25"]
    plan = ["--sequences", "2", "--roots", "6", "--warmup-steps", "2", "--head-tokens", "60"]
    return ["train", "treeflash", *models, *sizes, *plan, *more]


def scorer_arguments(folder: Path, out: Path, *more: str, steps: int = 12) -> list[str]:
    """A run of seconds of a scorer, on the models and texts of `make_files`."""
    models = ["--target", str(folder / "target"), "--draft", str(folder / "drafter"), *texts(folder)]
    sizes = ["--out", str(out), "--beam", "4", "--extensions", "6", "--steps", str(steps), "--eval-every", "3"]
    plan = ["--sequences", "2", "--roots", "6", "--warmup-steps", "2", "--held-out", "0.25"]
    return ["train", "taps", *models, *sizes, *plan, *more]


def eagle3_arguments(folder: Path, out: Path, *more: str, steps: int = 12) -> list[str]:
    """A run of seconds of an EAGLE-3 head, on the target and texts of `make_files`."""
    models = ["--target", str(folder / "target"), *texts(folder), "--draft-vocab", "40"]
    models += [] if "--taps" in more else ["--taps", "0,2"]
    sizes = ["--out", str(out), "--passes", "3", "--steps", str(steps), "--eval-every", "3", "--held-out", "0.25"]
    plan = ["--sequences", "2", "--roots", "6", "--warmup-steps", "2"]
    return ["train", "eagle3", *models, *sizes, *plan, *more]


def self_arguments(folder: Path, out: Path, *more: str, steps: int = 12) -> list[str]:
    """A run of seconds of an adapter, on the target and texts of `make_files`."""
    models = ["--target", str(folder / "target"), *texts(folder), "--masks", "3", "--rank", "4"]
    sizes = ["--out", str(out), "--steps", str(steps), "--eval-every", "3", "--held-out", "0.25"]
    plan = ["--sequences", "2", "--roots", "6", "--warmup-steps", "2", "--head-tokens", "60"]
    return ["train", "self", *models, *sizes, *plan, *more]


def make_files(folder: Path) -> Path:
    """Tiny targets, a drafter, a table of texts, completions, prompts and dev prompts."""
    make_target(folder / "target")
    make_target(folder / "qwen", family="qwen3")
    make_drafter(folder / "drafter")
    write_table(folder / "texts.parquet")
    write_completions(folder / "texts.jsonl")
    write_prompts(folder / "prompts.jsonl", 5)
    write_prompts(folder / "dev.jsonl", 4)
    return folder


def texts(folder: Path) -> list[str]:
    """The arguments that name the texts."""
    return ["--text", str(folder / "texts.parquet")]


def dev(folder: Path) -> list[str]:
    """The arguments that name the dev prompts."""
    return ["--dev", str(folder / "dev.jsonl")]


def finished(folder: Path) -> Path:
    """A finished run."""
    out = folder / "trained"
    if main(arguments(folder / "target", out, *texts(folder), *dev(folder))) != 0:
        raise RuntimeError("the run that other tests need has failed")
    return out


def curve_of(run: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads((run / "curve.json").read_text())
    return rows


class InterruptedWrites:
    """Writes that are counted, and of which one is cut short as by a kill.

    Attributes:
        num: writes since `stop_at` was set last.
        stop_at: the write that is cut; 0: none.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.num, self.stop_at = 0, 0
        flush = os.fsync

        def interrupting(file: int) -> None:
            self.num += 1
            if self.num == self.stop_at:
                os.ftruncate(file, 3)
                raise KeyboardInterrupt
            flush(file)

        monkeypatch.setattr(os, "fsync", interrupting)

    def cut(self, stop_at: int) -> None:
        """Count anew, and cut that write."""
        self.num, self.stop_at = 0, stop_at


def content(run: Path) -> dict[str, bytes]:
    """Every file that must not depend on interruptions."""
    return {
        str(path.relative_to(run)): path.read_bytes()
        for path in sorted(run.rglob("*"))
        if path.is_file() and path.name not in _OUTSIDE and path.suffix != ".partial"
    }


def small_files() -> None:
    """Many shards of few texts, so that there are many moments at which a run can be killed."""
    features.SEQUENCES_PER_SHARD = 3
    training_text.PROMPTS_PER_FILE = 2


def killed_and_resumed(runs: Path, seed: int, typed: Sequence[str]) -> None:
    """``runs/unbroken/run`` and ``runs/killed/run``; prints where the kills fell, as JSON."""
    small_files()
    # What is compiled on the first import is compiled before a run is timed.
    subprocess.run([sys.executable, "-c", "import simlab.cli.train"], check=True)
    unbroken, killed = runs / "unbroken" / "run", runs / "killed" / "run"
    started = time.perf_counter()
    if _child(unbroken, typed, None) != 0:
        raise SystemExit("the unbroken run failed")
    whole_s = time.perf_counter() - started
    chance = random.Random(seed)
    found = []
    for number in range(NUM_KILLS):
        before = _finished(killed)
        # The first one falls early, so that it is no run that a quieter machine has finished by then.
        _child(killed, typed, chance.uniform(0, 0.6 if number else 0.2) * whole_s)
        after = _finished(killed)
        if any(after.get(name) != when for name, when in before.items()):
            raise SystemExit("a finished file was made again")
        found.append(sorted(path.name for path in killed.glob("*")))
    if _child(killed, typed, None) != 0:
        raise SystemExit("the resumed run failed")
    print(json.dumps(found))


def _finished(run: Path) -> dict[str, int]:
    """Texts and hidden states that are done, and when they were written."""
    names = ("text-*.json", "features-*.safetensors")
    return {str(path): path.stat().st_mtime_ns for name in names for path in run.rglob(name)}


def _child(out: Path, typed: Sequence[str], kill_after_s: float | None) -> int:
    child = os.fork()
    if child == 0:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        os._exit(main([*typed, "--out", str(out), "--resume"]))
    if kill_after_s is not None:
        time.sleep(kill_after_s)
        os.kill(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


if __name__ == "__main__":
    import simlab.real_runner.train.train  # noqa: F401  # before the forks: it takes seconds

    killed_and_resumed(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
