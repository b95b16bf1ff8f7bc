"""Trees on a lattice: candidates taken from a heap in the order of nodes, or all children of a node at once."""

from typing import NamedTuple

import numpy as np

from simlab.arrays import Doubles, Ints, Longs, Shorts
from simlab.grid import STEPS_PER_NAT
from simlab.jit import borrowing_kernel, inlined_kernel, kernel
from simlab.policies.edges.correction import Correction
from simlab.policies.edges.lattice import LEAF, Lattice, find_token
from simlab.policies.kernels.corrected_step import ABOVE_LIMIT, candidate_cost, list_context
from simlab.policies.kernels.true_places import (
    DEPTHS,
    LISTS,
    PARENTS,
    RANKS,
    TOKENS,
    cost_of_key,
    entry_of_key,
    is_before,
    key_of_path,
    sift_down,
    sift_up,
)

# How many nodes of a lattice come before those of the true path: all that budgets read, without building trees.
#
# A node comes before another if its path costs less, or as much and its ranks come first. A walk into the depth, list
# by list, meets paths in the order of their ranks; so of those that cost as much the ones that are met first come
# first.


_NO_COUNT_LIMIT = 1 << 40
"""No path costs as much."""


class WalkBuffers(NamedTuple):
    """What a walk keeps of each depth; made once for many roots.

    Attributes:
        candidates: int32 ``[L]``, the candidate that is next.
        ends: int32 ``[L]``, where its list ends.
        costs: int64 ``[L]``, of the path above it.
        path: int32 ``[L]``, the candidates of the true path.
    """

    candidates: Ints
    ends: Ints
    costs: Longs
    path: Ints


@kernel
def walk_buffers_for(lattice: Lattice) -> WalkBuffers:
    """Buffers for a lattice; lists lie below earlier ones, so that no path is longer than there are lists."""
    size = lattice.starts.size
    return WalkBuffers(
        np.empty(size, np.int32), np.empty(size, np.int32), np.empty(size, np.int64), np.empty(size, np.int32)
    )


@borrowing_kernel
def insert_true_by_count(lattice: Lattice, text: Ints, most: int, walk: WalkBuffers, insertions: Shorts) -> int:
    """The places of the nodes of the true path in the best-first tree, as `take_into` has it.

    Args:
        lattice: the candidates; ranks are places in the lists.
        text: int32, the true tokens behind the root.
        most: drafted tokens.
        walk: to work in.
        insertions: uint16 ``[D]``, to be filled as far as the tree holds the path.

    Returns:
        The number of nodes below the root, at most ``most``.
    """
    depth, number, cost, before = 0, 0, 0, 0
    while depth < min(text.size, insertions.size) and number != LEAF:
        index = find_token(lattice, number, text[depth])
        if index < 0:
            break
        walk.path[depth] = index
        cost += lattice.costs[index]
        before = _num_before(lattice, depth + 1, cost, most, walk)
        if before == most:
            return most
        insertions[depth] = before + 1
        depth, number = depth + 1, lattice.below[index]
    return _num_before(lattice, 0, _NO_COUNT_LIMIT, most, walk)


@borrowing_kernel
def _num_before(lattice: Lattice, length: int, cost: int, most: int, walk: WalkBuffers) -> int:
    """How many nodes come before that of the true path at some length, at most ``most``.

    Args:
        lattice: the candidates.
        length: of the path; 0: all nodes are counted that cost no more.
        cost: of the path.
        most: no more are counted.
        walk: with the path.
    """
    indices, ends, costs, path = walk.candidates, walk.ends, walk.costs, walk.path
    indices[0], ends[0], costs[0] = lattice.starts[0], lattice.ends[0], 0
    # So many steps of the walk follow the true path; -1 where its node was met.
    depth, followed, limit, num = 0, 0 if length > 0 else -1, cost, 0
    while depth >= 0 and num < most:
        index = indices[depth]
        if index == ends[depth] or costs[depth] + lattice.costs[index] > limit:
            depth -= 1
            continue
        indices[depth] = index + 1
        if depth == followed and index == path[depth]:
            followed += 1
            if followed == length:
                # What costs as much comes behind from here on, and so does all below the node.
                followed, limit = -1, cost - 1
                continue
        num, below = num + 1, lattice.below[index]
        if below != LEAF:
            costs[depth + 1] = costs[depth] + lattice.costs[index]
            depth += 1
            indices[depth], ends[depth] = lattice.starts[below], lattice.ends[below]
    return num


EVERY_NODE = 1 << 30
"""As a width: no tree has so many nodes at a depth."""

_PARENT, _RANK, _PLACE = 0, 1, 2

_NO_LIMIT = 1 << 40
"""No path costs as much."""


class TreeBuffers(NamedTuple):
    """Arrays that a tree is built in, made once for many roots.

    Attributes:
        tree: int32 ``[5, n + 1]``, tokens, parents, depths, ranks of the nodes, the root first, and the lists below
            them.
        costs: int64 ``[n + 1]``, of their paths.
        num_taken: int32 ``[n + 2]``, nodes of each depth.
        heap: int64 ``[n + 2]``, keys of candidates that wait.
        offered: int32 ``[3, n + 2]``, their parents, ranks and places in the lists.
    """

    tree: Ints
    costs: Longs
    num_taken: Ints
    heap: Longs
    offered: Ints


@kernel
def tree_buffers_for(most: int) -> TreeBuffers:
    """Buffers for trees of up to so many drafted tokens."""
    return TreeBuffers(
        np.empty((5, most + 1), np.int32),
        np.empty(most + 1, np.int64),
        np.empty(most + 2, np.int32),
        np.empty(most + 2, np.int64),
        np.empty((3, most + 2), np.int32),
    )


@kernel
def built_tree(buffers: TreeBuffers, num: int) -> tuple[Ints, Doubles]:
    """A tree of so many nodes below the root, out of the buffers that it was built in.

    Returns:
        int32 ``[4, N + 1]``, tokens, parents, depths and ranks of the nodes in order, the root first; and float64
        ``[N + 1]``, their path scores.
    """
    scores = np.empty(num + 1, np.float64)
    for node in range(num + 1):
        scores[node] = -buffers.costs[node] / STEPS_PER_NAT + 0.0
    return buffers.tree[:LISTS, : num + 1].copy(), scores


@borrowing_kernel
def take_into(lattice: Lattice, root_token: int, width: int, buffers: TreeBuffers) -> int:
    """Take the best candidate from a heap, offer its next sibling and its first child; repeat. The number taken.

    A candidate is offered only after its parent and its better siblings were taken, and all of
    these come before it in the order of nodes, so candidates are taken in exactly that order.
    """
    tree, costs, num_taken, heap = buffers.tree, buffers.costs, buffers.num_taken, buffers.heap
    parents, ranks, indices = buffers.offered[_PARENT], buffers.offered[_RANK], buffers.offered[_PLACE]
    most, num_offered, heap_size, node, opened = costs.size - 1, 0, 0, 0, 0
    _plant(tree, costs, num_taken, root_token)
    while node < most:
        below = tree[LISTS, opened] if opened >= 0 else LEAF
        if below != LEAF and lattice.starts[below] < lattice.ends[below]:
            # The first child of the node that has just entered.
            index = lattice.starts[below]
            parents[num_offered], ranks[num_offered], indices[num_offered] = opened, lattice.ranks[index], index
            heap[heap_size] = key_of_path(costs[opened] + lattice.costs[index], num_offered)
            num_offered, heap_size = num_offered + 1, heap_size + 1
            sift_up(heap, heap_size, parents, ranks, tree)
        if heap_size == 0:
            break
        top, node = entry_of_key(heap[0]), node + 1
        parent, index = parents[top], indices[top]
        _enter(lattice, tree, node, parent, index)
        depth = tree[DEPTHS, node]
        costs[node] = cost_of_key(heap[0])
        num_taken[depth] += 1
        opened = node if num_taken[depth] <= width else -1
        if index + 1 < lattice.ends[tree[LISTS, parent]]:
            ranks[top], indices[top] = lattice.ranks[index + 1], index + 1
            heap[0] = key_of_path(int(costs[parent] + lattice.costs[index + 1]), top)
        else:
            heap_size -= 1
            heap[0] = heap[heap_size]
        sift_down(heap, heap_size, parents, ranks, tree)
    return node


@inlined_kernel
def _plant(tree: Ints, costs: Longs, num_taken: Ints, root_token: int) -> None:
    """Begin a tree with its root."""
    tree[TOKENS, 0], tree[PARENTS, 0], tree[DEPTHS, 0], tree[RANKS, 0], tree[LISTS, 0] = root_token, -1, 0, 0, 0
    costs[0] = 0
    for depth in range(num_taken.size):
        num_taken[depth] = 0


@inlined_kernel
def _enter(lattice: Lattice, tree: Ints, node: int, parent: int, index: int) -> None:
    """A candidate becomes a node."""
    tree[TOKENS, node], tree[PARENTS, node], tree[RANKS, node] = lattice.tokens[index], parent, lattice.ranks[index]
    tree[DEPTHS, node], tree[LISTS, node] = tree[DEPTHS, parent] + 1, lattice.below[index]


@borrowing_kernel
def take_corrected_into(
    lattice: Lattice,
    correction: Correction,
    weights: Doubles,
    before_root: int,
    root_token: int,
    width: int,
    buffers: TreeBuffers,
) -> int:
    """Keep the best candidates offered so far in order; go through them and offer the children of each.

    Children come behind their parent, so what was gone through stays where it is. A list is worked out up to the first
    candidate that could not enter whatever the correction, which is at most 0, adds to it. A list is worked out anew
    below each node, since the correction reads the node's token and the one above.

    Args:
        lattice: the candidates.
        correction: of their scores; not empty.
        weights: float64 ``[L]``, of the 3-gram in each list.
        before_root: the token before the root; -1 if there is none.
        root_token: the root.
        width: only the first so many nodes of a depth have children.
        buffers: to work in.

    Returns:
        The number of nodes below the root.
    """
    tree, costs, num_taken, waiting = buffers.tree, buffers.costs, buffers.num_taken, buffers.offered
    most, num, parents, indices = costs.size - 1, 0, waiting[_PARENT], waiting[_PLACE]
    _plant(tree, costs, num_taken, root_token)
    for node in range(most + 1):
        if node > num:
            break
        if node > 0:
            _enter(lattice, tree, node, parents[node], indices[node])
        depth, below, cost = tree[DEPTHS, node], tree[LISTS, node], costs[node]
        num_taken[depth] += 1
        if below == LEAF or node == most or (depth > 0 and num_taken[depth] > width):
            continue
        first = tree[TOKENS, tree[PARENTS, node]] if node > 0 else before_root
        start, end, weight = int(lattice.starts[below]), int(lattice.ends[below]), float(weights[below])
        above = list_context(correction, first, tree[TOKENS, node], weight, lattice.costs, lattice.tokens, start, end)
        for index in range(start, end):
            step = candidate_cost(lattice, correction, above, index, costs[num] - cost if num == most else _NO_LIMIT)
            if step == ABOVE_LIMIT:
                break
            num = _keep(lattice.ranks, tree, costs, parents, indices, num, node, index, cost + step)
    return num


@inlined_kernel
def _keep(
    ranks: Ints, tree: Ints, costs: Longs, parents: Ints, indices: Ints, num: int, parent: int, index: int, cost: int
) -> int:
    """Put a candidate where it belongs among those that are kept; the last goes out if there are too many of them.

    Args:
        ranks: of all candidates.
        tree: the nodes taken so far, down to the candidate's parent.
        costs: of the candidates that are kept, and of the nodes before them.
        parents: theirs.
        indices: theirs.
        num: how many there are.
        parent: of the candidate; no candidate belongs before it.
        index: of the candidate.
        cost: of its path.

    Returns:
        How many there are now.
    """
    rank, at = ranks[index], num + 1
    while at - 1 > parent and (
        costs[at - 1] > cost
        or (costs[at - 1] == cost and is_before(tree, parent, rank, parents[at - 1], int(ranks[indices[at - 1]])))
    ):
        at -= 1
        if at + 1 < costs.size:
            costs[at + 1], parents[at + 1], indices[at + 1] = costs[at], parents[at], indices[at]
    if at < costs.size:
        costs[at], parents[at], indices[at] = cost, parent, index
    return min(num + 1, costs.size - 1)


@borrowing_kernel
def expand_into(lattice: Lattice, root_token: int, width: int, buffers: TreeBuffers) -> int:
    """Take the best node from a heap and have its first children enter; repeat. The number that entered.

    Args:
        lattice: the candidates.
        root_token: the root.
        width: the most children of a node.
        buffers: to work in.
    """
    tree, costs, heap = buffers.tree, buffers.costs, buffers.heap
    parents, ranks, most = tree[PARENTS], tree[RANKS], costs.size - 1
    _plant(tree, costs, buffers.num_taken, root_token)
    heap[0], num, waiting = 0, 0, 1
    while waiting > 0 and num < most:
        parent = entry_of_key(heap[0])
        waiting -= 1
        heap[0] = heap[waiting]
        sift_down(heap, waiting, parents, ranks, tree)
        below = tree[LISTS, parent]
        if below == LEAF:
            continue
        start = lattice.starts[below]
        for index in range(start, min(lattice.ends[below], start + min(width, most - num))):
            num += 1
            _enter(lattice, tree, num, parent, index)
            costs[num] = costs[parent] + lattice.costs[index]
            heap[waiting] = key_of_path(costs[num], num)
            waiting += 1
            sift_up(heap, waiting, parents, ranks, tree)
    return num


@borrowing_kernel
def insert_true_by_token(tree: Ints, num: int, text: Ints, insertions: Shorts) -> None:
    """The places of the nodes of the true path, by their tokens.

    Args:
        tree: int32 ``[5, N + 1]``, rows as `simlab.policies.kernels.true_places` has them.
        num: nodes below the root.
        text: int32, the true tokens behind the root.
        insertions: uint16 ``[D]``, to be filled as far as the tree holds the path.
    """
    depth, here, deepest = 0, 0, min(text.size, insertions.size)
    for node in range(1, num + 1):
        if depth == deepest:
            break
        if tree[PARENTS, node] == here and tree[TOKENS, node] == text[depth]:
            insertions[depth] = node
            depth, here = depth + 1, node


@borrowing_kernel
def true_reach(lattice: Lattice, text: Ints) -> int:
    """How many true tokens behind the root lie on one path of a lattice.

    Args:
        lattice: the candidates.
        text: int32, the true tokens behind the root.
    """
    depth, below = 0, 0
    while depth < text.size and below != LEAF:
        index = find_token(lattice, below, text[depth])
        if index < 0:
            break
        depth, below = depth + 1, lattice.below[index]
    return depth
