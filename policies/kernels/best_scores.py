"""The path scores of a best-first tree, without the tree: paths above a limit are gathered, then sorted."""

import numpy as np

from simlab.arrays import Doubles, Ints
from simlab.grid import STEPS_PER_NAT
from simlab.jit import inlined_kernel, kernel
from simlab.policies.edges.children import ELSEWHERE, SPINE, Children
from simlab.policies.kernels.gather import gather_paths

GATHER_FACTOR = 6
"""At most so many times the paths that are wanted are gathered."""

_NUM_BUCKETS = 512


@kernel
def best_scores_into(children: Children, most: int, guess: int, buffers: Ints, scores: Doubles) -> int:
    """The scores of the first ``most`` nodes in order, the root's 0 first; -inf behind the last.

    Args:
        children: the candidates of one root.
        most: drafted tokens.
        guess: a limit of costs to begin with; it changes how long this takes and nothing else.
        buffers: int32 ``[2, GATHER_FACTOR * most]``, to work in.
        scores: float64 ``[most + 1]``, to be filled.

    Returns:
        A good guess for a root like this one.
    """
    scores[:] = -np.inf
    scores[0] = 0.0
    if most == 0:
        return guess
    # Fewer than are wanted lie within `low`; `high` is -1 until too many were found within it.
    low, high, highest = -1, -1, _highest_cost(children)
    limit = min(max(guess, 0), highest)
    number = _gather(children, limit, buffers[0])
    while number > buffers.shape[1] or (number < most and limit < highest):
        if number > buffers.shape[1]:
            high = limit
        else:
            low = limit
        if high == low + 1:
            # All others within `high` cost exactly that.
            number = _gather(children, low, buffers[0]) if low >= 0 else 0
            buffers[0, number:most] = high
            number = most
            break
        limit = _next_limit(limit, low, high, highest, number, most)
        number = _gather(children, limit, buffers[0])
    _sort_first(buffers, number, most, limit)
    for n in range(min(number, most)):
        scores[n + 1] = -buffers[1, n] / STEPS_PER_NAT + 0.0
    return limit if number < most else buffers[1, most - 1] + buffers[1, most - 1] // 32


@kernel
def _next_limit(limit: int, low: int, high: int, highest: int, number: int, most: int) -> int:
    """Where to look next, strictly between what is known: the number of paths grows about as its sixth power."""
    factor = 0.7 if high == limit else min((1.3 * most / max(number, 1)) ** (1 / 6), 3.0)
    above = high - 1 if high >= 0 else highest
    return int(min(max(int(limit * factor), low + 1), above))


@kernel
def _highest_cost(children: Children) -> int:
    """No path costs more."""
    total = 0
    for depth in range(children.starts.shape[1]):
        dearest = 0
        for kind in (SPINE, ELSEWHERE):
            end = children.ends[kind, depth]
            if end > children.starts[kind, depth]:
                dearest = max(dearest, int(children.costs[end - 1]))
        total += dearest
    return total


@inlined_kernel
def _gather(children: Children, limit: int, path_costs: Ints) -> int:
    """The costs of all paths that cost at most a limit; one more than fit where they do not."""
    number, _, _ = gather_paths(children, SPINE, 0, children.starts.shape[1], limit, path_costs)
    return number


@kernel
def _sort_first(buffers: Ints, number: int, most: int, limit: int) -> None:
    """Sort the gathered costs of the first row into the second, at least the first ``most`` of them.

    They are dealt into buckets first, so that sorting by insertion has little left to do.
    """
    width = limit // _NUM_BUCKETS + 1
    starts = np.zeros(_NUM_BUCKETS + 1, np.int32)
    for n in range(number):
        starts[buffers[0, n] // width + 1] += 1
    for bucket in range(_NUM_BUCKETS):
        starts[bucket + 1] += starts[bucket]
    for n in range(number):
        bucket = buffers[0, n] // width
        buffers[1, starts[bucket]] = buffers[0, n]
        starts[bucket] += 1
    for n in range(1, number):
        moving, index = buffers[1, n], n - 1
        while index >= 0 and buffers[1, index] > moving:
            buffers[1, index + 1] = buffers[1, index]
            index -= 1
        buffers[1, index + 1] = moving
