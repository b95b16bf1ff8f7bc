"""Batches of random roots, drawn from the hidden states that were read once."""

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Protocol, cast

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from simlab.errors import ModelError


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
            some = self.usable[start : start + num_sequences]
            yield self._assemble(some, [seed, start, 1], num_roots, block_size)

    def drawn(self, step: int, seed: int, count: int) -> list[int]:
        """The numbers of the sequences of a step: each usable one once before any is drawn again."""
        first = step * count
        drawn = []
        for k in range(first, first + count):
            epoch, place = divmod(k, len(self.usable))
            order = np.random.default_rng([seed, epoch, 1]).permutation(len(self.usable))
            drawn.append(self.usable[order[place]])
        return drawn

    def _assemble(self, sequences: Sequence[int], seed: list[int], num_roots: int, block_size: int) -> TrainingBatch:
        chance = np.random.default_rng([*seed, 2])
        roots = []
        for index in sequences:
            first, last = self.roots_of(index)
            drawn = chance.choice(last - first, num_roots, replace=last - first < num_roots)
            roots.append(torch.from_numpy(np.sort(drawn) + first))
        return self.at(sequences, torch.stack(roots), block_size)
