"""The places of the true path where a 3-gram corrects the scores: counted, without building the tree.

One walk finds all of them. It goes through the paths that cost no more than the deepest node of the true path whose
place may be small enough, and counts for each from which node of the true path on it is before it. Once there are more
than places, that node is out, and the walk goes on with the cost of the one above. What a correction adds is at most
0, so a candidate's score without it is a bound: a list is looked at up to the first candidate that is beyond.
"""

from typing import NamedTuple

import numpy as np

from simlab.arrays import Ints, Longs, Shorts
from simlab.jit import borrowing_kernel, inlined_kernel, kernel
from simlab.policies.edges.children import ELSEWHERE, SPINE, Children, find_rank
from simlab.policies.edges.correction import Correction
from simlab.policies.kernels.corrected_step import ABOVE_LIMIT, candidate_cost, exact_candidate_cost, parent_context
from simlab.policies.kernels.insertion import NEVER

_COST, _KIND, _TOKEN, _IS_TRUE, _BEHIND, _FROM, _NEXT, _NUM = 0, 1, 2, 3, 4, 5, 6, 7


class CorrectedCountBuffers(NamedTuple):
    """Arrays to count in: for the true path, and for the path that a walk is on.

    Attributes:
        costs: int64 ``[D + 1]``, of the true path down to each node, the root's 0 first.
        places: int64 ``[D + 1]``, of the candidate that follows on it.
        numbers: int64 ``[D + 1]``, how many paths are before the node of a depth and not before the one above.
        walked: int64 ``[D + 1, 8]``, of each node of a walk the cost of its path, its kind and its token; whether it is
            on the true path; if not, 1 if its ranks come behind those of the true path, and the first depth of the
            true path that it is before; the next of its children to look at, and how many there are.
        reached: int64 ``[D, K]``, the costs of paths to these children.
        children: int64 ``[D, K]``, where they stand in their list.
    """

    costs: Longs
    places: Longs
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
    places: Shorts,
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
        places: uint16 ``[D]``, to be filled.
    """
    places[:] = NEVER
    deepest = _true_path(children, correction, before_root, root_token, true_ranks, num_true, buffers)
    deepest = _count(children, correction, before_root, root_token, min(deepest, most), most, buffers)
    number = 0
    for depth in range(1, deepest + 1):
        number += 1 + buffers.numbers[depth]
        places[depth - 1] = number


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
        place = find_rank(children, kind, depth, true_ranks[depth])
        if place < 0:
            return int(depth)
        step = exact_candidate_cost(children, correction, first, second, kind, depth, place)
        buffers.places[depth], buffers.costs[depth + 1] = place, buffers.costs[depth] + step
        first, second = second, children.tokens[place]
        kind = kind if children.ranks[place] == 0 else ELSEWHERE
    return int(num_depths)


@borrowing_kernel
def _count(
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
    true_place = buffers.places[level] if is_true else -1
    start, end = children.starts[kind, level], children.ends[kind, level]
    above = parent_context(children, correction, token_above, node[_TOKEN], kind, level)
    for place in range(start, end):
        step = candidate_cost(children, correction, above, place, own[deepest] - cost)
        if step == ABOVE_LIMIT:
            break
        reached = cost + step
        if place != true_place:
            behind = reached + (place > true_place if is_true else node[_BEHIND])
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
        buffers.reached[level, num], buffers.children[level, num] = reached, place
        num += 1
    node[_NEXT], node[_NUM] = 0, num if level + 1 < children.starts.shape[1] else 0
    return deepest, num_before


@inlined_kernel
def _go_on(children: Children, correction: Correction, level: int, deepest: int, buffers: CorrectedCountBuffers) -> int:
    """Go down to the next child of a node if nodes below it may count; the depth at which the walk is now."""
    own, node, below = buffers.costs, buffers.walked[level], buffers.walked[level + 1]
    reached, place = buffers.reached[level, node[_NEXT]], buffers.children[level, node[_NEXT]]
    node[_NEXT] += 1
    kind, is_true = node[_KIND] if children.ranks[place] == 0 else ELSEWHERE, node[_IS_TRUE] == 1
    behind, depth = node[_BEHIND], node[_FROM]
    if is_true:
        behind = np.int64(place > buffers.places[level])
        is_true = place == buffers.places[level]
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
    below[_COST], below[_KIND], below[_TOKEN], below[_NUM] = reached, kind, children.tokens[place], -1
    below[_IS_TRUE], below[_BEHIND], below[_FROM] = is_true, behind, depth
    return level + 1
