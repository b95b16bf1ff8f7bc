"""Traces without models: made-up texts and drafts in the real format, for tests and benchmarks."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby, islice
from pathlib import Path

import numpy as np

from simlab.arrays import Bools, Doubles, Floats, Ints, Longs
from simlab.channels import BRANCHES, FEATURES, POOL, TRANSITIONS
from simlab.draft import Prompt
from simlab.grid import LOWEST, to_grid
from simlab.jit import borrowing_kernel
from simlab.recorded import RecordedSequence
from simlab.sampling.choice import Sampling
from simlab.testing.random_texts import (
    synthetic_branches,
    synthetic_features,
    synthetic_pools,
    synthetic_transitions,
)
from simlab.traces.adder import add_channel
from simlab.traces.channels.columns import BranchColumns, FeatureColumns, PoolColumns, TransitionColumns
from simlab.traces.decoded import work_ahead
from simlab.traces.format.frames import DraftColumns, SequenceRecord, TokenRows
from simlab.traces.format.manifest import Manifest
from simlab.traces.format.manifest_entries import BASE_RANK, ChannelInfo, DraftSet, ModelInfo, branch_lengths
from simlab.traces.format.schema import NUM_TOP
from simlab.traces.reader import open_trace
from simlab.traces.writer import TraceWriter


@dataclass(frozen=True, slots=True)
class SyntheticChannels:
    """What is made up beside the draft set: ``transitions``, ``pool``, of a beam, ``branches`` and ``features``.

    Attributes:
        previous: tokens of each depth that transitions stand below.
        top_k: candidates of a row, whether of transitions or branches, and children of a node.
        beam: nodes of each depth that are expanded.
        routes: for which the features are.
    """

    previous: int = 4
    top_k: int = 4
    beam: int = 3
    routes: str = "ddtree:budget=16|chain"


DEFAULT_CHANNELS = SyntheticChannels()


def add_synthetic_channels(folder: Path, channels: SyntheticChannels = DEFAULT_CHANNELS) -> None:
    """Add made-up channels to a trace with one draft set; they sharpen its candidates by the tokens before them."""
    trace = open_trace(folder)
    draft, vocab_size = trace.draft_name(), trace.manifest.vocab_size
    depth, producer = trace.manifest.draft_sets[draft].depth, ModelInfo("synthetic", "", "synthetic-channels")

    def transitions(recorded: RecordedSequence) -> TransitionColumns:
        return TransitionColumns(*synthetic_transitions(recorded, channels.previous, channels.top_k, vocab_size))

    def pool(recorded: RecordedSequence) -> PoolColumns:
        return PoolColumns.unlabelled(synthetic_pools(recorded, depth, channels.top_k, vocab_size, channels.beam))

    def branches(recorded: RecordedSequence) -> BranchColumns:
        return BranchColumns(*synthetic_branches(recorded, depth, channels.top_k, vocab_size))

    def features(recorded: RecordedSequence) -> FeatureColumns:
        return FeatureColumns(synthetic_features(recorded, len(channels.routes.split("|"))))

    of_rows = {"depth": depth, "previous": channels.previous, "top_k": channels.top_k, "order": BASE_RANK}
    of_nodes = {"depth": depth, "top_k": channels.top_k, "beam": channels.beam}
    of_branches = {"depth": depth, "branches": len(branch_lengths(depth, depth)), "top_k": channels.top_k}
    of_routes = {"size": len(channels.routes.split("|")), "routes": channels.routes}
    base = (draft, trace.draft_ids[draft])
    add_channel(folder, TRANSITIONS, ChannelInfo(TRANSITIONS, producer, *base, of_rows, "float32"), transitions)
    add_channel(folder, POOL, ChannelInfo(POOL, producer, *base, of_nodes, "float32"), pool)
    add_channel(folder, BRANCHES, ChannelInfo(BRANCHES, producer, *base, of_branches, "float32"), branches)
    add_channel(folder, FEATURES, ChannelInfo(FEATURES, producer, None, None, of_routes, "float32"), features)


DRAFT = "synthetic"
STOP_TOKEN = 0

_MOST_AHEAD = 1 << 25
"""Candidates that are made ahead of those that are written."""


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
    return list(_sequences(seed, num_sequences, length, depth, kept, vocab_size, heads))


def _sequences(
    seed: int, num_sequences: int, length: int, depth: int, kept: int, vocab_size: int, heads: SyntheticHeads
) -> Iterator[SequenceRecord]:
    if not 1 <= kept <= vocab_size or vocab_size < 2 or length < 1:
        raise ValueError("expected 1 <= kept <= vocab_size, vocab_size >= 2 and length >= 1")
    rng = np.random.default_rng(seed)
    strides = np.flatnonzero(np.gcd(np.arange(vocab_size), vocab_size) == 1)
    for index in range(num_sequences):
        yield _sequence(rng, index, length, depth, kept, vocab_size, strides, heads)


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
    records = _sequences(seed, num_sequences, length, depth, kept, vocab_size, heads)
    num_prompts = len({_prompt_number(index) for index in range(num_sequences)})
    num_shards = max(-(-num_prompts // prompts_per_shard), 1)
    manifest = synthetic_manifest(length, depth, kept, vocab_size, seed)
    writer = TraceWriter(folder, manifest, num_shards, resume=False, is_made_up=True)
    shards = enumerate(shards_of(records, prompts_per_shard) if num_sequences else iter([[]]))
    weighed = ((shard, sum(len(record.text) for record in shard[1]) * depth * kept) for shard in shards)
    for _ in work_ahead(weighed, lambda shard: writer.write(*shard), _MOST_AHEAD):
        pass
    writer.finish({})
    if channels is not None:
        add_synthetic_channels(folder, channels)
    return folder


def shards_of(records: Iterable[SequenceRecord], prompts_per_shard: int) -> Iterator[list[SequenceRecord]]:
    """Runs of consecutive prompts; turns and samples of a prompt stay together."""
    by_prompt = (list(group) for _, group in groupby(records, key=lambda record: record.prompt.prompt_id))
    while groups := list(islice(by_prompt, prompts_per_shard)):
        yield [record for group in groups for record in group]


def _sequence(
    rng: np.random.Generator,
    index: int,
    length: int,
    depth: int,
    kept: int,
    vocab_size: int,
    strides: Longs,
    heads: SyntheticHeads,
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
        drafts={DRAFT: _draft(rng, text, len(prompt.token_ids), depth, kept, vocab_size, strides, heads)},
    )


def _prompt(rng: np.random.Generator, index: int, vocab_size: int) -> Prompt:
    kind = index % 4
    dataset = ("math", "code", "chat", "chat")[kind]
    number = _prompt_number(index)
    token_ids = rng.integers(1, vocab_size, int(rng.integers(3, 9))).astype(np.int32)
    return Prompt(f"{dataset}-{number}", dataset, turn=int(kind == 3), sample=0, token_ids=token_ids)


def _prompt_number(index: int) -> int:
    return index - index % 4 + min(index % 4, 2)


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
    strides: Longs,
    heads: SyntheticHeads,
) -> DraftColumns:
    num = len(text) - 1
    ahead = np.arange(num)[:, np.newaxis] + np.arange(1, depth + 1)
    valid = ahead < len(text)
    most = min(kept + heads.extra, vocab_size)
    counts = rng.integers(kept, most + 1, (num, depth))
    listed = np.arange(most) < counts[:, :, np.newaxis]
    outside = np.where(counts < vocab_size, rng.uniform(0.001, 0.2, (num, depth)), 0.0)
    log_probs = _log_probs(rng, listed, outside, heads)
    truth_ranks = _places_of_truth(rng, counts, vocab_size, heads)
    truth = text[np.minimum(ahead, len(text) - 1)]
    stride = rng.choice(strides, truth.shape)
    num_listed = int(counts.sum())
    ids, scores = np.empty(num_listed, np.int32), np.empty(num_listed, np.float32)
    ranks, true_log_prob = truth_ranks.astype(np.int32), np.full(counts.shape, LOWEST, np.float32)
    _list_in_order(log_probs, counts, truth_ranks, truth, stride, vocab_size, ids, scores, ranks, true_log_prob)
    with np.errstate(divide="ignore"):
        outside_log_mass = to_grid(np.log(outside))
    return DraftColumns(
        context_length=(prompt_length + np.arange(num)).astype(np.int32),
        counts=counts.astype(np.int32),
        ids=ids,
        log_probs=scores,
        outside_log_mass=outside_log_mass,
        entropy=_entropy(log_probs, listed),
        true_rank=ranks,
        true_log_prob=true_log_prob,
        valid=valid,
    )


def _log_probs(rng: np.random.Generator, listed: Bools, outside: Doubles, heads: SyntheticHeads) -> Floats:
    """Falling with the rank, on the grid; -255 where nothing is kept."""
    sharpness = heads.peak * rng.uniform(0.5, 1.5, outside.shape)[:, :, np.newaxis]
    scores = -sharpness * np.log1p(np.arange(listed.shape[2])) - np.cumsum(rng.exponential(0.01, listed.shape), axis=2)
    tied = rng.random(outside.shape) < heads.tie_share
    scores[tied] = np.floor(scores[tied] * 2) / 2
    mass = np.where(listed, np.exp(scores), 0.0)
    with np.errstate(divide="ignore"):
        return to_grid(np.log(mass / mass.sum(axis=2, keepdims=True) * (1 - outside[:, :, np.newaxis])))


def _places_of_truth(rng: np.random.Generator, counts: Longs, vocab_size: int, heads: SyntheticHeads) -> Longs:
    """Where the true token stands: first, elsewhere among the kept, or beyond them."""
    chance = heads.first_acceptance * heads.decay ** np.arange(counts.shape[1])
    inside = np.minimum(1 + rng.geometric(0.2, counts.shape), counts) - 1
    beyond = counts + (rng.random(counts.shape) * (vocab_size - counts)).astype(np.int64)
    wrong = np.where((rng.random(counts.shape) < heads.missing_share) & (counts < vocab_size), beyond, inside)
    return np.where(rng.random(counts.shape) < chance, 0, wrong).astype(np.int64)


@borrowing_kernel
def _list_in_order(
    log_probs: Floats,
    counts: Longs,
    truth_ranks: Longs,
    truth: Ints,
    strides: Longs,
    vocab_size: int,
    ids: Ints,
    scores: Floats,
    ranks: Ints,
    true_log_probs: Floats,
) -> None:
    """List the candidates of each root and depth by log-prob descending, then id, one after the other.

    Ids are distinct steps round the vocabulary that meet the true token at its place. Most stand in order already.

    Args:
        log_probs: float32 ``[T - 1, D, most]``.
        counts: int64 ``[T - 1, D]``, how many of these there are.
        truth_ranks: int64 ``[T - 1, D]``, where among them the true token stands.
        truth: int32 ``[T - 1, D]``.
        strides: int64 ``[T - 1, D]``.
        vocab_size: of the drafter.
        ids: filled in, int32 ``[sum of counts]``.
        scores: filled in, float32, the same.
        ranks: int32 ``[T - 1, D]``; those of listed tokens are filled in.
        true_log_probs: float32 ``[T - 1, D]``, the same.
    """
    begin = 0
    for row in range(counts.shape[0]):
        for depth in range(counts.shape[1]):
            count, true_id = counts[row, depth], np.int64(truth[row, depth])
            for rank in range(count):
                token = (true_id + (rank - truth_ranks[row, depth]) * strides[row, depth]) % vocab_size
                score = log_probs[row, depth, rank]
                at = begin + rank
                while at > begin and (
                    scores[at - 1] < score or (scores[at - 1] == score and np.int64(ids[at - 1]) > token)
                ):
                    scores[at], ids[at] = scores[at - 1], ids[at - 1]
                    at -= 1
                scores[at], ids[at] = score, token
            for rank in range(count):
                if np.int64(ids[begin + rank]) == true_id:
                    ranks[row, depth], true_log_probs[row, depth] = rank, scores[begin + rank]
            begin += count


def _entropy(log_probs: Floats, listed: Bools) -> Floats:
    values = np.where(listed, log_probs, 0.0)
    entropy = -(np.exp(values) * values * listed).sum(axis=2)
    return np.asarray(np.maximum(entropy, 0), dtype=np.float32)
