"""The text a drafter learns from: a file of it, or the target's own answers to prompts."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from tqdm import tqdm

from simlab.errors import PromptError
from simlab.real_runner.completions import read_completions
from simlab.real_runner.dflash_files import write_json
from simlab.real_runner.features import TrainingText
from simlab.real_runner.generate import generate
from simlab.real_runner.prompts import read_prompts, render
from simlab.real_runner.sources import given_turns
from simlab.real_runner.target import Target
from simlab.sampling import Sampling, noise_key
from simlab.traces.texts import read_text_table

_PROMPTS_PER_FILE = 64


def given_texts(path: Path, target: Target) -> list[TrainingText]:
    """Texts from a Parquet table of token ids, or from a JSONL file of completions.

    Raises:
        PromptError: the file cannot be used, or holds ids the target has not.
    """
    if path.suffix == ".parquet":
        texts = [TrainingText(tuple(prompt), tuple(text)) for prompt, text in read_text_table(path)]
    else:
        turns = [turn for item in read_completions(path) for turn in given_turns(item, target, {})]
        texts = [TrainingText(tuple(t.prompt.token_ids.tolist()), tuple(t.text.tolist())) for t in turns]
    largest = max((max(text.prompt_ids + text.text_ids, default=0) for text in texts), default=0)
    if largest >= target.vocab_size:
        raise PromptError(
            f"{path} holds token {largest}; {target.name} has ids 0 to {target.vocab_size - 1}; "
            "the text must come from the target's own tokenizer"
        )
    return texts


def own_texts(
    path: Path, target: Target, sampling: Sampling, max_new_tokens: int, folder: Path, limit: int | None
) -> list[TrainingText]:
    """The target's answers to the first turns of a prompt file, kept in ``folder`` batch by batch.

    Finished batches of an interrupted run are read back.

    Raises:
        PromptError: the file cannot be used.
    """
    folder.mkdir(parents=True, exist_ok=True)
    records = read_prompts(path, limit)
    texts: list[TrainingText] = []
    with tqdm(total=len(records), unit="text", desc=f"generating from {path.name}") as bar:
        for start in range(0, len(records), _PROMPTS_PER_FILE):
            some = records[start : start + _PROMPTS_PER_FILE]
            kept = folder / f"text-{start // _PROMPTS_PER_FILE:05d}.json"
            if not kept.is_file():
                prompts = [render(target.tokenizer, record.conversation, {}) for record in some]
                keys = [noise_key(sampling.seed, record.prompt_id, 0, 0) for record in some]
                answers = generate(target, prompts, keys, sampling, max_new_tokens)
                write_json(kept, [[p, list(a.token_ids)] for p, a in zip(prompts, answers, strict=True)])
            texts += _read_back(kept)
            bar.update(len(some))
    return texts


def _read_back(path: Path) -> list[TrainingText]:
    rows: Sequence[tuple[list[int], list[int]]] = json.loads(path.read_text(encoding="utf-8"))
    return [TrainingText(tuple(prompt), tuple(text)) for prompt, text in rows]


def shuffled(texts: Sequence[TrainingText], seed: int) -> list[TrainingText]:
    """The texts in a fixed random order, so that any part of them is a fair sample."""
    order = np.random.default_rng(seed).permutation(len(texts))
    return [texts[i] for i in order]
