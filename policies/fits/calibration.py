"""A calibration fitted to a dense trace: how often are candidates right that a drafter gives some probability?

TreeSpark (2026, arXiv 2609.22098) maps an edge's probability q to the logistic of ``slope * logit(q) + intercept``,
fitted on edges whose ancestors are true. There one pair serves all edges; here each depth and class of ranks has its
own, and candidates below the spine, that is below the root and below paths of first candidates, are told from others.

A dense trace labels every candidate of every node of the true path. So as to hold any number of them, they are counted
by logit in bins of 1/128; logits below -32 count as -32.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit

from simlab.arrays import Doubles, Floats, Ints, Longs
from simlab.jit import kernel
from simlab.policies.edges.children import ELSEWHERE, SPINE
from simlab.policies.edges.correction import NUM_CLASSES, class_of
from simlab.recorded import DraftRows

# How often is a drafter's candidate of a rank right at a depth? Counted on a dense trace.
#
# Sequoia (2024, arXiv 2402.12374) builds one tree for all rounds from such frequencies.


class RankCounts(NamedTuple):
    """True tokens by depth and rank.

    Attributes:
        numbers: int64 ``[D]``, nodes of the true path whose next token is known, by the depth of that token.
        hits: int64 ``[D, R]``, how often that token had a rank.
    """

    numbers: Longs
    hits: Longs


def no_rank_counts(num_depths: int, num_ranks: int) -> RankCounts:
    """Counts of ranks, all still 0."""
    return RankCounts(np.zeros(num_depths, np.int64), np.zeros((num_depths, num_ranks), np.int64))


def add_ranks(counts: RankCounts, rows: DraftRows) -> None:
    """Count the true tokens of one text, in place, at every root; a path goes on as long as its ranks are below R."""
    _add_ranks(rows.true_ranks, counts.numbers, counts.hits)


def rank_frequencies(counts: RankCounts) -> Doubles:
    """How often the true token has a rank at a depth, given that the path was right so far.

    Returns:
        float64 ``[D, R]``; a row sums to at most 1, and is 0 at a depth that no path reached.
    """
    return counts.hits / np.maximum(counts.numbers, 1)[:, None]


@kernel
def _add_ranks(true_ranks: Ints, numbers: Longs, hits: Longs) -> None:
    num_roots, num_depths = true_ranks.shape
    for root in range(num_roots):
        for depth in range(min(num_depths, num_roots - root)):
            rank = true_ranks[root, depth]
            numbers[depth] += 1
            if not 0 <= rank < hits.shape[1]:
                break
            hits[depth, rank] += 1


FEWEST_TRUE = 30
"""A map is fitted to at least so many true candidates, where there are as many."""

RIDGE = 1.0
"""Half of it times the squared distance from (1, 0) is added to the loss, in nats."""

_BINS_PER_LOGIT = 128
_LOWEST, _HIGHEST = -32, 21
_NUM_BINS = (_HIGHEST - _LOWEST) * _BINS_PER_LOGIT
_LOGITS: Doubles = _LOWEST + (np.arange(_NUM_BINS) + 0.5) / _BINS_PER_LOGIT
_SURE = 1e-9
_DECIMALS = 6
_NUM_ECE_BINS = 15


class EdgeCounts(NamedTuple):
    """Candidates of nodes of the true path, counted by depth, place, class of rank and logit.

    Attributes:
        numbers: int64 ``[D, 2, classes, bins]``, how many.
        hits: int64 ``[D, 2, classes, bins]``, how many of them were the true token.
    """

    numbers: Longs
    hits: Longs


class CalibrationQuality(NamedTuple):
    """How well predicted probabilities of candidates fit what came true.

    Attributes:
        num_edges: candidates.
        num_true: those that were the true token.
        nll: mean negative log-likelihood of a candidate, in nats.
        ece: expected calibration error, the mean distance between predicted probability and frequency over 15 equal
            bins of probability.
        first_ece: the same over first candidates alone.
    """

    num_edges: int
    num_true: int
    nll: float
    ece: float
    first_ece: float


def no_edge_counts(num_depths: int) -> EdgeCounts:
    """Counts of candidates, all still 0."""
    shape = (num_depths, 2, NUM_CLASSES, _NUM_BINS)
    return EdgeCounts(np.zeros(shape, np.int64), np.zeros(shape, np.int64))


def add_edges(counts: EdgeCounts, rows: DraftRows, top_k: int) -> None:
    """Count the candidates of one text, in place: the first ``top_k`` of each node of the true path, at every root."""
    _add_edges(rows.log_probs, rows.counts, rows.true_ranks, top_k, counts.numbers, counts.hits)


def total_edge_counts(parts: Sequence[EdgeCounts]) -> EdgeCounts:
    """The edges of several parts of a trace, at least one."""
    return EdgeCounts(
        np.stack([part.numbers for part in parts]).sum(axis=0),
        np.stack([part.hits for part in parts]).sum(axis=0),
    )


def fit_map(counts: EdgeCounts) -> Doubles:
    """The likeliest maps, a little drawn towards the identity.

    From the last class of a depth and place upwards, classes with fewer than `FEWEST_TRUE` true candidates are pooled
    with the one before them, until they have as many; what is then too few at the front goes with the class behind it.
    Without any candidate the map is the identity, (1, 0). Slopes are not negative. Values are rounded to six decimals.

    Returns:
        float64 ``[D, 2, classes, 2]``, slope and intercept.
    """
    edge_map = np.zeros((*counts.numbers.shape[:3], 2))
    edge_map[..., 0] = 1.0
    for depth, place in np.ndindex(counts.numbers.shape[:2]):
        numbers, hits = counts.numbers[depth, place], counts.hits[depth, place]
        for group in pooled_classes(hits.sum(axis=1)):
            edge_map[depth, place, group] = _fit(numbers[group].sum(axis=0), hits[group].sum(axis=0))
    return edge_map


def pooled_classes(num_true: Longs) -> list[slice]:
    """Which neighbouring classes share a map.

    Args:
        num_true: int64 ``[classes]``, true candidates of each.

    >>> pooled_classes(np.array([500, 40, 20, 9, 3, 0, 0]))
    [slice(2, 7, None), slice(1, 2, None), slice(0, 1, None)]
    """
    groups, end, total = [], len(num_true), 0
    for index in range(len(num_true) - 1, -1, -1):
        total += int(num_true[index])
        if total >= FEWEST_TRUE:
            groups.append(slice(index, end))
            end, total = index, 0
    if end > 0:
        groups[-1:] = [slice(0, groups[-1].stop if groups else end)]
    return groups


def held_out_quality(parts: Sequence[EdgeCounts]) -> list[tuple[CalibrationQuality, CalibrationQuality]]:
    """Before and after calibration, each part under maps fitted to the other parts.

    Returns:
        For each depth, and at the end for all together, the drafter's own probabilities and the calibrated ones.
    """
    if len(parts) < 2:
        raise ValueError("held-out figures need at least two parts")
    maps = [fit_map(total_edge_counts([*parts[:index], *parts[index + 1 :]])) for index in range(len(parts))]
    identity = [np.broadcast_to(np.array([1.0, 0.0]), edge_map.shape) for edge_map in maps]
    num_depths = len(parts[0].numbers)
    spans = [slice(depth, depth + 1) for depth in range(num_depths)] + [slice(0, num_depths)]
    return [(_quality(parts, identity, span), _quality(parts, maps, span)) for span in spans]


def _quality(parts: Sequence[EdgeCounts], maps: Sequence[Doubles], span: slice) -> CalibrationQuality:
    loss, by_prob = 0.0, np.zeros((2, 3, _NUM_ECE_BINS))  # all and first candidates; number, sum of probs, hits
    for counts, edge_map in zip(parts, maps, strict=True):
        numbers, hits = counts.numbers[span], counts.hits[span]
        scores = edge_map[span][..., :1] * _LOGITS + edge_map[span][..., 1:]
        loss += float(np.sum(numbers * np.logaddexp(0.0, scores) - hits * scores))
        probs = expit(scores)
        for index, cut in enumerate((slice(None), slice(0, 1))):
            by_prob[index] += _by_prob(probs[:, :, cut], numbers[:, :, cut], hits[:, :, cut])
    number, num_true = (int(by_prob[0, row].sum()) for row in (0, 2))
    errors = np.abs(by_prob[:, 1] - by_prob[:, 2]).sum(axis=1) / np.maximum(by_prob[:, 0].sum(axis=1), 1.0)
    return CalibrationQuality(number, num_true, loss / max(number, 1), float(errors[0]), float(errors[1]))


def _by_prob(probs: Doubles, numbers: Longs, hits: Longs) -> Doubles:
    """float64 ``[3, bins]``: candidates, their predicted probabilities and their hits, summed by probability."""
    bins = np.minimum((probs * _NUM_ECE_BINS).astype(np.int64), _NUM_ECE_BINS - 1).ravel()
    columns = (numbers.ravel(), (numbers * probs).ravel(), hits.ravel())
    sums = [np.bincount(bins, weights=column, minlength=_NUM_ECE_BINS).astype(np.float64) for column in columns]
    return np.stack(sums)


def _fit(numbers: Longs, hits: Longs) -> tuple[float, float]:
    """Slope and intercept for candidates counted by logit, int64 ``[bins]`` each."""
    seen = np.flatnonzero(numbers)
    if len(seen) == 0:
        return 1.0, 0.0
    logits, number, hit = _LOGITS[seen], numbers[seen].astype(np.float64), hits[seen].astype(np.float64)

    def loss(values: Doubles) -> tuple[float, Doubles]:
        off = values - (1.0, 0.0)
        scores = values[0] * logits + values[1]
        errors = number * expit(scores) - hit
        nats = np.sum(number * np.logaddexp(0.0, scores) - hit * scores) + RIDGE / 2 * np.dot(off, off)
        return nats / scale, (np.array([errors @ logits, errors.sum()]) + RIDGE * off) / scale

    scale = max(float(hit.sum()), 1.0)
    options = {"ftol": 1e-15, "gtol": 1e-9, "maxiter": 1000}
    minimum = minimize(loss, np.array([1.0, 0.0]), jac=True, bounds=[(0.0, None), (None, None)], options=options)
    slope, intercept = np.round(minimum.x, _DECIMALS) + 0.0
    return float(slope), float(intercept)


@kernel
def _add_edges(log_probs: Floats, counts: Ints, true_ranks: Ints, top_k: int, numbers: Longs, hits: Longs) -> None:
    num_roots, num_depths = counts.shape
    start = 0
    for root in range(num_roots):
        index, kind = start, SPINE
        start += counts[root].sum()
        # A path is true as far as its tokens are candidates, and it is known as far as the text goes.
        for depth in range(min(num_depths, num_roots - root)):
            true_rank, num = true_ranks[root, depth], min(counts[root, depth], top_k)
            for rank in range(num):
                group, logit = class_of(rank), _bin_of(log_probs[index + rank])
                numbers[depth, kind, group, logit] += 1
                hits[depth, kind, group, logit] += rank == true_rank
            if not 0 <= true_rank < num:
                break
            kind = kind if true_rank == 0 else ELSEWHERE
            index += counts[root, depth]


@kernel
def _bin_of(log_prob: float) -> int:
    """The bin of a probability's logit."""
    logit = log_prob - np.log1p(-min(np.exp(np.float64(log_prob)), 1.0 - _SURE))
    return int(min(max((logit - _LOWEST) * _BINS_PER_LOGIT, 0), _NUM_BINS - 1))
