"""Classes of ranks that a calibration treats alike, and what its map makes of a candidate."""

import math

from simlab.arrays import Doubles
from simlab.grid import STEPS_PER_NAT
from simlab.jit import kernel
from simlab.policies.children import ELSEWHERE, SPINE, Children
from simlab.policies.correction import cost_of

NUM_CLASSES = 7
"""Ranks 0, 1, 2-3, 4-7, 8-15, 16-31, and all others."""

_SURE = 1e-9
"""A probability closer to 1 is taken for 1 less this, so that its logit is finite."""


@kernel
def class_of(rank: int) -> int:
    """The class of a rank, from 0."""
    number = 0
    while rank > 0 and number < NUM_CLASSES - 1:
        rank //= 2
        number += 1
    return number


@kernel
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
def apply_map(children: Children, edge_map: Doubles) -> None:
    """Send the drafter's candidates through a map; below the spine and elsewhere get lists of their own.

    Args:
        children: as `fill_marginal` left them, with room for as many again.
        edge_map: float64 ``[D', 2, classes, 2]``; deeper ones are mapped as depth D'.
    """
    num_depths = children.starts.shape[1]
    end = 0 if num_depths == 0 else children.ends[SPINE, num_depths - 1]
    for depth in range(num_depths):
        start, stop = children.starts[SPINE, depth], children.ends[SPINE, depth]
        used = min(depth, edge_map.shape[0] - 1)
        children.starts[ELSEWHERE, depth] = end
        for place in range(start, stop):
            children.ranks[end], children.tokens[end] = children.ranks[place], children.tokens[place]
            children.costs[end] = _mapped(children, place, edge_map[used, ELSEWHERE])
            end += 1
        children.ends[ELSEWHERE, depth] = end
        for place in range(start, stop):
            children.costs[place] = _mapped(children, place, edge_map[used, SPINE])
        for kind in (SPINE, ELSEWHERE):
            _sort(children, children.starts[kind, depth], children.ends[kind, depth])


@kernel
def _mapped(children: Children, place: int, by_class: Doubles) -> int:
    slope, intercept = by_class[class_of(children.ranks[place])]
    return mapped_cost(children.costs[place], slope, intercept)


@kernel
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
