"""Many prompts: killed at any moment, and memory that neither text nor prompts make grow."""

import json
import random
import time
from collections.abc import Callable
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import cast

import numpy as np
import pytest
import tiny_models
import torch
from forked_processes import forked_processes
from torch.utils._python_dispatch import TorchDispatchMode

from simlab.cli.main import main
from simlab.draft import Prompt
from simlab.real_runner.decoding.generate import generate
from simlab.real_runner.models import Models, load_models
from simlab.real_runner.record.options import RecordOptions
from simlab.real_runner.record.record import record_text
from simlab.real_runner.record.sources import AnsweredTurn

NUM_PROMPTS, BATCH_SIZE = 60, 4
NUM_SHARDS = NUM_PROMPTS // BATCH_SIZE


@pytest.fixture(scope="module")
def processes() -> ForkServerContext:
    return forked_processes()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("scale")
    tiny_models.make_pair(made)
    tiny_models.write_prompts(made / "prompts.jsonl", NUM_PROMPTS)
    assert main(command(made, made / "whole", "cpu")) == 0
    return made


def command(folder: Path, out: Path, devices: str) -> list[str]:
    models = ["--target", str(folder / "target"), "--draft", str(folder / "drafter")]
    text = ["--prompts", str(folder / "prompts.jsonl"), "--max-new-tokens", "48", "--temperature", "0.8"]
    running = ["--batch-size", str(BATCH_SIZE), "--device", devices]
    return ["record", *models, *text, "--out", str(out), "--resume", *running]


def bytes_of(folder: Path) -> dict[str, bytes]:
    files = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    files.pop("recording.json", None)
    return files


def num_done(out: Path) -> int:
    return len(list((out / "unfinished").glob("sequences-*.parquet")))


@pytest.mark.thorough
def test_killed_again_and_again(processes: ForkServerContext, folder: Path, tmp_path: Path) -> None:
    """Each time at some moment after a few more shards."""
    out, chance, kills = tmp_path / "trace", random.Random(3), 3
    for _ in range(kills):
        process = processes.Process(target=tiny_models.run_simlab, args=(command(folder, out, "cpu"),))
        process.start()
        least = num_done(out) + chance.randrange(1, 4)
        while num_done(out) < least:
            assert process.is_alive()
            time.sleep(0.001)
        time.sleep(chance.random() * 0.02)
        process.kill()
        process.join()
        assert not (out / "manifest.json").exists()
    assert num_done(out) < NUM_SHARDS
    assert main(command(folder, out, "cpu")) == 0
    assert bytes_of(out) == bytes_of(folder / "whole")
    said = json.loads((out / "recording.json").read_text())
    assert said["shards_from_an_earlier_run"] >= kills
    assert said["positions_per_s"] > 0


class Laws(TorchDispatchMode):
    """How many rows of a whole vocabulary each tensor had, of those made while this is entered."""

    def __init__(self, vocabulary: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.vocabulary = vocabulary
        self.rows: list[int] = [0]

    def __torch_dispatch__(
        self, func: Callable[..., object], types: object, args: tuple[object, ...] = (), kwargs: object = None
    ) -> object:
        made = func(*args, **cast(dict[str, object], kwargs or {}))
        for one in made if isinstance(made, tuple | list) else [made]:
            if isinstance(one, torch.Tensor) and one.dim() > 1 and one.shape[-1] == self.vocabulary:
                self.rows.append(one.numel() // self.vocabulary)
        return made


@pytest.fixture(scope="module")
def models(folder: Path) -> Models:
    return load_models(str(folder / "target"), str(folder / "drafter"), "float32", "cpu")


def options_of(folder: Path) -> RecordOptions:
    return RecordOptions(target="-", draft="-", out=folder / "-", prompts=folder / "prompts.jsonl")


def most_rows(folder: Path, models: Models, length: int) -> int:
    """Laws in the largest tensor of recording one text."""
    generator = np.random.default_rng(length)
    prompt = Prompt("p", "d", 0, 0, generator.integers(5, 100, 8).astype(np.int32))
    answered = AnsweredTurn(prompt, generator.integers(5, 100, length).astype(np.int32), "length")
    with Laws(models.target.vocab_size) as seen:
        record_text(options_of(folder), models, 0, answered)
    return int(max(seen.rows))


def test_a_longer_text_has_no_more_laws_at_a_time(folder: Path, models: Models) -> None:
    """A pass over a whole text would make text x depth of them."""
    blocks = 64 * models.drafter.config.depth
    assert [most_rows(folder, models, length) for length in (120, 200, 400)] == [blocks] * 3


def test_decoding_makes_the_laws_of_the_batch_alone(folder: Path, models: Models) -> None:
    """The law after each prompt is made, and none of the places before."""
    prompts = [list(range(5, 5 + length)) for length in (20, 60, 40)]
    with Laws(models.target.vocab_size) as seen:
        generate(models.target, prompts, [0, 0, 0], options_of(folder).sampling, 4)
    assert max(seen.rows) == len(prompts)
