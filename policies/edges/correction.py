"""An edge score that also asks how well a token goes with the two before it.

PRESTO (2026, arXiv 2607.22634) scores a token by log q + weight * log p, p from a 3-gram of the tokens before it. Where
its counts come from, how they are smoothed, the floor, and how the weight follows the entropy are a reconstruction: the
paper's were not found.
"""

import math
from functools import cache
from typing import NamedTuple

import numpy as np

from simlab.arrays import Doubles, Floats, Ints, Longs
from simlab.grid import LOWEST, STEPS_PER_NAT
from simlab.jit import borrowing_kernel, inlined_kernel, kernel
from simlab.policies.edges.children import ELSEWHERE, EVERY_COST, SPINE, Children, entropy_of, fill_marginal
from simlab.policies.edges.ngram import NGramCounts, context_of, empty_counts, probability_after

FLOOR = 1e-6
"""No 3-gram probability counts as less."""


class Correction(NamedTuple):
    """What a 3-gram adds to the drafter's scores.

    Attributes:
        weights: float64 ``[D]``, of its log-probability at each depth; empty: nothing is added.
        corpus: counts of a fixed text.
        text: counts of the prompt and of what was committed.
        text_share: how much the second counts; 0: the corpus alone, 1: the text alone.
        renormalised: whether the scores of a node's children are divided by their sum.
        adaptive: whether the weights follow the entropy of the drafter at each depth.
        weight: before they do.
    """

    weights: Doubles
    corpus: NGramCounts
    text: NGramCounts
    text_share: float
    renormalised: bool
    adaptive: bool
    weight: float


class PrecedingTokens(NamedTuple):
    """Two tokens, and what the counts hold of them.

    Attributes:
        first: the token two places before; -1 if there is none.
        second: the token before.
        pair: of both, as `simlab.policies.edges.ngram.context_of` has it.
        last: of the second alone.
        pair_in_text: the same of the text's counts.
        last_in_text: the same of the text's counts.
    """

    first: int
    second: int
    pair: int
    last: int
    pair_in_text: int
    last_in_text: int


@cache
def no_correction() -> Correction:
    """The drafter's scores as they are; asked for in every round, and made once."""
    nothing = empty_counts(1, 0)
    return Correction(np.empty(0, np.float64), nothing, nothing, 0.0, False, False, 0.0)


@borrowing_kernel
def preceding_tokens(correction: Correction, first: int, second: int) -> PrecedingTokens:
    """Two tokens as they stand before others.

    Args:
        correction: not empty.
        first: the token two places before; -1 if there is none.
        second: the token before.
    """
    pair, last, pair_in_text, last_in_text = 0, 0, 0, 0
    if correction.text_share < 1.0:
        pair, last = context_of(correction.corpus.slots, first, second)
    if correction.text_share > 0.0:
        pair_in_text, last_in_text = context_of(correction.text.slots, first, second)
    return PrecedingTokens(int(np.int64(first)), int(np.int64(second)), pair, last, pair_in_text, last_in_text)


@borrowing_kernel
def log_correction(
    corpus_slots: Longs,
    corpus_totals: Longs,
    text_slots: Longs,
    text_totals: Longs,
    share: float,
    before: PrecedingTokens,
    weight: float,
    token: int,
) -> float:
    """The weighted log-probability of a token after two others; at most 0.

    It takes the parts of a `Correction`, as `probability_after` does.
    """
    if weight == 0.0:
        return 0.0
    value = 0.0
    if share < 1.0:
        pair, last = before.pair, before.last
        in_corpus = probability_after(corpus_slots, corpus_totals, pair, last, before.first, before.second, token)
        value += (1.0 - share) * in_corpus
    if share > 0.0:
        pair, last = before.pair_in_text, before.last_in_text
        value += share * probability_after(text_slots, text_totals, pair, last, before.first, before.second, token)
    return float(weight * np.log(max(value, FLOOR)))


@borrowing_kernel
def shift_of(
    correction: Correction, before: PrecedingTokens, weight: float, costs: Ints, tokens: Ints, start: int, end: int
) -> float:
    """What makes the children of a node and the rest, as the floor corrects it, sum to 1; a logarithm.

    Args:
        correction: not empty.
        before: the node and the one above it.
        weight: of the 3-gram below the node.
        costs: int32, of candidates.
        tokens: int32, theirs.
        start: where the node's children begin among the candidates.
        end: where they end.
    """
    corpus, text, share = correction.corpus, correction.text, correction.text_share
    array, two, three, four = corpus.slots, corpus.totals, text.slots, text.totals
    total, rest = 0.0, 1.0
    for index in range(start, end):
        log_prob, token = costs[index] / -STEPS_PER_NAT, tokens[index]
        total += np.exp(log_prob + log_correction(array, two, three, four, share, before, weight, token))
        rest -= np.exp(log_prob)
    return float(-np.log(total + max(rest, 0.0) * np.exp(weight * np.log(FLOOR))))


@borrowing_kernel
def fit_weights(correction: Correction, children: Children) -> None:
    """The weights at one root, where they follow the entropy.

    The entropy of a depth is that of the k candidates that are read and of the rest as one lump, so it is between 0
    and log(k + 1); the weight is that share of the full one. A drafter that is sure is left alone.
    """
    if not correction.adaptive:
        return
    for depth in range(correction.weights.size):
        start, end = children.starts[SPINE, depth], children.ends[SPINE, depth]
        share = entropy_of(children.costs, start, end) / np.log(end - start + 1.0) if end > start else 0.0
        correction.weights[depth] = correction.weight * share


@borrowing_kernel
def cost_of(log_prob: float) -> int:
    """An edge score as grid steps below 0; what lies above 0 is 0."""
    return int(np.rint(-max(min(log_prob, 0.0), LOWEST) * STEPS_PER_NAT))


# Classes of ranks that a calibration treats alike, and what its map makes of a candidate.


NUM_CLASSES = 7
"""Ranks 0, 1, 2-3, 4-7, 8-15, 16-31, and all others."""

_SURE = 1e-9
"""A probability closer to 1 is taken for 1 less this, so that its logit is finite."""


@borrowing_kernel
def class_of(rank: int) -> int:
    """The class of a rank, from 0."""
    number = 0
    while rank > 0 and number < NUM_CLASSES - 1:
        rank //= 2
        number += 1
    return number


@borrowing_kernel
def mapped_cost(cost: int, slope: float, intercept: float) -> int:
    """The cost of a candidate whose probability went through a logistic map; the identity leaves it alone.

    With z the logit of a probability, the map is the logistic of ``slope * z + intercept``.
    """
    if slope == 1.0 and intercept == 0.0:
        return cost
    log_q = cost / -STEPS_PER_NAT
    logit = log_q - math.log1p(-min(math.exp(log_q), 1.0 - _SURE))
    mapped = slope * logit + intercept
    if mapped <= -30.0:
        return cost_of(mapped)
    return cost_of(-math.log1p(math.exp(-mapped)) if mapped > -700.0 else mapped)


@kernel
def fill_children(
    children: Children, ids: Ints, log_probs: Floats, counts: Ints, start: int, top_k: int, edge_map: Doubles
) -> None:
    """The drafter's own candidates, after a map if there is one."""
    if edge_map.shape[0] > 0:
        fill_mapped(children, ids, log_probs, counts, start, top_k, edge_map, EVERY_COST)
    else:
        fill_marginal(children, ids, log_probs, counts, start, top_k)


@borrowing_kernel
def fill_mapped(
    children: Children,
    ids: Ints,
    log_probs: Floats,
    counts: Ints,
    start: int,
    top_k: int,
    edge_map: Doubles,
    limit: int,
) -> None:
    """The drafter's candidates after a map; below the spine and elsewhere get lists of their own.

    Args:
        children: to be filled.
        ids: int32, of many roots.
        log_probs: float32, on the grid.
        counts: int32 ``[D]``, candidates kept of this root.
        start: where they begin.
        top_k: so many ranks are read at each depth.
        edge_map: float64 ``[D', 2, classes, 2]``; deeper ones are mapped as depth D'.
        limit: candidates that are on no path within it may be left out.
    """
    left = limit
    most_kept = children.costs.size // (2 * max(counts.size, 1))
    for depth in range(counts.size):
        used, num, least = min(depth, edge_map.shape[0] - 1), min(counts[depth], top_k), EVERY_COST
        for kind in (SPINE, ELSEWHERE):
            first = (kind * counts.size + depth) * most_kept
            end, rank, above = first, 0, 1
            for group in range(NUM_CLASSES):
                slope, intercept = edge_map[used, kind, group]
                above = num if group == NUM_CLASSES - 1 else min(above, num)
                while rank < above:
                    # Behind one that is too dear are, in its class, dearer ones; rounding may turn neighbours around.
                    if slope >= 0.0 and _least_mapped(log_probs[start + rank], slope, intercept) > left + 2:
                        break
                    cost = mapped_cost(_raw_cost(log_probs[start + rank]), slope, intercept)
                    if slope >= 0.0 and cost > left + 2:
                        break
                    children.costs[end], children.ranks[end], children.tokens[end] = cost, rank, ids[start + rank]
                    end, rank = end + 1, rank + 1
                rank, above = above, 2 * above
            children.starts[kind, depth], children.ends[kind, depth] = first, end
            _sort(children, first, end)
            if end > first:
                least = min(least, children.costs[first])
        left = max(left - least, -3)
        start += counts[depth]


@inlined_kernel
def _least_mapped(log_prob: float, slope: float, intercept: float) -> float:
    """No more than a candidate costs after a map, found without a logarithm; the slope is not negative.

    For a probability q up to 1/2 the logit is at most log q + log 2, and the logistic of x is at most exp(x).
    """
    return -STEPS_PER_NAT * (slope * (log_prob + 0.7) + intercept) if log_prob < -0.7 else 0.0


@inlined_kernel
def _raw_cost(log_prob: float) -> int:
    return int(np.int32(log_prob * np.float32(-STEPS_PER_NAT)))


@borrowing_kernel
def mapped_limit(log_probs: Floats, counts: Ints, true_ranks: Ints, start: int, top_k: int, edge_map: Doubles) -> int:
    """What the true path costs after a map, as far as its tokens are candidates; -1 where the first is none."""
    limit, kind = -1, SPINE
    for depth in range(counts.size):
        rank, used = true_ranks[depth], min(depth, edge_map.shape[0] - 1)
        if not 0 <= rank < min(counts[depth], top_k):
            break
        slope, intercept = edge_map[used, kind, class_of(rank)]
        limit = max(limit, 0) + mapped_cost(_raw_cost(float(log_probs[start + rank])), slope, intercept)
        kind = kind if rank == 0 else ELSEWHERE
        start += counts[depth]
    return limit


@borrowing_kernel
def _sort(children: Children, start: int, stop: int) -> None:
    """By cost, then by rank; by insertion, since little is out of order."""
    for index in range(start + 1, stop):
        cost, rank, token = children.costs[index], children.ranks[index], children.tokens[index]
        other = index - 1
        while other >= start and (
            children.costs[other] > cost or (children.costs[other] == cost and children.ranks[other] > rank)
        ):
            children.costs[other + 1] = children.costs[other]
            children.ranks[other + 1] = children.ranks[other]
            children.tokens[other + 1] = children.tokens[other]
            other -= 1
        children.costs[other + 1], children.ranks[other + 1], children.tokens[other + 1] = cost, rank, token
