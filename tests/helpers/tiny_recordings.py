"""A recording of tiny random models, whose bytes several tests hold against each other."""

import json
from pathlib import Path

import numpy as np
import tiny_models

from simlab.draft import Prompt
from simlab.real_runner.record.options import RecordOptions
from simlab.real_runner.record.prompts import read_prompts, render
from simlab.real_runner.record.record import record
from simlab.real_runner.targets.model import Target


def options_of(folder: Path, out: Path) -> RecordOptions:
    """Shards of two prompts, two turns each, some decided by noise; models and prompts are in a folder."""
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


def typed(folder: Path, out: Path, *more: str) -> list[str]:
    """The same recording as a command, which does not go on by itself."""
    models = ["--target", str(folder / "target"), "--draft", str(folder / "drafter")]
    text = ["--prompts", str(folder / "prompts.jsonl"), "--max-new-tokens", "32", "--temperature", "0.8"]
    return ["record", *models, *text, "--out", str(out), "--batch-size", "2", *more]


def bytes_of(folder: Path) -> dict[str, bytes]:
    """All files of a trace but the one that says how long it took."""
    files = files_of(folder)
    files.pop("recording.json")
    return files


def files_of(folder: Path) -> dict[str, bytes]:
    """All files of a trace."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def make_models(folder: Path, num_prompts: int) -> Path:
    """A target, a drafter and prompts of two turns, in a folder."""
    tiny_models.make_pair(folder)
    tiny_models.write_prompts(folder / "prompts.jsonl", num_prompts, num_turns=2)
    return folder


def given_options(folder: Path, out: Path, batch_size: int = 2) -> RecordOptions:
    """Texts that were given, in ``given.jsonl``, of which dense candidates are kept."""
    return RecordOptions(
        target=str(folder / "target"),
        draft=str(folder / "drafter"),
        completions=folder / "given.jsonl",
        out=out,
        batch_size=batch_size,
        min_width=12,
        exact_budget=20,
    )


def rendered_prompts(target: Target, folder: Path, num: int) -> list[Prompt]:
    """Prompts of `tiny_models.write_prompts` as a target reads them."""
    records = read_prompts(tiny_models.write_prompts(folder / "prompts.jsonl", num))
    ids = [np.array(render(target.tokenizer, record.conversation, {}), np.int32) for record in records]
    return [Prompt(one.prompt_id, one.dataset, 0, 0, own) for one, own in zip(records, ids, strict=True)]


def record_given(folder: Path, num_texts: int, batch_size: int = 2) -> tuple[Path, Path]:
    """A target and a drafter, and a trace in ``trace`` of texts of 1, 4, 7, ... tokens; returns the models."""
    pair = tiny_models.make_pair(folder)
    rows = [
        {"prompt_token_ids": [9, 10, 20 + i], "token_ids": [30 + i, *range(40, 40 + 3 * i)]} for i in range(num_texts)
    ]
    (folder / "given.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    record(given_options(folder, folder / "trace", batch_size))
    return pair
