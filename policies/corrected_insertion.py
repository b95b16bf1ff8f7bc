"""The places of the true path where a 3-gram corrects the scores: counted, without building the tree.

As `simlab.policies.insertion` counts them. What a correction adds is at most 0, so a candidate's score without it is a
bound: the correction is worked out up to the first candidate of a list whose bound is beyond the limit.
"""

from typing import NamedTuple

import numpy as np

from simlab.arrays import Doubles, Ints, Longs, Shorts
from simlab.jit import inlined_kernel, kernel
from simlab.policies.children import ELSEWHERE, SPINE, Children, find_rank
from simlab.policies.correction import MOST_COST, Correction, add_costs, before_of, shift_of
from simlab.policies.insertion import NEVER

_COST, _KIND, _TOKEN, _NEXT, _NUM = 0, 1, 2, 3, 4


class Room(NamedTuple):
    """Room to count in: for the true path, and for the path that a walk is on.

    Attributes:
        true: int64 ``[D + 1, 5]``, of each node the cost of its path, its kind, its token, the place of the candidate
            that follows on the true path, and how many costs below it are known.
        true_costs: int64 ``[D, K]``, what the candidates below each add.
        shifts: float64 ``[D + 1]``, `shift_of` each.
        walked: int64 ``[D + 1, 5]``, the same of a walk, but for the next candidate to look at.
        costs: int64 ``[D, K]``, the same of a walk.
    """

    true: Longs
    true_costs: Longs
    shifts: Doubles
    walked: Longs
    costs: Longs


@kernel
def room_to_count(num_depths: int, most_kept: int) -> Room:
    """Room for paths of so many tokens and as many candidates at each depth."""
    return Room(
        np.empty((num_depths + 1, 5), np.int64),
        np.empty((num_depths, most_kept), np.int64),
        np.zeros(num_depths + 1, np.float64),
        np.empty((num_depths + 1, 5), np.int64),
        np.empty((num_depths, most_kept), np.int64),
    )


@kernel
def corrected_insertions_into(
    children: Children,
    correction: Correction,
    before_root: int,
    root_token: int,
    true_ranks: Ints,
    num_true: int,
    most: int,
    room: Room,
    found: Shorts,
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
        room: to work in.
        found: uint16 ``[D]``, to be filled.
    """
    found[:] = NEVER
    true, cost = room.true, np.empty(1, np.int64)
    true[0, _COST], true[0, _KIND], true[0, _TOKEN] = 0, SPINE, root_token
    for level in range(min(children.starts.shape[1], num_true)):
        kind, rank = true[level, _KIND], true_ranks[level]
        place = find_rank(children, kind, level, rank)
        if place < 0:
            return
        before = before_of(correction, true[level - 1, _TOKEN] if level > 0 else before_root, true[level, _TOKEN])
        if correction.renormalised:
            room.shifts[level] = shift_of(children, correction, before, kind, level)
        add_costs(children, correction, before, place, place + 1, level, room.shifts[level], MOST_COST, cost, 0)
        true[level, _NEXT], true[level, _NUM] = place, 0
        true[level + 1, _COST], true[level + 1, _TOKEN] = true[level, _COST] + cost[0], children.tokens[place]
        true[level + 1, _KIND] = kind if rank == 0 else ELSEWHERE
        number = _place_of(children, correction, before_root, level + 1, most, room)
        if number > most:
            return
        found[level] = number


@kernel
def _place_of(children: Children, correction: Correction, before_root: int, depth: int, most: int, room: Room) -> int:
    """The place of the node of the true path at a depth; above ``most`` it may be any larger number."""
    true, number, own = room.true, depth, room.true[depth, _COST]
    for level in range(depth):
        kind, cost, true_place = true[level, _KIND], true[level, _COST], true[level, _NEXT]
        start, end = children.starts[kind, level], children.ends[kind, level]
        before = before_of(correction, true[level - 1, _TOKEN] if level > 0 else before_root, true[level, _TOKEN])
        # Its cost is larger than it was at the depth before, so that more may be within it.
        num, shift, costs = true[level, _NUM], room.shifts[level], room.true_costs[level]
        num = add_costs(children, correction, before, start, end, level, shift, own - cost, costs, num)
        true[level, _NUM] = num
        for place in range(start, start + num):
            reached, limit = cost + costs[place - start], own if place < true_place else own - 1
            if place == true_place or reached > limit:
                continue
            number += 1
            if level + 1 < children.starts.shape[1]:
                walked = room.walked
                walked[level, _TOKEN], walked[level + 1, _TOKEN] = true[level, _TOKEN], children.tokens[place]
                walked[level + 1, _COST] = reached
                walked[level + 1, _KIND] = kind if children.ranks[place] == 0 else ELSEWHERE
                number += _count_below(children, correction, level + 1, limit, most - number, room)
            if number > most:
                return number
    return number


@kernel
def _count_below(children: Children, correction: Correction, depth: int, limit: int, most: int, room: Room) -> int:
    """The nodes below one node whose cost is at most a limit.

    Args:
        children: the candidates of one root.
        correction: of their scores.
        depth: of the node, which is walked on, from 1 to D - 1.
        limit: as large a cost is counted.
        most: the count may end once it is above this.
        room: to work in.
    """
    walked, num_depths, number, level = room.walked, children.starts.shape[1], 0, depth
    _look_below(children, correction, level, limit, room)
    while level >= depth and number <= most:
        index = walked[level, _NEXT]
        if index == walked[level, _NUM]:
            level -= 1
            continue
        walked[level, _NEXT] = index + 1
        reached = walked[level, _COST] + room.costs[level, index]
        if reached > limit:
            continue
        number += 1
        if level + 1 < num_depths:
            place = children.starts[walked[level, _KIND], level] + index
            walked[level + 1, _COST], walked[level + 1, _TOKEN] = reached, children.tokens[place]
            walked[level + 1, _KIND] = walked[level, _KIND] if children.ranks[place] == 0 else ELSEWHERE
            level += 1
            _look_below(children, correction, level, limit, room)
    return number


@inlined_kernel
def _look_below(children: Children, correction: Correction, depth: int, limit: int, room: Room) -> None:
    """Work out the costs of the children of a node that may be within a limit."""
    walked = room.walked
    kind, left = walked[depth, _KIND], limit - walked[depth, _COST]
    start, end, shift = children.starts[kind, depth], children.ends[kind, depth], 0.0
    walked[depth, _NEXT], walked[depth, _NUM] = 0, 0
    if start == end or (not correction.renormalised and children.costs[start] > left):
        return
    before = before_of(correction, walked[depth - 1, _TOKEN], walked[depth, _TOKEN])
    if correction.renormalised:
        shift = shift_of(children, correction, before, kind, depth)
    walked[depth, _NUM] = add_costs(children, correction, before, start, end, depth, shift, left, room.costs[depth], 0)
