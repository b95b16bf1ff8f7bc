"""The text a drafter learns from: a file of it, or the target's own answers to prompts."""

import copy
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import NoReturn, Protocol, cast

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor
from tqdm import tqdm

from simlab.errors import ModelError, PromptError, TraceError
from simlab.ids import content_id
from simlab.real_runner.checkpoints.files import write_json
from simlab.real_runner.decoding.generate import generate
from simlab.real_runner.record.prompts import read_prompts, render, with_own
from simlab.real_runner.record.sources import given_turns, read_completions
from simlab.real_runner.targets.model import Target
from simlab.real_runner.train.features import TrainingText
from simlab.sampling.choice import Sampling, noise_key
from simlab.traces.format.documents import JsonFields, check_digest, json_fields, with_digest
from simlab.traces.texts import read_text_table
from simlab.untrusted.json_text import file_bytes, parse_json

# Batches of random roots, drawn from the hidden states that were read once.


@dataclass(frozen=True, slots=True, eq=False)
class TrainingBatch:
    """Some sequences and some roots in each.

    Attributes:
        features: bfloat16 ``[S, C, taps x H]``, right-padded.
        tokens: int64 ``[S, C + B]``, right-padded with -1.
        roots: int64 ``[S, G]``, absolute positions.
    """

    features: Tensor
    tokens: Tensor
    roots: Tensor


class _Shard(Protocol):
    """What is used of a safetensors file, which comes without types."""

    def get_tensor(self, name: str) -> Tensor: ...

    def get_slice(self, name: str) -> Tensor: ...


def _opened(path: Path) -> _Shard:
    try:
        return cast(_Shard, safe_open(path, framework="pt"))
    except SafetensorError as error:
        raise ModelError(f"the hidden states in {path} are damaged ({error}); delete that file, and resume") from error


class FeatureStore:
    """The shards of a folder, memory-mapped; a sequence is read when it is drawn."""

    def __init__(self, folder: Path) -> None:
        self.paths = sorted(folder.glob("features-*.safetensors"))
        if not self.paths:
            raise ValueError(f"no hidden states in {folder}; read them first")
        self._files: list[_Shard] = []
        self._tokens: list[Tensor] = []
        self._places: list[tuple[int, int, int, int]] = []
        for shard, path in enumerate(self.paths):
            file = _opened(path)
            self._files.append(file)
            self._tokens.append(file.get_tensor("tokens"))
            start = 0
            lengths, prompts = file.get_tensor("lengths").tolist(), file.get_tensor("prompt_lengths").tolist()
            for length, prompt_length in zip(lengths, prompts, strict=True):
                self._places.append((shard, start, length, prompt_length))
                start += length

    def __len__(self) -> int:
        return len(self._places)

    @cached_property
    def usable(self) -> list[int]:
        """Sequences with at least one root that has a token to predict."""
        return [i for i, (_, _, length, prompt) in enumerate(self._places) if length >= prompt + 2]

    def split(self, share: float) -> tuple["FeatureStore", "FeatureStore"]:
        """Two views of the usable sequences: all but a share of them, and the last ones, at least one.

        The texts of a store are in random order, so each part is a fair sample.
        """
        first = len(self.usable) - max(1, round(share * len(self.usable)))
        return self._only(self.usable[:first]), self._only(self.usable[first:])

    def _only(self, sequences: list[int]) -> "FeatureStore":
        part = copy.copy(self)
        part.usable = sequences
        return part

    @property
    def num_text_tokens(self) -> int:
        """Tokens written by the target, prompts not counted, in the usable sequences."""
        return sum(self._places[i][2] - self._places[i][3] for i in self.usable)

    def sequences(self) -> Iterator[tuple[Tensor, int, Tensor]]:
        """Each usable sequence: int64 tokens ``[L]``, its prompt's length, bfloat16 features."""
        for index in self.usable:
            tokens, features = self._read(index)
            yield tokens, self._places[index][3], features

    def _read(self, sequence: int) -> tuple[Tensor, Tensor]:
        """int64 tokens ``[L]`` and bfloat16 features of one of all sequences."""
        shard, start, length, _ = self._places[sequence]
        features = self._files[shard].get_slice("features")[start : start + length]
        return self._tokens[shard][start : start + length].to(torch.int64), features

    def token_counts(self, vocab_size: int) -> Tensor:
        """int64 ``[V]``, how often each token is written by the target."""
        counts = torch.zeros(vocab_size, dtype=torch.int64)
        for shard, start, length, prompt in self._places:
            counts += torch.bincount(self._tokens[shard][start + prompt : start + length], minlength=vocab_size)
        return counts

    def batch(self, step: int, seed: int, num_sequences: int, num_roots: int, block_size: int) -> TrainingBatch:
        """The batch of a step: a function of step and seed alone, so that a resumed run is the same run."""
        return self._assemble(self.drawn(step, seed, num_sequences), [seed, step], num_roots, block_size)

    def at(self, sequences: Sequence[int], roots: Tensor, block_size: int) -> TrainingBatch:
        """Some sequences, by their numbers, at chosen roots ``[S, G]``."""
        parts = [self._read(index) for index in sequences]
        padded = torch.nn.utils.rnn.pad_sequence([tokens for tokens, _ in parts], batch_first=True, padding_value=-1)
        return TrainingBatch(
            features=torch.nn.utils.rnn.pad_sequence([features for _, features in parts], batch_first=True),
            tokens=torch.nn.functional.pad(padded, (0, block_size), value=-1),
            roots=roots,
        )

    def roots_of(self, sequence: int) -> tuple[int, int]:
        """The first position of a sequence that may be a root, and the one behind the last."""
        _, _, length, prompt = self._places[sequence]
        return prompt, length - 1

    def fixed_batches(self, seed: int, num_sequences: int, num_roots: int, block_size: int) -> Iterator[TrainingBatch]:
        """Each usable sequence once, in order, with the same random roots whenever it is asked for."""
        for start in range(0, len(self.usable), num_sequences):
            part = self.usable[start : start + num_sequences]
            yield self._assemble(part, [seed, start, 1], num_roots, block_size)

    def drawn(self, step: int, seed: int, count: int) -> list[int]:
        """The numbers of the sequences of a step: each usable one once before any is drawn again."""
        first = step * count
        drawn = []
        for k in range(first, first + count):
            epoch, index = divmod(k, len(self.usable))
            order = np.random.default_rng([seed, epoch, 1]).permutation(len(self.usable))
            drawn.append(self.usable[order[index]])
        return drawn

    def _assemble(self, sequences: Sequence[int], seed: list[int], num_roots: int, block_size: int) -> TrainingBatch:
        chance = np.random.default_rng([*seed, 2])
        roots = []
        for index in sequences:
            first, last = self.roots_of(index)
            drawn = chance.choice(last - first, num_roots, replace=last - first < num_roots)
            roots.append(torch.from_numpy(np.sort(drawn) + first))
        return self.at(sequences, torch.stack(roots), block_size)


PROMPTS_PER_FILE = 64


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
    prompt_file: Path,
    limit: int | None,
    template_kwargs: Mapping[str, object],
    target: Target,
    sampling: Sampling,
    max_new_tokens: int,
    folder: Path,
) -> list[TrainingText]:
    """The target's answers to the first turns of a prompt file, kept in ``folder`` batch by batch.

    Finished batches of an interrupted run are read back.

    Args:
        prompt_file: see `simlab.real_runner.record.prompts.read_prompts`.
        limit: the first so many prompts only; None: all.
        template_kwargs: what the chat template is told.
        target: answers.
        sampling: how it chooses.
        max_new_tokens: of an answer.
        folder: of the answers.
    """
    records = read_prompts(prompt_file, limit)
    kwargs = [with_own(template_kwargs, record.template_kwargs) for record in records]
    prompts = [render(target.tokenizer, record.conversation, own) for record, own in zip(records, kwargs, strict=True)]
    keys = [noise_key(sampling.seed, record.prompt_id, 0, 0) for record in records]
    source = {
        "target": target.digest,
        "dtype": str(target.dtype),
        "chat_template_kwargs": dict(template_kwargs),
        "sampling": asdict(sampling),
        "max_new_tokens": max_new_tokens,
        "prompts": content_id([[record.prompt_id, ids] for record, ids in zip(records, prompts, strict=True)]),
    }
    claim(folder, "text_source.json", source, "answers to other prompts, or of another target, dtype or sampling")
    texts: list[TrainingText] = []
    with tqdm(
        total=len(records), unit="text", desc=f"generating from {prompt_file.name}", miniters=0, disable=None
    ) as bar:
        for start in range(0, len(records), PROMPTS_PER_FILE):
            part = slice(start, start + PROMPTS_PER_FILE)
            path = folder / f"text-{start // PROMPTS_PER_FILE:05d}.json"
            if not path.is_file():
                answers = generate(target, prompts[part], keys[part], sampling, max_new_tokens, _counted_on(bar))
                rows = zip(prompts[part], answers, strict=True)
                write_json(path, with_digest({"texts": [[list(prompt), answer] for prompt, (answer, _) in rows]}))
            texts += _read_back(path)
            bar.update(len(prompts[part]))
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
        return json_fields(file_bytes(path), str(path))
    except (OSError, ValueError) as error:
        raise ModelError(f"{path} is damaged ({error}); delete it, and it is made again") from error


def shuffled(texts: Sequence[TrainingText], seed: int) -> list[TrainingText]:
    """The texts in a fixed random order, so that any part of them is a fair sample."""
    order = np.random.default_rng(seed).permutation(len(texts))
    return [texts[i] for i in order]
