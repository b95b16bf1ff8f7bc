"""The best-first tree: candidates taken from a heap in the order of nodes."""

import numpy as np

from simlab.arrays import Doubles, Ints, Longs, Shorts
from simlab.grid import STEPS_PER_NAT
from simlab.jit import kernel
from simlab.policies.children import ELSEWHERE, SPINE, Children
from simlab.policies.correction import (
    Before,
    Correction,
    before_of,
    corrected_cost,
    fit_weights,
    least_cost,
    shift_of,
)

TOKENS, PARENTS, DEPTHS, RANKS, KINDS = 0, 1, 2, 3, 4
"""The rows of a tree."""

_PARENT, _PLACE, _BOUND = 0, 1, 2


EVERY_NODE = 1 << 30
"""As a width: no tree has so many nodes at a depth."""


@kernel
def take_in_order(
    children: Children,
    correction: Correction,
    before_root: int,
    root_token: int,
    budget: int,
    width: int = EVERY_NODE,
) -> tuple[Ints, Doubles]:
    """Take the best candidate, offer its next sibling and its first child; repeat.

    A candidate is offered only after its parent and its better siblings were taken, and all of
    these come before it in the order of nodes, so candidates are taken in exactly that order.

    With a correction a candidate is first offered under a bound: its score without the correction, which never
    raises it. What it stands for is worked out when the bound is taken, and offered; so most are never worked out.

    Args:
        children: the candidates.
        correction: of their scores.
        before_root: the token before the root; -1 if there is none.
        root_token: the root.
        budget: drafted tokens, fewer where the candidates run out.
        width: only the first so many nodes of a depth have children.

    Returns:
        int32 ``[5, N + 1]``, tokens, parents, depths, ranks and kinds of the nodes in order, the root first; and
        float64 ``[N + 1]``, their path scores.
    """
    num_depths, corrected = children.starts.shape[1], correction.weights.size > 0
    tree, costs = np.empty((5, budget + 1), np.int32), np.empty(budget + 1, np.int64)
    tree[TOKENS, 0], tree[PARENTS, 0], tree[DEPTHS, 0], tree[RANKS, 0], tree[KINDS, 0] = root_token, -1, 0, 0, SPINE
    costs[0] = 0
    shifts, befores = np.zeros(budget + 1, np.float64), np.empty((budget + 1 if corrected else 0, 6), np.int64)
    fit_weights(correction, children)
    room = (budget + 1) * (1 + int((children.ends - children.starts).max())) if corrected else 2 * budget + 2
    offered, offered_costs, heap = np.empty((3, room), np.int32), np.empty(room, np.int64), np.empty(room, np.int32)
    num_offered, heap_size, node, opened = 0, 0, 0, 0
    num_taken = np.zeros(num_depths + 1, np.int32)
    while node < budget:
        if opened >= 0:
            # The first child of the node that has just entered.
            depth, kind = tree[DEPTHS, opened], tree[KINDS, opened]
            if depth < num_depths and children.starts[kind, depth] < children.ends[kind, depth]:
                place = children.starts[kind, depth]
                if corrected:
                    shifts[opened] = _look_before(children, correction, before_root, tree, opened, befores[opened])
                step = least_cost(children, int(place), float(shifts[opened]))
                offered[_PARENT, num_offered], offered[_PLACE, num_offered] = opened, place
                offered[_BOUND, num_offered], offered_costs[num_offered] = corrected, costs[opened] + step
                heap[heap_size] = num_offered
                num_offered, heap_size = num_offered + 1, heap_size + 1
                _sift_up(heap, heap_size, offered, offered_costs, children.ranks, tree)
            opened = -1
        if heap_size == 0:
            break
        top = heap[0]
        parent, place, cost = offered[_PARENT, top], offered[_PLACE, top], offered_costs[top]
        kind, depth = tree[KINDS, parent], tree[DEPTHS, parent]
        has_next = place + 1 < children.ends[kind, depth]
        is_bound = offered[_BOUND, top] == 1
        if is_bound:
            before = _recall(befores[parent])
            cost = costs[parent] + corrected_cost(children, correction, before, depth, place, float(shifts[parent]))
            offered[_BOUND, top], offered_costs[top] = 0, cost
            _sift_down(heap, heap_size, offered, offered_costs, children.ranks, tree)
        else:
            node += 1
            rank = children.ranks[place]
            tree[TOKENS, node], tree[PARENTS, node], tree[RANKS, node] = children.tokens[place], parent, rank
            tree[DEPTHS, node], tree[KINDS, node] = depth + 1, kind if rank == 0 else ELSEWHERE
            costs[node] = cost
            num_taken[depth + 1] += 1
            opened = node if num_taken[depth + 1] <= width else -1
            if has_next and not corrected:
                offered[_PLACE, top] = place + 1
                offered_costs[top] = costs[parent] + children.costs[place + 1]
            else:
                heap_size -= 1
                heap[0] = heap[heap_size]
            _sift_down(heap, heap_size, offered, offered_costs, children.ranks, tree)
        if has_next and is_bound:
            step = least_cost(children, place + 1, float(shifts[parent]))
            offered[_PARENT, num_offered], offered[_PLACE, num_offered] = parent, place + 1
            offered[_BOUND, num_offered], offered_costs[num_offered] = 1, costs[parent] + step
            heap[heap_size] = num_offered
            num_offered, heap_size = num_offered + 1, heap_size + 1
            _sift_up(heap, heap_size, offered, offered_costs, children.ranks, tree)
    scores = np.empty(node + 1, np.float64)
    for i in range(node + 1):
        scores[i] = -costs[i] / STEPS_PER_NAT + 0.0
    return tree[:, : node + 1].copy(), scores


@kernel
def _look_before(
    children: Children, correction: Correction, before_root: int, tree: Ints, node: int, row: Longs
) -> float:
    """Fill in what stands before the children of a node; what shifts their scores."""
    above, kind, depth = tree[PARENTS, node], tree[KINDS, node], tree[DEPTHS, node]
    before = before_of(correction, tree[TOKENS, above] if above >= 0 else before_root, tree[TOKENS, node])
    row[0], row[1], row[2] = before.first, before.second, before.pair
    row[3], row[4], row[5] = before.last, before.pair_in_text, before.last_in_text
    return shift_of(children, correction, before, kind, depth) if correction.renormalised else 0.0


@kernel
def _recall(row: Longs) -> Before:
    return Before(row[0], row[1], row[2], row[3], row[4], row[5])


@kernel
def _sift_up(heap: Ints, size: int, offered: Ints, costs: Longs, ranks: Ints, tree: Ints) -> None:
    """Put the last entry where it belongs."""
    place, moving = size - 1, heap[size - 1]
    while place > 0:
        above = (place - 1) // 2
        if not _is_before(moving, heap[above], offered, costs, ranks, tree):
            break
        heap[place] = heap[above]
        place = above
    heap[place] = moving


@kernel
def _sift_down(heap: Ints, size: int, offered: Ints, costs: Longs, ranks: Ints, tree: Ints) -> None:
    """Put the top entry where it belongs."""
    place, moving = 0, heap[0]
    while 2 * place + 1 < size:
        below = 2 * place + 1
        if below + 1 < size and _is_before(heap[below + 1], heap[below], offered, costs, ranks, tree):
            below += 1
        if _is_before(moving, heap[below], offered, costs, ranks, tree):
            break
        heap[place] = heap[below]
        place = below
    heap[place] = moving


@kernel
def _is_before(one: int, other: int, offered: Ints, costs: Longs, ranks: Ints, tree: Ints) -> bool:
    """Whether a candidate enters before another: the smaller cost, then the smaller tuple of ranks, a prefix first.

    A bound goes before a cost of the same size: what it stands for may have that cost and smaller ranks.
    """
    if costs[one] != costs[other]:
        return bool(costs[one] < costs[other])
    if offered[_BOUND, one] != offered[_BOUND, other]:
        return bool(offered[_BOUND, one] > offered[_BOUND, other])
    return is_before(
        tree,
        offered[_PARENT, one],
        int(ranks[offered[_PLACE, one]]),
        offered[_PARENT, other],
        int(ranks[offered[_PLACE, other]]),
    )


@kernel
def is_before(tree: Ints, parent: int, rank: int, other_parent: int, other_rank: int) -> bool:
    """Whether the ranks of one path come before those of another, a prefix first; the paths are not the same.

    Args:
        tree: int32 ``[5, N + 1]``, rows as `take_in_order` has them.
        parent: the node above the last of one path.
        rank: the last of its ranks.
        other_parent: the same of the other path.
        other_rank: the same of the other path.
    """
    is_shallower = tree[DEPTHS, parent] < tree[DEPTHS, other_parent]
    while tree[DEPTHS, parent] > tree[DEPTHS, other_parent]:
        parent, rank = tree[PARENTS, parent], tree[RANKS, parent]
    while tree[DEPTHS, other_parent] > tree[DEPTHS, parent]:
        other_parent, other_rank = tree[PARENTS, other_parent], tree[RANKS, other_parent]
    while parent != other_parent:
        parent, rank = tree[PARENTS, parent], tree[RANKS, parent]
        other_parent, other_rank = tree[PARENTS, other_parent], tree[RANKS, other_parent]
    return bool(rank < other_rank or (rank == other_rank and is_shallower))


@kernel
def insert_path(tree: Ints, follows: Ints, insertions: Shorts) -> None:
    """The places of the nodes of the true path in a tree whose nodes are in order.

    Args:
        tree: int32 ``[5, N + 1]``, rows as `take_in_order` has them.
        follows: int32, the true tokens below the root.
        insertions: uint16 ``[D]``, to be filled as far as the tree holds the path.
    """
    depth, here = 0, 0
    for node in range(1, tree.shape[1]):
        if depth == min(follows.size, insertions.size):
            break
        if tree[PARENTS, node] == here and tree[TOKENS, node] == follows[depth]:
            insertions[depth] = node
            depth += 1
            here = node
