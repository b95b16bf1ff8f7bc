"""From how many drafted tokens on is a node in the best-first tree? Counted, without building the tree.

The place of a node in the order of nodes is one more than the number of nodes before it: those of a larger path score,
and those of the same score and a smaller tuple of ranks. Every path is one through the upper depths and one through
the lower, and below all nodes of a depth lie the same candidates; so two short lists of costs are made, and the pairs
whose sum is less are counted, which takes no branch. Only where another path costs exactly as much are those of the
same cost told apart. Taking candidates from a heap in order gives the same places (`simlab.policies.orders.best_first`)
and takes twenty times as long.
"""

from typing import NamedTuple

import numpy as np

from simlab.arrays import Ints, Shorts
from simlab.jit import borrowing_kernel, inlined_kernel, kernel
from simlab.policies.edges.children import ELSEWHERE, EVERY_COST, SPINE, Children, find_rank
from simlab.policies.kernels.gather import gather_paths

NEVER = 65535
"""Stands for a node that is not among the first ones; so many are never asked for."""


class CountBuffers(NamedTuple):
    """Arrays to count paths in, for places up to n.

    Attributes:
        path: int32 ``[D + 1]``, costs along the true path, the root's 0 first.
        upper: int32 ``[n + 1]``, costs of paths through the upper depths.
        lower: int32 ``[n + 1]``, of those through the lower depths, below a node that is not on the spine.
        lower_spine: int32 ``[n + 1]``, the same below the node that is.
        other: int32 ``[n + 1]``.
    """

    path: Ints
    upper: Ints
    lower: Ints
    lower_spine: Ints
    other: Ints


class GatheredPaths(NamedTuple):
    """How much of the buffers is filled.

    Attributes:
        num_upper: costs of upper paths; `FULL` or `TIES` where they or the lower ones do not fit.
        begin: those from here on end at the middle.
        spine: which of these is on the spine, or a negative number.
        num_lower: costs of lower paths.
        num_lower_spine: of those below the spine.
    """

    num_upper: int
    begin: int
    spine: int
    num_lower: int
    num_lower_spine: int


FULL, TIES = -1, -2
"""More paths than places: nearly all of them cost less than the node, or some cost as much."""


@kernel
def count_buffers_for(num_depths: int, most: int) -> CountBuffers:
    """Buffers to count paths in, for places up to ``most``."""
    lists = np.empty((4, most + 1), np.int32)
    return CountBuffers(np.zeros(num_depths + 1, np.int32), lists[0], lists[1], lists[2], lists[3])


@borrowing_kernel
def insertions_into(
    children: Children, true_ranks: Ints, most: int, buffers: CountBuffers, places: Shorts, limit: int = EVERY_COST
) -> None:
    """The places of the nodes of the true path in the order of nodes, from 1.

    Args:
        children: the candidates of one root.
        true_ranks: int32 ``[D]``, of the true tokens; -1 where a token is none of the drafter's, and behind the text.
        most: places above it are `NEVER`.
        buffers: for so many places.
        places: uint16 ``[D]``, to be filled.
        limit: nodes of a dearer path have places above ``most``, and the candidates may lack some that cost more.
    """
    for depth in range(places.size):
        places[depth] = NEVER
    length = _follow(children, true_ranks, buffers.path, limit)
    gathered = GatheredPaths(FULL, 0, 0, 0, 0)
    while length > 0:
        gathered = _gather(children, buffers, int(buffers.path[length]))
        if gathered.num_upper >= 0:
            break
        if gathered.num_upper == TIES:
            place = place_of(children, true_ranks, length, most, buffers)
            places[length - 1] = place if place <= most else NEVER
        length -= 1
    for depth in range(length):
        before, equal = _count(gathered, buffers, buffers.path[depth + 1])
        place = before + 1
        if equal > 1 and place <= most:
            place = place_of(children, true_ranks, depth + 1, most, buffers)
        if place > most:
            break
        places[depth] = place


@inlined_kernel
def _follow(children: Children, true_ranks: Ints, path: Ints, limit: int) -> int:
    """Fill in the costs along the true path; its length, as far as its tokens are candidates, within a limit."""
    kind = SPINE
    for depth in range(children.starts.shape[1]):
        place = find_rank(children, kind, depth, true_ranks[depth])
        if place < 0:
            return depth
        path[depth + 1] = path[depth] + children.costs[place]
        if path[depth + 1] > limit:
            return depth
        kind = kind if true_ranks[depth] == 0 else ELSEWHERE
    return int(children.starts.shape[1])


@inlined_kernel
def _gather(children: Children, buffers: CountBuffers, own: int) -> GatheredPaths:
    """The costs of upper and lower paths whose sums may be at most the cost of a node."""
    num_depths = children.starts.shape[1]
    middle, upper = (num_depths + 1) // 2, buffers.upper
    # One list lies below all nodes, unless those of the spine have their own.
    kind = SPINE if children.starts[SPINE, 0] != children.starts[ELSEWHERE, 0] else ELSEWHERE
    num_upper, begin, spine = gather_paths(children, kind, 0, middle, own, upper)
    if num_upper > upper.size:
        return GatheredPaths(_why_not(upper, own), 0, 0, 0, 0)
    least, num_lower, num_lower_spine = own + 1, 0, 0
    for place in range(begin, num_upper):
        if place != spine:
            least = min(least, upper[place])
    if least <= own:
        num_lower, _, _ = gather_paths(children, ELSEWHERE, middle, num_depths, own - least, buffers.lower)
        if num_lower > upper.size:
            return GatheredPaths(_why_not(buffers.lower, own - least), 0, 0, 0, 0)
    if spine >= 0:
        left = own - upper[spine]
        num_lower_spine, _, _ = gather_paths(children, SPINE, middle, num_depths, left, buffers.lower_spine)
        if num_lower_spine > upper.size:
            return GatheredPaths(_why_not(buffers.lower_spine, left), 0, 0, 0, 0)
    return GatheredPaths(num_upper, begin, spine, num_lower, num_lower_spine)


@inlined_kernel
def _why_not(costs: Ints, own: int) -> int:
    """Why one more path than there are places was found: `FULL` if all but the node cost less, `TIES` if not."""
    limit, equal = np.int32(own), np.int32(0)
    for place in range(costs.size):
        equal += np.int32(costs[place] == limit)
    return FULL if equal <= 1 else TIES


@inlined_kernel
def _count(gathered: GatheredPaths, buffers: CountBuffers, own: int) -> tuple[int, int]:
    """How many paths cost less than a node, and how many as much, itself among them."""
    limit, before, equal = np.int32(own), np.int32(0), np.int32(0)
    upper, lower, lower_spine = buffers.upper, buffers.lower, buffers.lower_spine
    begin, num_upper, spine = gathered.begin, gathered.num_upper, gathered.spine
    num_lower, num_lower_spine = gathered.num_lower, gathered.num_lower_spine
    for place in range(num_upper):
        before += np.int32(upper[place] < limit)
        equal += np.int32(upper[place] == limit)
    for place in range(begin, num_upper):
        left = np.int32(limit - upper[place])
        if left >= 0 and place != spine:
            for other in range(num_lower):
                before += np.int32(lower[other] < left)
                equal += np.int32(lower[other] == left)
    if spine >= 0:
        left = np.int32(limit - upper[spine])
        for other in range(num_lower_spine):
            before += np.int32(lower_spine[other] < left)
            equal += np.int32(lower_spine[other] == left)
    return int(before), int(equal)


@borrowing_kernel
def place_of(children: Children, true_ranks: Ints, depth: int, most: int, buffers: CountBuffers) -> int:
    """The place of a node of the true path, ties told apart; above ``most`` it may be any larger number.

    Args:
        children: the candidates of one root.
        true_ranks: int32 ``[D]``.
        depth: of the node, from 1.
        most: places above it need not be told apart.
        buffers: with the costs along the true path.
    """
    num_depths, before, kind, own = children.starts.shape[1], 0, SPINE, buffers.path[depth]
    for level in range(depth):
        for place in range(children.starts[kind, level], children.ends[kind, level]):
            reached, rank = buffers.path[level] + children.costs[place], children.ranks[place]
            if reached > own:
                break
            limit = own if rank < true_ranks[level] else own - 1
            if reached > limit or rank == true_ranks[level]:
                continue
            below = kind if rank == 0 else ELSEWHERE
            number, _, _ = gather_paths(children, below, level + 1, num_depths, limit - reached, buffers.other)
            before += 1 + number
            if before >= most:
                return before + 1
        kind = kind if true_ranks[level] == 0 else ELSEWHERE
        before += level + 1 < depth
    return before + 1


@borrowing_kernel
def num_paths(children: Children, most: int) -> int:
    """How many candidates there are below a root, at most so many."""
    total, level = 0, 1
    for depth in range(children.starts.shape[1]):
        level = min(level * (children.ends[0, depth] - children.starts[0, depth]), most)
        total = min(total + level, most)
    return total
