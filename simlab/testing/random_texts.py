"""Small made-up recordings, for checks that need no models."""

import heapq
from dataclasses import dataclass, field, replace

import numpy as np

from simlab.arrays import Bools, Doubles, Floats, Ints, Keys
from simlab.channels import (
    BRANCHES,
    FEATURES,
    POOL,
    TARGET,
    TRANSITIONS,
    BranchRows,
    ChannelRows,
    FeatureRows,
    Pool,
    PoolRows,
    TargetLawRows,
    TransitionRows,
)
from simlab.channels.rows import EXACT_NODES, WHOLE_CHAIN
from simlab.draft import Marginals, Prompt
from simlab.grid import to_grid
from simlab.policy import AnyPolicy, ChannelNeed
from simlab.recorded import DraftRows, RecordedSequence

# Made-up channels along made-up texts: a drafter's candidates, sharpened by the tokens before them.
#
# Scores depend on a draft set's candidates, on the tokens above, and on nothing that is drawn, so that a channel that
# was made up with less is a part of one with more.

_LISTED = 64
"""So many tokens are scored at least, as far as the vocabulary goes."""

_MASS, _NOISE, _BONUS = 0.97, 2.0, 3.0
"""What the scored tokens have together; how much tokens above change a score at most; how much the truth gains."""


def synthetic_channel(
    need: ChannelNeed, recorded: RecordedSequence, vocab_size: int, tied: bool = False
) -> ChannelRows:
    """A channel of the settings that a policy declares, with more than it declares where that is to be cut.

    Args:
        need: of the policy.
        recorded: a text with a draft set's rows.
        vocab_size: tokens that there are.
        tied: whether many scores are equal.
    """
    least, equal = dict(need.least), dict(need.equal)
    if need.kind == TRANSITIONS:
        previous = equal.get("previous", least.get("previous", 4) + 2)
        top_k = equal.get("top_k", least.get("top_k", 4) + 3)
        return synthetic_transitions(recorded, previous, top_k, vocab_size, tied)[0]
    if need.kind == POOL:
        depth, top_k = equal.get("depth", _depth_of_pools(need, recorded)), equal.get("top_k", 3)
        if EXACT_NODES in least:
            return synthetic_pools(
                recorded, least.get("depth", depth), top_k, vocab_size, None, least[EXACT_NODES], tied
            )
        return synthetic_pools(recorded, depth, top_k, vocab_size, equal.get("beam", 3), 0, tied)
    if need.kind == BRANCHES:
        depth = 1 if recorded.rows is None else recorded.rows.counts.shape[1]
        # Deeper than the drafter's own, so that there is one behind its whole chain too.
        deeper, top_k = 3 if WHOLE_CHAIN in equal else 1, least.get("top_k", 1) + 2
        return synthetic_branches(recorded, depth + deeper, top_k, vocab_size, tied)[0]
    if need.kind == TARGET:
        return TargetLawRows((recorded.text[:-1] * 37 % 16 / 8).astype(np.float32))
    if need.kind == FEATURES:
        return synthetic_features(recorded, len(need.trained_for.split("|")))
    raise ValueError(f"{need.kind} cannot be made up; check the policy on a recorded text")


def _depth_of_pools(need: ChannelNeed, recorded: RecordedSequence) -> int:
    """One more than is read, to be cut; where nothing is said, as deep as the drafter looks."""
    if need.deepest is not None:
        return need.deepest + 1
    return 0 if recorded.rows is None else recorded.rows.counts.shape[1]


def synthetic_transitions(
    recorded: RecordedSequence, previous: int, top_k: int, vocab_size: int, tied: bool = False
) -> tuple[TransitionRows, Floats]:
    """Scores of tokens after each of the first tokens of the depth above.

    Args:
        recorded: a text with a draft set's rows.
        previous: so many tokens of each depth, as far as they are kept.
        top_k: so many tokens after each, as far as the vocabulary goes.
        vocab_size: tokens that there are.
        tied: whether many scores are equal.

    Returns:
        the rows; float32 ``[sum S]``, the log of the mass that is not kept of each.
    """
    width = min(top_k, vocab_size)
    num_rows: list[list[int]] = []
    above: list[Ints] = [np.empty(0, np.int32)]
    ids: list[Ints] = [np.empty((0, width), np.int32)]
    log_probs: list[Floats] = [np.empty((0, width), np.float32)]
    depth = 0 if recorded.rows is None else recorded.rows.counts.shape[1]
    for t, marginals in enumerate(_marginals(recorded)):
        num_rows.append([])
        for d in range(1, depth + 1):
            tokens = recorded.text[t : t + 1] if d == 1 else marginals.at(d - 1)[0][:previous]
            num_rows[-1].append(len(tokens))
            above += [tokens] if d > 1 else []
            is_true = tokens == _truth(recorded, t + d - 1)
            listed = _Listed.of(marginals, d, max(_LISTED, width), vocab_size, _truth(recorded, t + d))
            own_ids, own_log_probs = listed.scored(_mixed(tokens, d), is_true, width, tied)
            ids.append(own_ids)
            log_probs.append(own_log_probs)
    flat = np.concatenate(log_probs)
    counts = np.array(num_rows, np.int32).reshape(-1, depth)
    return TransitionRows(counts, np.concatenate(above), np.concatenate(ids), flat), _outside(flat)


def synthetic_branches(
    recorded: RecordedSequence,
    depth: int,
    top_k: int,
    vocab_size: int,
    tied: bool = False,
    is_whole: bool = False,
) -> tuple[BranchRows, Floats]:
    """Scores of tokens behind every beginning of the drafter's chain that leaves a depth.

    Args:
        recorded: a text with a draft set's rows.
        depth: of the deepest tokens.
        top_k: so many tokens of each row, as far as the vocabulary goes.
        vocab_size: tokens that there are.
        tied: whether many scores are equal.
        is_whole: whether the longest beginning is the only one.

    Returns:
        the rows; float32 ``[sum S]``, the log of the mass that is not kept of each.
    """
    width = min(top_k, vocab_size)
    base_depth = 0 if recorded.rows is None else recorded.rows.counts.shape[1]
    lengths = np.arange(min(base_depth, depth - 1) + 1, dtype=np.int32)
    ids: list[Ints] = [np.empty((0, width), np.int32)]
    log_probs: list[Floats] = [np.empty((0, width), np.float32)]
    num_roots = 0
    for t, marginals in enumerate(_marginals(recorded)):
        num_roots += 1
        chain, is_true = marginals.top_tokens(marginals.depth).tolist(), True
        above = recorded.text[t : t + 1]
        for length in lengths.tolist():
            if length > 0:
                token = chain[length - 1] if length <= len(chain) else -1
                is_true = is_true and token == _truth(recorded, t + length)
                above = (_mixed(above, token + 2) >> np.uint64(34)).astype(np.int32)
            if is_whole and length < lengths[-1]:
                continue
            for d in range(length + 1, depth + 1):
                listed = _Listed.of(marginals, d, max(_LISTED, width), vocab_size, _truth(recorded, t + d))
                own_ids, own_log_probs = listed.scored(_mixed(above, d), np.array([is_true]), width, tied)
                ids.append(own_ids)
                log_probs.append(own_log_probs)
    flat = np.concatenate(log_probs)
    lengths = lengths[-1:] if is_whole else lengths
    rows = BranchRows(np.tile(lengths, (num_roots, 1)), depth, np.concatenate(ids), flat)
    return rows, _outside(flat)


def synthetic_features(recorded: RecordedSequence, size: int) -> FeatureRows:
    """Numbers of each root that its token decides, from 1 on, many of them equal.

    Args:
        recorded: a text.
        size: numbers of a root.
    """
    shifts = np.arange(size, dtype=np.uint64) * np.uint64(4) % np.uint64(60)
    mixed = _mixed(recorded.text[:-1])[:, np.newaxis] >> shifts
    return FeatureRows((1 + (mixed & np.uint64(15)).astype(np.float32) / 4).astype(np.float32))


def _outside(listed: Floats) -> Floats:
    """float32 ``[S]``, the log of the mass of each row that is not kept."""
    with np.errstate(divide="ignore"):
        return to_grid(np.log(np.maximum(1 - np.exp(listed.astype(np.float64)).sum(axis=1), 0)))


def synthetic_pools(
    recorded: RecordedSequence,
    depth: int,
    top_k: int,
    vocab_size: int,
    beam: int | None,
    exact_nodes: int = 0,
    tied: bool = False,
) -> PoolRows:
    """Nodes that are scored given their paths: those of a beam, or enough for best-first trees of some size.

    Args:
        recorded: a text with a draft set's rows.
        depth: of the deepest nodes.
        top_k: children of each expanded node.
        vocab_size: tokens that there are.
        beam: so many of the best nodes of each depth are expanded; None: the best of all depths.
        exact_nodes: so many of these.
        tied: whether many scores are equal.
    """
    pools = []
    for t, marginals in enumerate(_marginals(recorded)):
        tree = _Tree(recorded, marginals, t, depth, top_k, vocab_size, tied)
        if beam is None:
            tree.expand_best(exact_nodes)
        else:
            tree.expand_beam(beam)
        pools.append(tree.pool())
    sizes = np.array([len(pool.tokens) for pool in pools], np.int64)
    return PoolRows(
        sizes,
        np.concatenate([np.empty(0, np.int32), *(pool.tokens for pool in pools)]),
        np.concatenate([np.empty(0, np.int32), *(pool.parents for pool in pools)]),
        np.concatenate([np.empty(0, np.float32), *(pool.log_probs for pool in pools)]),
        np.concatenate([np.empty(0, np.bool_), *(pool.expanded for pool in pools)]),
    )


def _marginals(recorded: RecordedSequence) -> list[Marginals]:
    if recorded.rows is None:
        raise ValueError("channels are made up from the rows of a draft set, and none were read")
    return list(recorded.rows.rows())


def _truth(recorded: RecordedSequence, index: int) -> int:
    return int(recorded.text[index]) if index < len(recorded.text) else -1


def _mixed(tokens: Ints, *more: int) -> Keys:
    """A number for each token that looks drawn; uint64, by the finaliser of MurmurHash3 (Appleby, 2011)."""
    keys = tokens.astype(np.uint64)
    with np.errstate(over="ignore"):
        for number in (0, *more):
            keys = keys * np.uint64(0x9E3779B97F4A7C15) + np.uint64(number & (1 << 64) - 1)
            keys = (keys ^ (keys >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)
            keys = (keys ^ (keys >> np.uint64(33))) * np.uint64(0xC4CEB9FE1A85EC53)
            keys ^= keys >> np.uint64(33)
    return keys


@dataclass(frozen=True, slots=True)
class _Listed:
    """The tokens that are scored at one depth, and what the drafter says of them.

    Attributes:
        tokens: int32 ``[C]``.
        log_probs: float64 ``[C]``.
        truth: the true token; -1 past the end of the text.
    """

    tokens: Ints
    log_probs: Doubles
    truth: int

    @classmethod
    def of(cls, marginals: Marginals, depth: int, least: int, vocab_size: int, truth: int) -> "_Listed":
        """All that is kept at a depth, and others until they are enough."""
        ids, log_probs = marginals.at(min(depth, marginals.depth))
        num = max(0, min(least, vocab_size) - len(ids))
        others = np.setdiff1d(np.arange(min(len(ids) + num, vocab_size), dtype=np.int32), ids)[:num]
        lowest = float(log_probs.min(initial=0)) - 1
        return cls(np.concatenate([ids, others]), np.append(log_probs, np.full(len(others), lowest)), truth)

    def scored(self, above: Keys, is_true: Bools, width: int, tied: bool) -> tuple[Ints, Floats]:
        """The best tokens below some others, int32 and float32 ``[rows, width]``, in the order of their ranks.

        Args:
            above: a number for what stands above, ``[rows]``.
            is_true: bool ``[rows]``, whether that is the true text.
            width: how many.
            tied: whether many scores are equal.
        """
        drawn = _mixed(self.tokens)[np.newaxis]
        noise = (drawn ^ above[:, np.newaxis]) * np.uint64(0x9E3779B97F4A7C15) >> np.uint64(40)
        scores = self.log_probs + _NOISE * noise.astype(np.float64) / (1 << 24)
        scores += _BONUS * (is_true[:, np.newaxis] & (self.tokens == self.truth))
        scores = np.floor(scores) if tied else scores
        mass = np.exp(scores - scores.max(axis=1, keepdims=True))
        log_probs = to_grid(np.log(_MASS * mass / mass.sum(axis=1, keepdims=True)))
        order = np.lexsort((np.broadcast_to(self.tokens, log_probs.shape), -log_probs), axis=1)[:, :width]
        return self.tokens[order], np.take_along_axis(log_probs, order, axis=1)


@dataclass(slots=True)
class _Node:
    """A node of a growing pool, with the path to it."""

    token: int
    log_prob: float
    score: float
    depth: int
    ranks: tuple[int, ...]
    key: int
    is_true: bool
    children: "list[_Node] | None" = field(default=None)


class _Tree:
    """A pool at one root that grows."""

    def __init__(
        self,
        recorded: RecordedSequence,
        marginals: Marginals,
        t: int,
        depth: int,
        top_k: int,
        vocab_size: int,
        tied: bool,
    ) -> None:
        self._depth, self._top_k, self._tied = depth, min(top_k, vocab_size), tied
        self._listed = [
            _Listed.of(marginals, d, max(_LISTED, top_k), vocab_size, _truth(recorded, t + d))
            for d in range(1, depth + 1)
        ]
        self._root = _Node(int(recorded.text[t]), 0.0, 0.0, 0, (), int(recorded.text[t]), is_true=True)
        self._expand(self._root)

    def expand_beam(self, beam: int) -> None:
        """Expand so many of the best nodes of each depth."""
        level = self._root.children or []
        for _ in range(1, self._depth):
            best = sorted(level, key=lambda node: (-node.score, node.ranks))[:beam]
            level = [child for node in best for child in self._expand(node)]

    def expand_best(self, number: int) -> None:
        """Expand the best nodes of all depths, until the first so many are known, whatever the order of equal ones."""
        heap = [(-node.score, node.ranks, node) for node in self._root.children or []]
        heapq.heapify(heap)
        known: list[float] = []
        while heap and 1 + sum(score < heap[0][0] for score in known) < number:
            score, _, node = heapq.heappop(heap)
            known.append(score)
            for child in self._expand(node) if node.depth < self._depth else []:
                heapq.heappush(heap, (-child.score, child.ranks, child))

    def pool(self) -> Pool:
        """All nodes, depth after depth and by their parents."""
        nodes, parents, index = list(self._root.children or []), [0] * len(self._root.children or []), 0
        while index < len(nodes):
            own = nodes[index].children or []
            nodes += own
            index += 1
            parents += [index] * len(own)
        return Pool(
            np.array([node.token for node in nodes], np.int32),
            np.array(parents, np.int32),
            np.array([node.log_prob for node in nodes], np.float32),
            np.array([node.children is not None for node in nodes], np.bool_),
        )

    def _expand(self, node: _Node) -> list[_Node]:
        listed = self._listed[node.depth]
        key = _mixed(np.array([node.token], np.int32), node.key)
        ids, log_probs = listed.scored(key, np.array([node.is_true]), self._top_k, self._tied)
        node.children = [
            _Node(
                token,
                log_prob,
                node.score + log_prob,
                node.depth + 1,
                (*node.ranks, rank),
                int(key[0]),
                node.is_true and token == listed.truth,
            )
            for rank, (token, log_prob) in enumerate(zip(ids[0].tolist(), log_probs[0].tolist(), strict=True))
        ]
        return node.children


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
