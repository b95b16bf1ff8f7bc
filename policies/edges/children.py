"""The candidates below the nodes of one tree, as an edge model scores them."""

from typing import NamedTuple

import numpy as np

from simlab.arrays import Floats, Ints
from simlab.grid import STEPS_PER_NAT, weight_scalar
from simlab.jit import inlined_kernel, kernel

SPINE, ELSEWHERE = 0, 1
"""Below which nodes a list lies: the root and paths of first candidates alone, or any others."""


EVERY_COST = 1 << 30
"""As a limit: no path costs as much."""


class Children(NamedTuple):
    """Candidates by the depth at which they lie, the best first.

    Scores are whole numbers of grid steps below 0, so that sums are exact: costs. An edge model may tell
    children of the spine from others; where it does not, both have the same lists.

    Attributes:
        costs: int32 ``[E]``; within a list they rise, and ranks rise where they are equal.
        ranks: int32 ``[E]``, the drafter's.
        tokens: int32 ``[E]``.
        starts: int32 ``[2, D]``, where the list of a depth begins, below the spine and elsewhere.
        ends: int32 ``[2, D]``.
    """

    costs: Ints
    ranks: Ints
    tokens: Ints
    starts: Ints
    ends: Ints


@kernel
def num_widest(counts: Ints, top_k: int) -> int:
    """The most candidates that are read at any depth, of counts int32 ``[D]``; 0 without depths."""
    widest = 0
    for depth in range(counts.size):
        widest = max(widest, min(counts[depth], top_k))
    return widest


@kernel
def empty_children(num_depths: int, most_kept: int) -> Children:
    """Children to be filled, for as many candidates at each depth, in one or two lists."""
    size = 2 * num_depths * most_kept
    children = Children(
        np.empty(size, np.int32),
        np.empty(size, np.int32),
        np.empty(size, np.int32),
        np.empty((2, num_depths), np.int32),
        np.empty((2, num_depths), np.int32),
    )
    for index in range(size):
        children.ranks[index] = index % max(most_kept, 1)
    return children


@kernel
def fill_marginal(children: Children, ids: Ints, log_probs: Floats, counts: Ints, start: int, top_k: int) -> None:
    """The drafter's own candidates.

    Args:
        children: to be filled.
        ids: int32, of many roots.
        log_probs: float32, on the grid.
        counts: int32 ``[D]``, candidates kept of this root.
        start: where they begin.
        top_k: so many ranks are read at each depth.
    """
    index = 0
    for depth in range(counts.size):
        num = min(counts[depth], top_k)
        children.starts[SPINE, depth] = children.starts[ELSEWHERE, depth] = index
        for rank in range(num):
            children.costs[index + rank] = np.int32(log_probs[start + rank] * np.float32(-STEPS_PER_NAT))
            children.ranks[index + rank] = rank
            children.tokens[index + rank] = ids[start + rank]
        index += num
        children.ends[SPINE, depth] = children.ends[ELSEWHERE, depth] = index
        start += counts[depth]


@inlined_kernel
def fill_costs(children: Children, log_probs: Floats, counts: Ints, start: int, top_k: int, limit: int) -> None:
    """The drafter's own candidates that are on some path within a limit, without their tokens.

    Args:
        children: from `empty_children`, used for nothing else.
        log_probs: float32, on the grid, of many roots.
        counts: int32 ``[D]``, candidates kept of this root; there is room for as many.
        start: where they begin.
        top_k: so many ranks are read at each depth.
        limit: dearer paths are left out; below 0, all are.
    """
    most_kept = children.costs.size // (2 * max(counts.size, 1))
    costs, left = children.costs, limit
    for depth in range(counts.size):
        index, num, rank = depth * most_kept, min(counts[depth], top_k), 0
        # Eight at a time, which takes no branch for each.
        while rank + 8 <= num:
            for offset in range(8):
                costs[index + rank + offset] = np.int32(log_probs[start + rank + offset] * np.float32(-STEPS_PER_NAT))
            if costs[index + rank + 7] > left:
                break
            rank += 8
        while rank < num:
            cost = np.int32(log_probs[start + rank] * np.float32(-STEPS_PER_NAT))
            if cost > left:
                break
            costs[index + rank] = cost
            rank += 1
        children.starts[SPINE, depth] = children.starts[ELSEWHERE, depth] = index
        children.ends[SPINE, depth] = children.ends[ELSEWHERE, depth] = index + rank
        left -= costs[index] if rank > 0 else left + 1
        start += counts[depth]


@inlined_kernel
def find_rank(children: Children, kind: int, depth: int, rank: int) -> int:
    """Where a rank stands in a list; -1 where it does not."""
    start, end = children.starts[kind, depth], children.ends[kind, depth]
    if 0 <= rank < end - start and children.ranks[start + rank] == rank:
        return int(start + rank)
    for index in range(start, end if rank >= 0 else start):
        if children.ranks[index] == rank:
            return index
    return -1


@kernel
def entropy_of(costs: Ints, start: int, end: int) -> float:
    """The entropy of a list of k candidates, in nats, with all others as one lump; from 0 to log(k + 1).

    The lump stands for what is not read; the drafter's own entropy, over its whole vocabulary, is at least as large.

    Args:
        costs: int32, of candidates.
        start: where the list begins among them.
        end: where it ends.
    """
    entropy, rest = 0.0, 1.0
    for index in range(start, end):
        log_prob = costs[index] / -STEPS_PER_NAT
        prob = weight_scalar(log_prob)
        entropy -= prob * log_prob
        rest -= prob
    if rest > 0.0:
        entropy -= rest * np.log(rest)
    return min(entropy, float(np.log(end - start + 1.0)))
