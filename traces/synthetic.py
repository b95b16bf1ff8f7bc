"""Traces without models: made-up texts and drafts in the real format, for tests and benchmarks."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import numpy as np

from simlab.arrays import Bools, Doubles, Floats, Ints, Longs
from simlab.draft import Prompt
from simlab.grid import to_grid
from simlab.sampling.choice import Sampling
from simlab.traces.format.manifest import Manifest
from simlab.traces.format.manifest_entries import DraftSet, ModelInfo
from simlab.traces.format.records import DraftColumns, SequenceRecord, TokenRows
from simlab.traces.format.schema import NUM_TOP
from simlab.traces.synthetic_channels import SyntheticChannels, add_synthetic_channels
from simlab.traces.writer import TraceWriter

DRAFT = "synthetic"
STOP_TOKEN = 0


@dataclass(frozen=True, slots=True)
class SyntheticHeads:
    """What the made-up drafter is like.

    Attributes:
        first_acceptance: how often the first candidate is right at depth 1.
        decay: what remains of that at each further depth.
        peak: how fast log-probs fall with the rank's logarithm; 0 is flat.
        tie_share: share of depths with many equal log-probs.
        extra: up to so many candidates are kept beyond ``kept``, so that rows are ragged.
        missing_share: share of wrong guesses whose true token is not kept at all.
    """

    first_acceptance: float = 0.7
    decay: float = 0.85
    peak: float = 1.5
    tie_share: float = 0.1
    extra: int = 6
    missing_share: float = 0.2


DEFAULT_HEADS = SyntheticHeads()


def synthetic_sequences(
    seed: int = 0,
    num_sequences: int = 8,
    length: int = 40,
    depth: int = 7,
    kept: int = 64,
    vocab_size: int = 997,
    heads: SyntheticHeads = DEFAULT_HEADS,
) -> list[SequenceRecord]:
    """Made-up sequences, the same for the same arguments.

    Of every four sequences two are prompts of their own (``math``, ``code``) and two are the turns
    of one conversation (``chat``). Even ones end at ``length`` tokens, odd ones at a stop token at
    or before it. The draft set is named ``synthetic``; candidates are all below ``vocab_size``.

    >>> [len(record.text) for record in synthetic_sequences(num_sequences=4, length=10)][::2]
    [10, 10]
    """
    if not 1 <= kept <= vocab_size or vocab_size < 2 or length < 1:
        raise ValueError("expected 1 <= kept <= vocab_size, vocab_size >= 2 and length >= 1")
    rng = np.random.default_rng(seed)
    return [_sequence(rng, index, length, depth, kept, vocab_size, heads) for index in range(num_sequences)]


def synthetic_manifest(
    length: int = 40, depth: int = 7, kept: int = 64, vocab_size: int = 997, seed: int = 0
) -> Manifest:
    """The manifest that fits ``synthetic_sequences`` of the same arguments.

    A tree of n nodes reads at most n ranks of a depth, so ``exact_budget`` is ``kept``.
    """
    none = ModelInfo("synthetic", "", "synthetic")
    return Manifest(
        target=none,
        vocab_size=vocab_size,
        tokenizer_digest="synthetic",
        chat_template_digest="synthetic",
        prompts_digest="synthetic",
        chat_template_kwargs={},
        sampling=Sampling(temperature=0.0, top_p=1.0, top_k=0, seed=seed),
        stop_token_ids=(STOP_TOKEN,),
        max_new_tokens=length,
        gt_mode="given",
        dtype="float32",
        attention="none",
        batch_size=1,
        device="none",
        versions={},
        draft_sets={
            DRAFT: DraftSet(
                model=none,
                block_size=depth + 1,
                depth=depth,
                min_width=kept,
                exact_budget=kept,
                vocab_size=vocab_size,
                mask_token_id=None,
            )
        },
    )


def write_synthetic_trace(
    folder: Path,
    seed: int = 0,
    num_sequences: int = 8,
    length: int = 40,
    depth: int = 7,
    kept: int = 64,
    vocab_size: int = 997,
    heads: SyntheticHeads = DEFAULT_HEADS,
    prompts_per_shard: int = 2,
    channels: SyntheticChannels | None = None,
) -> Path:
    """Write a made-up trace and give back its folder; see ``synthetic_sequences``. ``channels`` None: without any."""
    records = synthetic_sequences(seed, num_sequences, length, depth, kept, vocab_size, heads)
    shards = list(shards_of(records, prompts_per_shard))
    manifest = synthetic_manifest(length, depth, kept, vocab_size, seed)
    writer = TraceWriter(folder, manifest, max(len(shards), 1), resume=False)
    for shard, part in enumerate(shards or [[]]):
        writer.write(shard, part)
    writer.finish({})
    if channels is not None:
        add_synthetic_channels(folder, channels)
    return folder


def shards_of(records: list[SequenceRecord], prompts_per_shard: int) -> Iterator[list[SequenceRecord]]:
    """Runs of consecutive prompts; turns and samples of a prompt stay together."""
    by_prompt = [list(group) for _, group in groupby(records, key=lambda record: record.prompt.prompt_id)]
    for start in range(0, len(by_prompt), prompts_per_shard):
        yield [record for group in by_prompt[start : start + prompts_per_shard] for record in group]


def _sequence(
    rng: np.random.Generator, index: int, length: int, depth: int, kept: int, vocab_size: int, heads: SyntheticHeads
) -> SequenceRecord:
    stops = index % 2 == 1
    num = int(rng.integers(1, length + 1)) if stops else length
    text = rng.integers(1, vocab_size, num).astype(np.int32)
    if stops:
        text[-1] = STOP_TOKEN
    prompt = _prompt(rng, index, vocab_size)
    return SequenceRecord(
        index=index,
        prompt=prompt,
        seed=index,
        text=text,
        stop_reason="stop" if stops else "length",
        tokens=_token_rows(rng, text, vocab_size),
        drafts={DRAFT: _draft(rng, text, len(prompt.token_ids), depth, kept, vocab_size, heads)},
    )


def _prompt(rng: np.random.Generator, index: int, vocab_size: int) -> Prompt:
    place = index % 4
    dataset = ("math", "code", "chat", "chat")[place]
    number = index - place + min(place, 2)
    token_ids = rng.integers(1, vocab_size, int(rng.integers(3, 9))).astype(np.int32)
    return Prompt(f"{dataset}-{number}", dataset, turn=int(place == 3), sample=0, token_ids=token_ids)


def _token_rows(rng: np.random.Generator, text: Ints, vocab_size: int) -> TokenRows:
    """A target that is sure of what it emits; ``W`` ids in a row from the emitted one on."""
    num, width = len(text), min(NUM_TOP, vocab_size)
    fall = np.cumsum(rng.exponential(0.5, (num, width)), axis=1)
    log_probs = to_grid(-fall - np.log1p(width))
    return TokenRows(
        top_ids=((text[:, np.newaxis] + np.arange(width)) % vocab_size).astype(np.int32),
        top_log_probs=log_probs,
        log_prob=log_probs[:, 0].copy(),
        entropy=rng.exponential(1.0, num).astype(np.float32),
        log_normaliser=rng.normal(20.0, 1.0, num).astype(np.float32),
        decision_gap=rng.exponential(1.0, num).astype(np.float32),
    )


def _draft(
    rng: np.random.Generator,
    text: Ints,
    prompt_length: int,
    depth: int,
    kept: int,
    vocab_size: int,
    heads: SyntheticHeads,
) -> DraftColumns:
    num = len(text) - 1
    ahead = np.arange(num)[:, np.newaxis] + np.arange(1, depth + 1)
    valid = ahead < len(text)
    most = min(kept + heads.extra, vocab_size)
    counts = rng.integers(kept, most + 1, (num, depth))
    there = np.arange(most) < counts[:, :, np.newaxis]
    outside = np.where(counts < vocab_size, rng.uniform(0.001, 0.2, (num, depth)), 0.0)
    log_probs = _log_probs(rng, there, outside, heads)
    places = _places_of_truth(rng, counts, vocab_size, heads)
    truth = text[np.minimum(ahead, len(text) - 1)]
    ids = _ids(rng, truth, places, most, vocab_size)
    segment = np.repeat(np.arange(num * depth), counts.ravel())
    order = np.lexsort((ids[there], -log_probs[there], segment))
    flat_ids, flat_log_probs = ids[there][order], log_probs[there][order]
    kept_at = np.flatnonzero(flat_ids == truth.ravel()[segment])
    starts = np.cumsum(counts.ravel()) - counts.ravel()
    ranks = places.ravel().copy()
    ranks[segment[kept_at]] = kept_at - starts[segment[kept_at]]
    true_log_prob = np.full(num * depth, -255.0, np.float32)
    true_log_prob[segment[kept_at]] = flat_log_probs[kept_at]
    with np.errstate(divide="ignore"):
        outside_log_mass = to_grid(np.log(outside))
    return DraftColumns(
        context_length=(prompt_length + np.arange(num)).astype(np.int32),
        counts=counts.astype(np.int32),
        ids=flat_ids.astype(np.int32),
        log_probs=flat_log_probs,
        outside_log_mass=outside_log_mass,
        entropy=_entropy(log_probs, there),
        true_rank=ranks.reshape(num, depth).astype(np.int32),
        true_log_prob=true_log_prob.reshape(num, depth),
        valid=valid,
    )


def _log_probs(rng: np.random.Generator, there: Bools, outside: Doubles, heads: SyntheticHeads) -> Floats:
    """Falling with the rank, on the grid; -255 where nothing is kept."""
    sharpness = heads.peak * rng.uniform(0.5, 1.5, outside.shape)[:, :, np.newaxis]
    scores = -sharpness * np.log1p(np.arange(there.shape[2])) - np.cumsum(rng.exponential(0.01, there.shape), axis=2)
    tied = rng.random(outside.shape) < heads.tie_share
    scores[tied] = np.floor(scores[tied] * 2) / 2
    mass = np.where(there, np.exp(scores), 0.0)
    with np.errstate(divide="ignore"):
        return to_grid(np.log(mass / mass.sum(axis=2, keepdims=True) * (1 - outside[:, :, np.newaxis])))


def _places_of_truth(rng: np.random.Generator, counts: Longs, vocab_size: int, heads: SyntheticHeads) -> Longs:
    """Where the true token stands: first, elsewhere among the kept, or beyond them."""
    chance = heads.first_acceptance * heads.decay ** np.arange(counts.shape[1])
    inside = np.minimum(1 + rng.geometric(0.2, counts.shape), counts) - 1
    beyond = counts + (rng.random(counts.shape) * (vocab_size - counts)).astype(np.int64)
    wrong = np.where((rng.random(counts.shape) < heads.missing_share) & (counts < vocab_size), beyond, inside)
    return np.where(rng.random(counts.shape) < chance, 0, wrong).astype(np.int64)


def _ids(rng: np.random.Generator, truth: Ints, places: Longs, most: int, vocab_size: int) -> Longs:
    """Distinct ids ``[T - 1, D, most]``: steps round the vocabulary that meet the truth at its place."""
    strides = np.flatnonzero(np.gcd(np.arange(vocab_size), vocab_size) == 1)
    stride = rng.choice(strides, truth.shape)
    steps = np.arange(most) - places[:, :, np.newaxis]
    ids: Longs = (truth[:, :, np.newaxis] + steps * stride[:, :, np.newaxis]) % vocab_size
    return ids


def _entropy(log_probs: Floats, there: Bools) -> Floats:
    values = np.where(there, log_probs, 0.0)
    entropy = -(np.exp(values) * values * there).sum(axis=2)
    return np.asarray(np.maximum(entropy, 0), dtype=np.float32)
