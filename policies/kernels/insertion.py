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

from simlab.arrays import Ints, Longs, Shorts
from simlab.jit import borrowing_kernel, inlined_kernel, kernel
from simlab.policies.edges.children import ELSEWHERE, EVERY_COST, SPINE, Children, find_rank
from simlab.policies.edges.correction import Correction
from simlab.policies.kernels.corrected_step import ABOVE_LIMIT, candidate_cost, exact_candidate_cost, parent_context
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
    children: Children, true_ranks: Ints, most: int, buffers: CountBuffers, insertions: Shorts, limit: int = EVERY_COST
) -> None:
    """The places of the nodes of the true path in the order of nodes, from 1.

    Args:
        children: the candidates of one root.
        true_ranks: int32 ``[D]``, of the true tokens; -1 where a token is none of the drafter's, and behind the text.
        most: places above it are `NEVER`.
        buffers: for so many places.
        insertions: uint16 ``[D]``, to be filled.
        limit: nodes of a dearer path have places above ``most``, and the candidates may lack some that cost more.
    """
    for depth in range(insertions.size):
        insertions[depth] = NEVER
    length = _follow(children, true_ranks, buffers.path, limit)
    gathered = GatheredPaths(FULL, 0, 0, 0, 0)
    while length > 0:
        gathered = _gather(children, buffers, int(buffers.path[length]))
        if gathered.num_upper >= 0:
            break
        if gathered.num_upper == TIES:
            index = place_of(children, true_ranks, length, most, buffers)
            insertions[length - 1] = index if index <= most else NEVER
        length -= 1
    for depth in range(length):
        before, equal = _count(gathered, buffers, buffers.path[depth + 1])
        index = before + 1
        if equal > 1 and index <= most:
            index = place_of(children, true_ranks, depth + 1, most, buffers)
        if index > most:
            break
        insertions[depth] = index


@inlined_kernel
def _follow(children: Children, true_ranks: Ints, path: Ints, limit: int) -> int:
    """Fill in the costs along the true path; its length, as far as its tokens are candidates, within a limit."""
    kind = SPINE
    for depth in range(children.starts.shape[1]):
        index = find_rank(children, kind, depth, true_ranks[depth])
        if index < 0:
            return depth
        path[depth + 1] = path[depth] + children.costs[index]
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
    for index in range(begin, num_upper):
        if index != spine:
            least = min(least, upper[index])
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
    for index in range(costs.size):
        equal += np.int32(costs[index] == limit)
    return FULL if equal <= 1 else TIES


@inlined_kernel
def _count(gathered: GatheredPaths, buffers: CountBuffers, own: int) -> tuple[int, int]:
    """How many paths cost less than a node, and how many as much, itself among them."""
    limit, before, equal = np.int32(own), np.int32(0), np.int32(0)
    upper, lower, lower_spine = buffers.upper, buffers.lower, buffers.lower_spine
    begin, num_upper, spine = gathered.begin, gathered.num_upper, gathered.spine
    num_lower, num_lower_spine = gathered.num_lower, gathered.num_lower_spine
    for index in range(num_upper):
        before += np.int32(upper[index] < limit)
        equal += np.int32(upper[index] == limit)
    for index in range(begin, num_upper):
        left = np.int32(limit - upper[index])
        if left >= 0 and index != spine:
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
        for index in range(children.starts[kind, level], children.ends[kind, level]):
            reached, rank = buffers.path[level] + children.costs[index], children.ranks[index]
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


# The places of the true path where a 3-gram corrects the scores: counted, without building the tree.
#
# One walk finds all of them. It goes through the paths that cost no more than the deepest node of the true path whose
# place may be small enough, and counts for each from which node of the true path on it is before it. Once there are
# more than places, that node is out, and the walk goes on with the cost of the one above. What a correction adds is at
# most 0, so a candidate's score without it is a bound: a list is looked at up to the first candidate that is beyond.


_COST, _KIND, _TOKEN, _IS_TRUE, _BEHIND, _FROM, _NEXT, _NUM = 0, 1, 2, 3, 4, 5, 6, 7


class CorrectedCountBuffers(NamedTuple):
    """Arrays to count in: for the true path, and for the path that a walk is on.

    Attributes:
        costs: int64 ``[D + 1]``, of the true path down to each node, the root's 0 first.
        followers: int64 ``[D + 1]``, of the candidate that follows on it.
        numbers: int64 ``[D + 1]``, how many paths are before the node of a depth and not before the one above.
        walked: int64 ``[D + 1, 8]``, of each node of a walk the cost of its path, its kind and its token; whether it is
            on the true path; if not, 1 if its ranks come behind those of the true path, and the first depth of the
            true path that it is before; the next of its children to look at, and how many there are.
        reached: int64 ``[D, K]``, the costs of paths to these children.
        children: int64 ``[D, K]``, where they stand in their list.
    """

    costs: Longs
    followers: Longs
    numbers: Longs
    walked: Longs
    reached: Longs
    children: Longs


@kernel
def corrected_count_buffers_for(num_depths: int, most_kept: int) -> CorrectedCountBuffers:
    """Buffers for paths of so many tokens and as many candidates at each depth."""
    return CorrectedCountBuffers(
        np.empty(num_depths + 1, np.int64),
        np.empty(num_depths + 1, np.int64),
        np.empty(num_depths + 1, np.int64),
        np.empty((num_depths + 1, 8), np.int64),
        np.empty((num_depths, most_kept), np.int64),
        np.empty((num_depths, most_kept), np.int64),
    )


@borrowing_kernel
def corrected_insertions_into(
    children: Children,
    correction: Correction,
    before_root: int,
    root_token: int,
    true_ranks: Ints,
    num_true: int,
    most: int,
    buffers: CorrectedCountBuffers,
    insertions: Shorts,
) -> None:
    """The places of the nodes of the true path in the order of nodes, from 1.

    Args:
        children: the candidates of one root, in the order of their ranks.
        correction: of their scores, its weights fitted to this root.
        before_root: the token before the root; -1 if there is none.
        root_token: the root.
        true_ranks: int32 ``[D]``, of the true tokens; -1 where a token is none of the drafter's.
        num_true: true tokens left in the text, or more.
        most: places above it are `NEVER`.
        buffers: to work in.
        insertions: uint16 ``[D]``, to be filled.
    """
    insertions[:] = NEVER
    deepest = _true_path(children, correction, before_root, root_token, true_ranks, num_true, buffers)
    deepest = _count_corrected(children, correction, before_root, root_token, min(deepest, most), most, buffers)
    number = 0
    for depth in range(1, deepest + 1):
        number += 1 + buffers.numbers[depth]
        insertions[depth - 1] = number


@borrowing_kernel
def _true_path(
    children: Children,
    correction: Correction,
    before_root: int,
    root_token: int,
    true_ranks: Ints,
    num_true: int,
    buffers: CorrectedCountBuffers,
) -> int:
    """Costs and places along the true path, as far as its tokens are the drafter's; how far that is."""
    first, second, kind, num_depths = before_root, root_token, SPINE, min(children.starts.shape[1], num_true)
    buffers.costs[0] = 0
    for depth in range(num_depths):
        index = find_rank(children, kind, depth, true_ranks[depth])
        if index < 0:
            return int(depth)
        step = exact_candidate_cost(children, correction, first, second, kind, depth, index)
        buffers.followers[depth], buffers.costs[depth + 1] = index, buffers.costs[depth] + step
        first, second = second, children.tokens[index]
        kind = kind if children.ranks[index] == 0 else ELSEWHERE
    return int(num_depths)


@borrowing_kernel
def _count_corrected(
    children: Children,
    correction: Correction,
    before_root: int,
    root_token: int,
    deepest: int,
    most: int,
    buffers: CorrectedCountBuffers,
) -> int:
    """Fill in ``buffers.numbers`` down to the deepest node of the true path whose place is at most ``most``.

    Args:
        children: the candidates of one root.
        correction: of their scores.
        before_root: the token before the root; -1 if there is none.
        root_token: the root.
        deepest: no deeper node of the true path is asked for; at most ``most``.
        most: the largest place of interest.
        buffers: the costs and places of the true path.

    Returns:
        The depth of that node; 0 if there is none.
    """
    walked, level, num_before = buffers.walked, 0, 0
    buffers.numbers[:] = 0
    walked[0, _COST], walked[0, _KIND], walked[0, _TOKEN], walked[0, _NEXT], walked[0, _NUM] = (
        0,
        SPINE,
        root_token,
        0,
        -1,
    )
    walked[0, _IS_TRUE], walked[0, _BEHIND], walked[0, _FROM] = 1, 0, 1
    while level >= 0 and deepest > 0:
        if walked[level, _NUM] < 0:
            above = walked[level - 1, _TOKEN] if level > 0 else before_root
            deepest, num_before = _look_below(children, correction, level, above, deepest, num_before, most, buffers)
        elif walked[level, _NEXT] == walked[level, _NUM]:
            level -= 1
        else:
            level = _go_on(children, correction, level, deepest, buffers)
    return deepest


@inlined_kernel
def _look_below(
    children: Children,
    correction: Correction,
    level: int,
    token_above: int,
    deepest: int,
    num_before: int,
    most: int,
    buffers: CorrectedCountBuffers,
) -> tuple[int, int]:
    """Count the children of a node that are before some node of the true path, and keep them to go on from.

    Args:
        children: the candidates.
        correction: of their scores.
        level: the depth of the node.
        token_above: the token above it.
        deepest: of the nodes of the true path that are asked for.
        num_before: paths counted so far that are before it.
        most: the largest place of interest.
        buffers: with the walk down to the node.

    Returns:
        Both as they are now.
    """
    own, node, numbers, num = buffers.costs, buffers.walked[level], buffers.numbers, 0
    kind, cost, is_true = node[_KIND], node[_COST], node[_IS_TRUE] == 1
    true_place = buffers.followers[level] if is_true else -1
    start, end = children.starts[kind, level], children.ends[kind, level]
    above = parent_context(children, correction, token_above, node[_TOKEN], kind, level)
    for index in range(start, end):
        step = candidate_cost(children, correction, above, index, own[deepest] - cost)
        if step == ABOVE_LIMIT:
            break
        reached = cost + step
        if index != true_place:
            behind = reached + (index > true_place if is_true else node[_BEHIND])
            if behind > own[deepest]:
                continue
            depth = node[_FROM]
            while own[depth] < behind:
                depth += 1
            numbers[depth] += 1
            num_before += 1
            while deepest + num_before > most:
                num_before -= numbers[deepest]
                deepest -= 1
        buffers.reached[level, num], buffers.children[level, num] = reached, index
        num += 1
    node[_NEXT], node[_NUM] = 0, num if level + 1 < children.starts.shape[1] else 0
    return deepest, num_before


@inlined_kernel
def _go_on(children: Children, correction: Correction, level: int, deepest: int, buffers: CorrectedCountBuffers) -> int:
    """Go down to the next child of a node if nodes below it may count; the depth at which the walk is now."""
    own, node, below = buffers.costs, buffers.walked[level], buffers.walked[level + 1]
    reached, child = buffers.reached[level, node[_NEXT]], buffers.children[level, node[_NEXT]]
    node[_NEXT] += 1
    kind, is_true = node[_KIND] if children.ranks[child] == 0 else ELSEWHERE, node[_IS_TRUE] == 1
    behind, depth = node[_BEHIND], node[_FROM]
    if is_true:
        behind = np.int64(child > buffers.followers[level])
        is_true = child == buffers.followers[level]
    if is_true:
        depth = level + 2
        goes_down = depth <= deepest
    else:
        start, end = children.starts[kind, level + 1], children.ends[kind, level + 1]
        least = children.costs[start] if start < end and not correction.renormalised else 0
        goes_down = reached + behind + least <= own[deepest]
        while goes_down and own[depth] < reached + behind:
            depth += 1
    if not goes_down:
        return level
    below[_COST], below[_KIND], below[_TOKEN], below[_NUM] = reached, kind, children.tokens[child], -1
    below[_IS_TRUE], below[_BEHIND], below[_FROM] = is_true, behind, depth
    return level + 1
