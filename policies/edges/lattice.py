"""The candidates below the nodes of one tree where what follows a node depends on its path: a lattice of lists.

Lists of scored candidates, of which every one names the list that lies below it. Marginals have one list for each
depth, transitions one for each token that has a row, a pool one for each node that was expanded.
"""

from typing import NamedTuple

import numpy as np

from simlab.arrays import Doubles, Floats, Ints, Longs
from simlab.grid import STEPS_PER_NAT
from simlab.jit import borrowing_kernel, kernel
from simlab.policies.edges.children import ELSEWHERE, SPINE, Children, entropy_of
from simlab.policies.edges.correction import Correction, cost_of

LEAF = -1
"""In place of a list: nothing lies below."""


class Lattice(NamedTuple):
    """Lists of candidates, the best first; list 0 lies below the root.

    Scores are whole numbers of grid steps below 0, so that sums are exact: costs.

    Attributes:
        costs: int32 ``[E]``; within a list they rise, and ranks rise where they are equal.
        ranks: int32 ``[E]``; of a channel, places in the list.
        tokens: int32 ``[E]``, different ones within a list.
        below: int32 ``[E]``, the list below a candidate, a later one than its own; `LEAF`: none.
        starts: int32 ``[L]``, where each list begins.
        ends: int32 ``[L]``.
    """

    costs: Ints
    ranks: Ints
    tokens: Ints
    below: Ints
    starts: Ints
    ends: Ints


class TransitionLists(NamedTuple):
    """The transitions at some roots, as kernels read them.

    Attributes:
        num_rows: int32 ``[N, D]``, of each root.
        previous: int32 ``[sum (S - 1)]``.
        ids: int32 ``[sum S, R]``.
        log_probs: float32 ``[sum S, R]``.
        starts: int64 ``[N + 1]``, the first row of each root.
        most_rows: so many rows of each depth are read.
        top_k: so many candidates of each row are read.
    """

    num_rows: Ints
    previous: Ints
    ids: Ints
    log_probs: Floats
    starts: Longs
    most_rows: int
    top_k: int


class PoolLists(NamedTuple):
    """The pools at some roots, as kernels read them.

    Attributes:
        tokens: int32 ``[sum n]``.
        parents: int32 ``[sum n]``, numbers within the pool of the root.
        log_probs: float32 ``[sum n]``.
        starts: int64 ``[N + 1]``, the first node of each root.
        deepest: deeper nodes are not read.
        price: what a depth costs: a path of d tokens scores log(1 + price * d) less.
    """

    tokens: Ints
    parents: Ints
    log_probs: Floats
    starts: Longs
    deepest: int
    price: float


@kernel
def lattice_of(children: Children) -> Lattice:
    """The lattice of candidates by depth: a list for each place on the spine or elsewhere, and depth.

    Costs, ranks and tokens are shared, not copied. Where the spine and elsewhere have the same list at one depth they
    have it at all.
    """
    num_depths, below = children.starts.shape[1], np.empty(children.costs.size, np.int32)
    for kind in (ELSEWHERE, SPINE):
        for depth in range(num_depths):
            after = depth + 1 < num_depths
            for index in range(children.starts[kind, depth], children.ends[kind, depth]):
                below[index] = ELSEWHERE * num_depths + depth + 1 if after else LEAF
                if kind == SPINE and children.ranks[index] == 0 and after:
                    below[index] = SPINE * num_depths + depth + 1
    starts, ends = children.starts.reshape(-1), children.ends.reshape(-1)
    if num_depths == 0:
        starts, ends = np.zeros(1, np.int32), np.zeros(1, np.int32)
    return Lattice(children.costs, children.ranks, children.tokens, below, starts, ends)


@kernel
def empty_transition_lattice(lists: TransitionLists) -> Lattice:
    """A lattice to be filled by any of these roots; only costs, tokens and lists below change from root to root."""
    stride, most = lists.ids.shape[1], 1
    for root in range(lists.num_rows.shape[0]):
        num = 1
        for depth in range(1, lists.num_rows.shape[1]):
            num += min(lists.num_rows[root, depth], lists.most_rows)
        most = max(most, num)
    lattice = lattice_of_size(most * stride, most)
    for number in range(most):
        start = number * stride
        lattice.starts[number], lattice.ends[number] = start, start + min(lists.top_k, stride)
        for rank in range(stride):
            lattice.ranks[start + rank] = rank
    return lattice


@borrowing_kernel
def fill_transitions(lattice: Lattice, lists: TransitionLists, root: int) -> int:
    """The lists of one root: one for each row that is read, depth by depth.

    A row lies below its token wherever that token is at the depth above; a token without a row that is read is a leaf.
    Rows are copied whole, since all of a depth are one piece; a list ends where no more of it is read.

    Args:
        lattice: from `empty_transition_lattice`.
        lists: the transitions.
        root: one of their roots.

    Returns:
        How many lists there are.
    """
    num_depths, stride = lists.num_rows.shape[1], lists.ids.shape[1]
    first_row, first_list, num, start = lists.starts[root], 0, 1, 0
    for depth in range(num_depths):
        end, rows = start + num * stride, slice(first_row, first_row + num)
        _copy(lattice.costs[start:end], lattice.tokens[start:end], lists.log_probs[rows], lists.ids[rows])
        first_row, first_list = first_row + lists.num_rows[root, depth], first_list + num
        num = min(lists.num_rows[root, depth + 1], lists.most_rows) if depth + 1 < num_depths else 0
        above = first_row - root - 1
        _link(lattice.below[start:end], lattice.tokens[start:end], lists.previous[above : above + num], first_list)
        start = end
    return int(first_list)


@borrowing_kernel
def _copy(costs: Ints, tokens: Ints, log_probs: Floats, ids: Ints) -> None:
    """Candidates of some rows, whatever lies below them; loops as a compiler vectorises them."""
    flat_log_probs, flat_ids = log_probs.reshape(costs.size), ids.reshape(costs.size)
    for index in range(costs.size):
        costs[index] = np.int32(flat_log_probs[index] * np.float32(-STEPS_PER_NAT))
    for index in range(costs.size):
        tokens[index] = flat_ids[index]


@borrowing_kernel
def _link(below: Ints, tokens: Ints, previous: Ints, first_list: int) -> None:
    """Which list lies below each candidate: that of its token, the first of two.

    Args:
        below: int32 ``[E]``, to be filled.
        tokens: int32 ``[E]``, of the candidates.
        previous: int32 ``[L]``, the token above each list.
        first_list: the number of the first.
    """
    for index in range(below.size):
        below[index] = LEAF
    # From behind, so that the first of equal tokens stays; four at a time, and without a branch, which a compiler
    # vectorises. Where fewer are left the first stands for those that are not there.
    for last in range(previous.size, 0, -4):
        a, b, c, d = last - 1, max(last - 2, 0), max(last - 3, 0), max(last - 4, 0)
        token_a, token_b, token_c, token_d = previous[a], previous[b], previous[c], previous[d]
        list_a, list_b = np.int32(first_list + a), np.int32(first_list + b)
        list_c, list_d = np.int32(first_list + c), np.int32(first_list + d)
        for index in range(below.size):
            token, row = tokens[index], below[index]
            row = list_a if token == token_a else row
            row = list_b if token == token_b else row
            row = list_c if token == token_c else row
            below[index] = list_d if token == token_d else row


@kernel
def empty_pool_lattice(lists: PoolLists) -> Lattice:
    """A lattice to be filled by any of these roots."""
    most = 0
    for root in range(lists.starts.size - 1):
        most = max(most, lists.starts[root + 1] - lists.starts[root])
    return lattice_of_size(most, most + 1)


@borrowing_kernel
def fill_pool(lattice: Lattice, lists: PoolLists, root: int) -> int:
    """The lists of one root: its children, and those of each node that has any.

    What a depth costs is part of the candidates' costs, as the difference to the depth above, each on the grid. So a
    path's cost is that of its edges and, exactly, the price of its own depth; it rises along every path.

    Args:
        lattice: from `empty_pool_lattice`.
        lists: the pools.
        root: one of their roots.

    Returns:
        How many lists there are.
    """
    start, end, num = lists.starts[root], lists.starts[root + 1], 1
    lattice.starts[0] = lattice.ends[0] = 0
    node = start
    while node < end:
        first, parent = node, int(lists.parents[node])
        depth = _depth_of(lists, start, parent)
        added = _price_of(lists, depth + 1) - _price_of(lists, depth)
        while node < end and lists.parents[node] == parent:
            index = node - start
            lattice.costs[index] = np.int32(lists.log_probs[node] * np.float32(-STEPS_PER_NAT)) + added
            lattice.tokens[index], lattice.ranks[index], lattice.below[index] = lists.tokens[node], node - first, LEAF
            node += 1
        if depth < lists.deepest:
            number = 0
            if parent > 0:
                number, num = num, num + 1
                lattice.below[parent - 1] = number
            lattice.starts[number], lattice.ends[number] = first - start, node - start
    return num


@borrowing_kernel
def _depth_of(lists: PoolLists, start: int, number: int) -> int:
    """The depth of a node of the pool that begins there; its number is 0 for the root."""
    depth = 0
    while number > 0:
        number, depth = lists.parents[start + number - 1], depth + 1
    return depth


@borrowing_kernel
def _price_of(lists: PoolLists, depth: int) -> int:
    """What a depth costs, in grid steps."""
    return cost_of(-np.log(1.0 + lists.price * depth)) if lists.price > 0.0 else 0


@kernel
def deepest_node(lists: PoolLists) -> int:
    """The depth of the deepest node that is read of these pools; 0 if there is none."""
    deepest = 0
    for root in range(lists.starts.size - 1):
        start, end = lists.starts[root], lists.starts[root + 1]
        for node in range(start, end):
            if node == start or lists.parents[node] != lists.parents[node - 1]:
                deepest = max(deepest, _depth_of(lists, start, lists.parents[node]) + 1)
    return min(deepest, lists.deepest)


@borrowing_kernel
def fill_weights(lattice: Lattice, num_lists: int, correction: Correction, weights: Doubles) -> None:
    """A 3-gram's weight in each list: its own, or times the share of the entropy that the list has.

    As `simlab.policies.edges.correction.fit_weights` has it for depths.

    Args:
        lattice: the candidates.
        num_lists: how many lists there are.
        correction: with the weight.
        weights: float64 ``[L]``, to be filled.
    """
    for number in range(num_lists):
        weights[number] = correction.weight
        if correction.adaptive:
            start, end = lattice.starts[number], lattice.ends[number]
            full = np.log(end - start + 1.0)
            weights[number] *= entropy_of(lattice.costs, start, end) / full if start < end else 0.0


@borrowing_kernel
def find_token(lattice: Lattice, number: int, token: int) -> int:
    """Where a token stands in a list; -1 where it does not."""
    for index in range(lattice.starts[number], lattice.ends[number]):
        if lattice.tokens[index] == token:
            return int(index)
    return -1


@kernel
def lattice_of_size(num_candidates: int, num_lists: int) -> Lattice:
    """A lattice to be filled."""
    return Lattice(
        np.empty(num_candidates, np.int32),
        np.empty(num_candidates, np.int32),
        np.empty(num_candidates, np.int32),
        np.empty(num_candidates, np.int32),
        np.empty(num_lists, np.int32),
        np.empty(num_lists, np.int32),
    )
