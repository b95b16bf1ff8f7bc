"""The best-first tree: candidates taken from a heap in the order of nodes."""

import numpy as np

from simlab.arrays import Doubles, Ints, Longs, Shorts
from simlab.grid import STEPS_PER_NAT
from simlab.jit import borrowing_kernel, inlined_kernel, kernel
from simlab.policies.edges.children import ELSEWHERE, SPINE, Children
from simlab.policies.edges.correction import Correction, fit_weights
from simlab.policies.kernels.corrected_step import ABOVE_LIMIT, candidate_cost, parent_context

TOKENS, PARENTS, DEPTHS, RANKS, KINDS = 0, 1, 2, 3, 4
"""The rows of a tree."""

_PARENT, _PLACE = 0, 1

_NO_LIMIT = 1 << 40
"""No path costs as much."""

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
    """The best candidates whose parents are taken, one after the other.

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
    tree, costs = np.empty((5, budget + 1), np.int32), np.empty(budget + 1, np.int64)
    tree[TOKENS, 0], tree[PARENTS, 0], tree[DEPTHS, 0], tree[RANKS, 0], tree[KINDS, 0] = root_token, -1, 0, 0, SPINE
    costs[0], num_taken = 0, np.zeros(children.starts.shape[1] + 1, np.int32)
    if correction.weights.size > 0:
        fit_weights(correction, children)
        waiting = np.empty((2, budget + 1), np.int32)
        num = _take_corrected(children, correction, before_root, width, tree, costs, waiting, num_taken)
    else:
        offered, heap = np.empty((2, 2 * budget + 2), np.int32), np.empty(2 * budget + 2, np.int32)
        num = _take(children, width, tree, costs, num_taken, offered, np.empty(2 * budget + 2, np.int64), heap)
    scores = np.empty(num + 1, np.float64)
    for i in range(num + 1):
        scores[i] = -costs[i] / STEPS_PER_NAT + 0.0
    return tree[:, : num + 1].copy(), scores


@borrowing_kernel
def _take(
    children: Children,
    width: int,
    tree: Ints,
    costs: Longs,
    num_taken: Ints,
    offered: Ints,
    offered_costs: Longs,
    heap: Ints,
) -> int:
    """Take the best candidate from a heap, offer its next sibling and its first child; repeat. The number taken.

    A candidate is offered only after its parent and its better siblings were taken, and all of
    these come before it in the order of nodes, so candidates are taken in exactly that order.
    """
    num_depths, budget = children.starts.shape[1], costs.size - 1
    num_offered, heap_size, node, opened = 0, 0, 0, 0
    while node < budget:
        if opened >= 0:
            # The first child of the node that has just entered.
            depth, kind = tree[DEPTHS, opened], tree[KINDS, opened]
            if depth < num_depths and children.starts[kind, depth] < children.ends[kind, depth]:
                place = children.starts[kind, depth]
                offered[_PARENT, num_offered], offered[_PLACE, num_offered] = opened, place
                offered_costs[num_offered] = costs[opened] + children.costs[place]
                heap[heap_size] = num_offered
                num_offered, heap_size = num_offered + 1, heap_size + 1
                _sift_up(heap, heap_size, offered, offered_costs, children.ranks, tree)
        if heap_size == 0:
            break
        top, node = heap[0], node + 1
        parent, place = offered[_PARENT, top], offered[_PLACE, top]
        _enter(children, tree, node, parent, place)
        kind, depth = tree[KINDS, parent], tree[DEPTHS, parent]
        costs[node] = offered_costs[top]
        num_taken[depth + 1] += 1
        opened = node if num_taken[depth + 1] <= width else -1
        if place + 1 < children.ends[kind, depth]:
            offered[_PLACE, top] = place + 1
            offered_costs[top] = costs[parent] + children.costs[place + 1]
        else:
            heap_size -= 1
            heap[0] = heap[heap_size]
        _sift_down(heap, heap_size, offered, offered_costs, children.ranks, tree)
    return node


@inlined_kernel
def _enter(children: Children, tree: Ints, node: int, parent: int, place: int) -> None:
    """A candidate becomes a node."""
    rank, kind = children.ranks[place], tree[KINDS, parent]
    tree[TOKENS, node], tree[PARENTS, node], tree[RANKS, node] = children.tokens[place], parent, rank
    tree[DEPTHS, node], tree[KINDS, node] = tree[DEPTHS, parent] + 1, kind if rank == 0 else ELSEWHERE


@borrowing_kernel
def _take_corrected(
    children: Children,
    correction: Correction,
    before_root: int,
    width: int,
    tree: Ints,
    costs: Longs,
    waiting: Ints,
    num_taken: Ints,
) -> int:
    """Keep the best candidates offered so far in order; go through them and offer the children of each.

    Children come behind their parent, so what was gone through stays where it is. A list is worked out up to the first
    candidate that could not enter whatever the correction, which is at most 0, adds to it.
    """
    num_depths, budget, num, parents, places = children.starts.shape[1], costs.size - 1, 0, waiting[0], waiting[1]
    for node in range(budget + 1):
        if node > num:
            break
        if node > 0:
            _enter(children, tree, node, parents[node], places[node])
        depth, kind, cost = tree[DEPTHS, node], tree[KINDS, node], costs[node]
        num_taken[depth] += 1
        if depth == num_depths or node == budget or num_taken[depth] > max(width, depth == 0):
            continue
        first = tree[TOKENS, tree[PARENTS, node]] if node > 0 else before_root
        above = parent_context(children, correction, first, tree[TOKENS, node], kind, depth)
        for place in range(children.starts[kind, depth], children.ends[kind, depth]):
            step = candidate_cost(children, correction, above, place, costs[num] - cost if num == budget else _NO_LIMIT)
            if step == ABOVE_LIMIT:
                break
            num = _keep(children, tree, costs, waiting, num, node, place, cost + step)
    return num


@inlined_kernel
def _keep(
    children: Children, tree: Ints, costs: Longs, waiting: Ints, num: int, parent: int, place: int, cost: int
) -> int:
    """Put a candidate where it belongs among those that are kept; the last goes out if there are too many of them.

    Args:
        children: the candidates.
        tree: the nodes taken so far, down to the candidate's parent.
        costs: of the candidates that are kept, and of the nodes before them.
        waiting: their parents and places.
        num: how many there are.
        parent: of the candidate; no candidate belongs before it.
        place: of the candidate.
        cost: of its path.

    Returns:
        How many there are now.
    """
    parents, places, rank = waiting[0], waiting[1], children.ranks[place]
    at = num + 1
    while at - 1 > parent and (
        costs[at - 1] > cost
        or (
            costs[at - 1] == cost
            and is_before(tree, parent, rank, parents[at - 1], int(children.ranks[places[at - 1]]))
        )
    ):
        at -= 1
        if at + 1 < costs.size:
            costs[at + 1], parents[at + 1], places[at + 1] = costs[at], parents[at], places[at]
    if at < costs.size:
        costs[at], parents[at], places[at] = cost, parent, place
    return min(num + 1, costs.size - 1)


@borrowing_kernel
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


@borrowing_kernel
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


@borrowing_kernel
def _is_before(one: int, other: int, offered: Ints, costs: Longs, ranks: Ints, tree: Ints) -> bool:
    """Whether a candidate enters before another: the smaller cost, then the smaller tuple of ranks, a prefix first."""
    if costs[one] != costs[other]:
        return bool(costs[one] < costs[other])
    return is_before(
        tree,
        offered[_PARENT, one],
        int(ranks[offered[_PLACE, one]]),
        offered[_PARENT, other],
        int(ranks[offered[_PLACE, other]]),
    )


@borrowing_kernel
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
def insert_true_path(tree: Ints, true_ranks: Ints, insertions: Shorts) -> None:
    """The places of the nodes of the true path.

    Args:
        tree: int32 ``[4, N + 1]`` or more rows, as `take_in_order` has them.
        true_ranks: int32 ``[D]``, of the true tokens; -1 where a token is none of the drafter's, and behind the text.
        insertions: uint16 ``[D]``, to be filled as far as the tree holds the path.
    """
    depth, here = 0, 0
    for node in range(1, tree.shape[1]):
        if depth == true_ranks.size:
            break
        if tree[PARENTS, node] == here and tree[RANKS, node] == true_ranks[depth]:
            insertions[depth] = node
            depth += 1
            here = node
