"""The best-first tree of candidates by depth."""

import numpy as np

from simlab.arrays import Doubles, Ints, Longs, Shorts
from simlab.grid import STEPS_PER_NAT
from simlab.jit import borrowing_kernel, kernel
from simlab.policies.edges.children import Children
from simlab.policies.edges.correction import Correction, fit_weights
from simlab.policies.edges.lattice import lattice_of
from simlab.policies.kernels.take_lattice import (
    EVERY_NODE,
    built_tree,
    take_corrected_into,
    take_into,
    tree_buffers_for,
)
from simlab.policies.kernels.true_places import PARENTS, RANKS


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
        as `built_tree` does.
    """
    lattice, buffers = lattice_of(children), tree_buffers_for(budget)
    if correction.weights.size > 0:
        fit_weights(correction, children)
        num_depths = children.starts.shape[1]
        weights = np.empty(2 * num_depths, np.float64)
        for depth in range(num_depths):
            weights[depth] = weights[num_depths + depth] = correction.weights[depth]
        num = take_corrected_into(lattice, correction, weights, before_root, root_token, width, buffers)
    else:
        num = take_into(lattice, root_token, width, buffers)
    return built_tree(buffers, num)


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


@borrowing_kernel
def keep_path_scores(path_scores: Doubles, available: Ints, scores: Doubles, root: int) -> None:
    """One root's entry of available int32 ``[R]``, and of scores float64 ``[R, M]``, where M is not 0."""
    available[root] = path_scores.size - 1
    if scores.shape[1] > 0:
        for node in range(path_scores.size):
            scores[root, node] = path_scores[node]


@borrowing_kernel
def keep_path_costs(costs: Longs, number: int, available: Ints, scores: Doubles, root: int) -> None:
    """As `keep_path_scores` does, from costs int64 of the root and of ``number`` nodes, in grid steps."""
    available[root] = number
    if scores.shape[1] > 0:
        for node in range(number + 1):
            scores[root, node] = costs[node] / -STEPS_PER_NAT + 0.0
