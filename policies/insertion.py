"""From how many drafted tokens on is a node in the best-first tree? Counted, without building the tree.

The place of a node in the order of nodes is one more than the number of nodes before it: those of a larger path score,
and those of the same score and a smaller tuple of ranks. A walk over the paths, with lighter ones cut off, counts
them; the children of one node lie side by side and need no look at each. Taking candidates from a heap in
order gives the same places (`simlab.policies.best_first`) and takes ten times as long.
"""

from simlab.arrays import Ints, Shorts
from simlab.jit import kernel
from simlab.policies.children import ELSEWHERE, SPINE, Children, find_rank

NEVER = 65535
"""Stands for a node that is not among the first ones; so many are never asked for."""


@kernel
def insertions_into(children: Children, true_ranks: Ints, num_true: int, most: int, stack: Ints, found: Shorts) -> None:
    """The places of the nodes of the true path in the order of nodes, from 1.

    Args:
        children: the candidates of one root.
        true_ranks: int32 ``[D]``, of the true tokens; -1 where a token is none of the drafter's.
        num_true: true tokens left in the text, or more.
        most: places above it are `NEVER`.
        stack: int32 ``[3, D + 1]``, room to work in.
        found: uint16 ``[D]``, to be filled.
    """
    num_depths = children.starts.shape[1]
    found[:] = NEVER
    kind, own = SPINE, 0
    for depth in range(min(num_depths, num_true)):
        place = find_rank(children, kind, depth, true_ranks[depth])
        if place < 0:
            return
        own += children.costs[place]
        number = place_of(children, true_ranks, depth + 1, own, most, stack)
        if number > most:
            return
        found[depth] = number
        kind = kind if true_ranks[depth] == 0 else ELSEWHERE


@kernel
def place_of(children: Children, ranks: Ints, depth: int, own: int, most: int, stack: Ints) -> int:
    """The place of a path's last node in the order of nodes; above ``most`` it may be any larger number.

    Args:
        children: the candidates of one root.
        ranks: int32, ``ranks[:depth]`` lead to the node.
        depth: of the node, from 1.
        own: the cost of its path.
        most: places above it need not be told apart.
        stack: int32 ``[3, D + 1]``, room to work in.
    """
    before, cost, kind = 0, 0, SPINE
    for level in range(depth):
        step = 0
        for place in range(children.starts[kind, level], children.ends[kind, level]):
            reached = cost + children.costs[place]
            if reached > own:
                break
            rank = children.ranks[place]
            if rank == ranks[level]:
                step = children.costs[place]
                continue
            limit = own if rank < ranks[level] else own - 1
            if reached <= limit:
                below = kind if rank == 0 else ELSEWHERE
                before += 1 + count_below(children, level + 1, below, reached, limit, most - before, stack)
                if before >= most:
                    return before + 1
        cost += step
        kind = kind if ranks[level] == 0 else ELSEWHERE
        before += level + 1 < depth
    return before + 1


@kernel
def count_below(children: Children, depth: int, kind: int, cost: int, limit: int, most: int, stack: Ints) -> int:
    """The nodes below one node whose cost is at most a limit.

    Args:
        children: the candidates of one root.
        depth: of the node.
        kind: `SPINE` or `ELSEWHERE`.
        cost: of the node's path.
        limit: as large a cost is counted.
        most: the count may end once it is above this.
        stack: int32 ``[3, D + 1]``, room to work in.
    """
    num_depths = children.starts.shape[1]
    places, path_costs, kinds = stack[0], stack[1], stack[2]
    if depth == num_depths:
        return 0
    level = depth
    path_costs[level], kinds[level], places[level] = cost, kind, children.starts[kind, level]
    number = _num_within(children, kind, level, limit - cost)
    while level >= depth and number <= most:
        place, deeper = places[level], level + 1
        if deeper == num_depths or place == children.ends[kinds[level], level]:
            level -= 1
            continue
        reached = path_costs[level] + children.costs[place]
        if reached > limit:
            level -= 1
            continue
        places[level] = place + 1
        below = kinds[level] if children.ranks[place] == 0 else ELSEWHERE
        num = _num_within(children, below, deeper, limit - reached)
        if num > 0:
            number += num
            path_costs[deeper], kinds[deeper], places[deeper] = reached, below, children.starts[below, deeper]
            level = deeper
        elif below == ELSEWHERE and (kinds[level] == ELSEWHERE or children.ranks[children.starts[SPINE, level]] == 0):
            level -= 1  # the siblings behind it cost as much or more, and none of them goes on the spine
    return number


@kernel
def _num_within(children: Children, kind: int, depth: int, limit: int) -> int:
    """How many candidates of a list cost at most a limit."""
    start, end = children.starts[kind, depth], children.ends[kind, depth]
    place = start
    while place < end and children.costs[place] <= limit:
        place += 1
    return int(place - start)


@kernel
def num_paths(children: Children, most: int) -> int:
    """How many candidates there are below a root, at most so many."""
    total, level = 0, 1
    for depth in range(children.starts.shape[1]):
        level = min(level * (children.ends[0, depth] - children.starts[0, depth]), most)
        total = min(total + level, most)
    return total
