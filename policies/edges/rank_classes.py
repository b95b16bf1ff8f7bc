"""Classes of ranks that a calibration treats alike, and what its map makes of a candidate."""

import math

import numpy as np

from simlab.arrays import Doubles, Floats, Ints
from simlab.grid import STEPS_PER_NAT
from simlab.jit import borrowing_kernel, inlined_kernel, kernel
from simlab.policies.edges.children import ELSEWHERE, EVERY_COST, SPINE, Children, fill_marginal
from simlab.policies.edges.correction import cost_of

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
    for place in range(start + 1, stop):
        cost, rank, token = children.costs[place], children.ranks[place], children.tokens[place]
        other = place - 1
        while other >= start and (
            children.costs[other] > cost or (children.costs[other] == cost and children.ranks[other] > rank)
        ):
            children.costs[other + 1] = children.costs[other]
            children.ranks[other + 1] = children.ranks[other]
            children.tokens[other + 1] = children.tokens[other]
            other -= 1
        children.costs[other + 1], children.ranks[other + 1], children.tokens[other + 1] = cost, rank, token
