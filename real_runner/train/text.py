"""The text a drafter learns from: a file of it, or the target's own answers to prompts."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NoReturn, cast

import numpy as np
from tqdm import tqdm

from simlab.errors import ModelError, PromptError, TraceError
from simlab.ids import content_id
from simlab.real_runner.checkpoints.files import write_json
from simlab.real_runner.decoding.generate import generate
from simlab.real_runner.record.completions import read_completions
from simlab.real_runner.record.prompts import read_prompts, render
from simlab.real_runner.record.sources import given_turns
from simlab.real_runner.targets.model import Target
from simlab.real_runner.train.features import TrainingText
from simlab.sampling.choice import Sampling, noise_key
from simlab.traces.format.documents import check_digest, with_digest
from simlab.traces.format.json_fields import JsonFields, json_fields
from simlab.traces.texts import read_text_table
from simlab.untrusted.json_text import parse_json

PROMPTS_PER_FILE = 64


@dataclass(frozen=True, slots=True)
class PromptSelection:
    """A prompt file, how many of its prompts are taken, and what the chat template is told."""

    path: Path
    limit: int | None
    chat_template_kwargs: Mapping[str, object]


def given_texts(path: Path, target: Target, chat_template_kwargs: Mapping[str, object]) -> list[TrainingText]:
    """Texts from a Parquet table of token ids, or from a JSONL file of completions."""
    if path.suffix == ".parquet":
        texts = [TrainingText(tuple(prompt), tuple(text)) for prompt, text in read_text_table(path) if prompt or text]
    else:
        turns = [turn for item in read_completions(path) for turn in given_turns(item, target, chat_template_kwargs)]
        texts = [TrainingText(tuple(t.prompt.token_ids.tolist()), tuple(t.text.tolist())) for t in turns]
    foreign = [t for text in texts for t in text.prompt_ids + text.text_ids if not 0 <= t < target.vocab_size]
    if foreign:
        raise PromptError(
            f"{path} holds token {foreign[0]}; {target.name} has ids 0 to {target.vocab_size - 1}; "
            "the text must come from the target's own tokenizer"
        )
    return texts


def own_texts(
    selection: PromptSelection, target: Target, sampling: Sampling, max_new_tokens: int, folder: Path
) -> list[TrainingText]:
    """The target's answers to the first turns of a prompt file, kept in ``folder`` batch by batch.

    Finished batches of an interrupted run are read back.
    """
    records = read_prompts(selection.path, selection.limit)
    prompts = [render(target.tokenizer, record.conversation, selection.chat_template_kwargs) for record in records]
    keys = [noise_key(sampling.seed, record.prompt_id, 0, 0) for record in records]
    source = {
        "target": target.digest,
        "dtype": str(target.dtype),
        "chat_template_kwargs": dict(selection.chat_template_kwargs),
        "sampling": asdict(sampling),
        "max_new_tokens": max_new_tokens,
        "prompts": content_id([[record.prompt_id, ids] for record, ids in zip(records, prompts, strict=True)]),
    }
    claim(folder, "text_source.json", source, "answers to other prompts, or of another target, dtype or sampling")
    texts: list[TrainingText] = []
    with tqdm(total=len(records), unit="text", desc=f"generating from {selection.path.name}", miniters=0) as bar:
        for start in range(0, len(records), PROMPTS_PER_FILE):
            some = slice(start, start + PROMPTS_PER_FILE)
            kept = folder / f"text-{start // PROMPTS_PER_FILE:05d}.json"
            if not kept.is_file():
                answers = generate(target, prompts[some], keys[some], sampling, max_new_tokens, _counted_on(bar))
                rows = zip(prompts[some], answers, strict=True)
                write_json(
                    kept, with_digest({"texts": [[list(prompt), list(answer.token_ids)] for prompt, answer in rows]})
                )
            texts += _read_back(kept)
            bar.update(len(prompts[some]))
    return texts


def _counted_on(bar: "tqdm[NoReturn]") -> Callable[[int], None]:
    """Shows the tokens of the batch that is being generated: it takes minutes, its texts end together."""
    written = 0

    def count(num_tokens: int) -> None:
        nonlocal written
        written += num_tokens
        bar.set_postfix_str(f"{written} tokens", refresh=False)
        bar.update(0)

    return count


def claim(folder: Path, name: str, source: Mapping[str, object], other: str) -> None:
    """Note in a folder what its files are made from; refuse a folder that was made from something else."""
    note = folder / name
    if note.is_file() and _parsed(note).values != parse_json(json.dumps(source)):
        raise ModelError(f"{folder} holds {other}; delete it, or choose another --out")
    folder.mkdir(parents=True, exist_ok=True)
    write_json(note, source)


def _read_back(path: Path) -> list[TrainingText]:
    fields = _parsed(path)
    try:
        check_digest(fields)
    except TraceError as error:
        raise ModelError(f"{path} was changed after it was written; delete it, and it is made again") from error
    rows = cast(Sequence[tuple[list[int], list[int]]], fields.values["texts"])
    return [TrainingText(tuple(prompt), tuple(text)) for prompt, text in rows]


def _parsed(path: Path) -> JsonFields:
    try:
        return json_fields(path.read_bytes(), str(path))
    except (OSError, ValueError) as error:
        raise ModelError(f"{path} is damaged ({error}); delete it, and it is made again") from error


def shuffled(texts: Sequence[TrainingText], seed: int) -> list[TrainingText]:
    """The texts in a fixed random order, so that any part of them is a fair sample."""
    order = np.random.default_rng(seed).permutation(len(texts))
    return [texts[i] for i in order]
