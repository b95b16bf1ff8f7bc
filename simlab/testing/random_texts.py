"""Small made-up recordings, for checks that need no models."""

from dataclasses import replace

import numpy as np

from simlab.arrays import Floats, Ints
from simlab.draft import Prompt
from simlab.grid import to_grid
from simlab.policy import AnyPolicy
from simlab.recorded import DraftRows, RecordedSequence
from simlab.testing.synthetic_channels import synthetic_channel

_LEVELS, _UNKEPT = 4, 2
"""Distinct log-probabilities where they tie, and tokens of the vocabulary beyond the most that are kept."""


def random_sequence(generator: np.random.Generator, most_kept: int) -> RecordedSequence:
    """A short text with a drafter's candidates, often with the true token among them.

    Half of the texts have log-probabilities of few distinct values, so that paths tie.

    Args:
        generator: chooses everything.
        most_kept: the most candidates at a depth; how many there are differs from depth to depth.
    """
    num_tokens, num_depths = int(generator.integers(1, 12)), int(generator.integers(1, 8))
    vocab_size = most_kept + _UNKEPT
    text = generator.integers(vocab_size, size=num_tokens, dtype=np.int32)
    tied = bool(generator.random() < 0.5)
    counts = generator.integers(1, most_kept + 1, size=(num_tokens - 1, num_depths), dtype=np.int32)
    true_ranks = np.full_like(counts, -1)
    entropies = np.zeros(counts.shape, np.float32)
    ids: list[Ints] = [np.empty(0, np.int32)]
    log_probs: list[Floats] = [np.empty(0, np.float32)]
    for t in range(num_tokens - 1):
        for d in range(num_depths):
            true_token = int(text[t + d + 1]) if t + d + 1 < num_tokens else None
            order, values = _row(generator, vocab_size, true_token, tied)
            if true_token is not None:
                true_ranks[t, d] = int(np.flatnonzero(order == true_token)[0])
            entropies[t, d] = -(np.exp(values) * values).sum()
            ids.append(order[: counts[t, d]])
            log_probs.append(values[: counts[t, d]])
    rows = DraftRows(np.concatenate(ids), np.concatenate(log_probs), counts, true_ranks, entropies)
    prompt_ids = generator.integers(vocab_size, size=int(generator.integers(1, 6)), dtype=np.int32)
    return RecordedSequence(0, Prompt("made-up", "made-up", 0, 0, prompt_ids), text, "length", rows)


def random_text_for(policy: AnyPolicy, generator: np.random.Generator, most_kept: int) -> RecordedSequence:
    """A `random_sequence` with all channels that a policy declares; half of these have many equal scores."""
    recorded = random_sequence(generator, most_kept)
    if not policy.needs.channels:
        return recorded
    tied, vocab_size = bool(generator.random() < 0.5), most_kept + _UNKEPT
    channels = {need.name: synthetic_channel(need, recorded, vocab_size, tied) for need in policy.needs.channels}
    return replace(recorded, channels=channels)


def _row(generator: np.random.Generator, vocab_size: int, true_token: int | None, tied: bool) -> tuple[Ints, Floats]:
    """A whole vocabulary in the order of ranks: log-prob descending, then id."""
    values = (
        generator.integers(1, _LEVELS + 1, size=vocab_size) * -0.5 if tied else generator.normal(size=vocab_size) * 2
    )
    if true_token is not None and generator.random() < 0.7:
        values[true_token] = values.max()
    if not tied:
        values = values - np.log(np.exp(values).sum())
    grid = to_grid(values)
    order = np.lexsort((np.arange(vocab_size), -grid)).astype(np.int32)
    return order, grid[order]
