"""Where the true path is in the best-first tree of one root, whatever scores its edges."""

from typing import NamedTuple

import numpy as np

from simlab.arrays import Doubles, Floats, Ints, Longs, Shorts
from simlab.grid import STEPS_PER_NAT
from simlab.jit import borrowing_kernel, inlined_kernel, kernel
from simlab.policies.edges.children import SPINE, Children, empty_children, fill_costs, fill_marginal, num_widest
from simlab.policies.edges.correction import Correction, fill_mapped, fit_weights, mapped_limit
from simlab.policies.edges.ngram_counting import root_token, token_before
from simlab.policies.kernels.gather import gather_paths
from simlab.policies.kernels.insertion import (
    CorrectedCountBuffers,
    CountBuffers,
    corrected_count_buffers_for,
    corrected_insertions_into,
    count_buffers_for,
    insertions_into,
)
from simlab.recorded import Roots

# Which of two paths comes first, and a heap of paths in that order: the smaller cost, then the smaller ranks.
#
# Costs are whole numbers, so paths tie; the tuple of ranks from the root down makes the order total.


TOKENS, PARENTS, DEPTHS, RANKS, LISTS = 0, 1, 2, 3, 4
"""The rows of a tree; `LISTS` says which list of candidates lies below a node, -1: none."""

ENTRY_BITS = 20
"""A key of a heap is the cost of a path and, in so many low bits, the number of its entry; trees have fewer nodes."""

LAST_KEY = (1 << 62) - 1
"""Behind every other key."""


@inlined_kernel
def key_of_path(cost: int, entry: int) -> int:
    """The key of an entry."""
    return (cost << ENTRY_BITS) | entry


@inlined_kernel
def cost_of_key(key: int) -> int:
    """The cost of the path of a key."""
    return key >> ENTRY_BITS


@inlined_kernel
def entry_of_key(key: int) -> int:
    """The number of the entry of a key."""
    return key & ((1 << ENTRY_BITS) - 1)


@borrowing_kernel
def sift_up(heap: Longs, size: int, parents: Ints, ranks: Ints, tree: Ints) -> None:
    """Put the last key of a heap where it belongs.

    Args:
        heap: int64, keys, the one that comes first on top; there is room for one more.
        size: how many there are.
        parents: int32, the node above the path's last, by entry.
        ranks: int32, the last rank of the path, by entry.
        tree: int32 ``[5, N + 1]``, the parents and what is above them.
    """
    index, moving = size - 1, heap[size - 1]
    while index > 0:
        above = (index - 1) // 2
        if not _goes_first(moving, heap[above], parents, ranks, tree):
            break
        heap[index] = heap[above]
        index = above
    heap[index] = moving


@borrowing_kernel
def sift_down(heap: Longs, size: int, parents: Ints, ranks: Ints, tree: Ints) -> None:
    """Put the top key of a heap where it belongs; arguments as of `sift_up`."""
    # With a last key behind the others both children of a place can be read, and are compared without a branch.
    heap[size] = LAST_KEY
    index, moving = 0, heap[0]
    while 2 * index + 1 < size:
        below = 2 * index + 1
        below += _goes_first(heap[below + 1], heap[below], parents, ranks, tree)
        if _goes_first(moving, heap[below], parents, ranks, tree):
            break
        heap[index] = heap[below]
        index = below
    heap[index] = moving


@borrowing_kernel
def _goes_first(key: int, other_key: int, parents: Ints, ranks: Ints, tree: Ints) -> bool:
    """Whether a key comes before another: the smaller cost, then the smaller tuple of ranks, a prefix first."""
    if (key ^ other_key) >= (1 << ENTRY_BITS):
        return bool(key < other_key)
    first, second = entry_of_key(key), entry_of_key(other_key)
    return is_before(tree, parents[first], ranks[first], parents[second], ranks[second])


@borrowing_kernel
def is_before(tree: Ints, parent: int, rank: int, other_parent: int, other_rank: int) -> bool:
    """Whether the ranks of one path come before those of another, a prefix first; the paths are not the same.

    Args:
        tree: int32 ``[5, N + 1]``.
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


class EdgeScores(NamedTuple):
    """What the edges of best-first trees are scored with.

    Attributes:
        top_k: ranks that are read at each depth.
        edge_map: as in `simlab.policies.edges.models.EdgeModel`; None: no map.
        correction: of a 3-gram; None: none.
    """

    top_k: int
    edge_map: Doubles | None
    correction: Correction | None


class Workspace(NamedTuple):
    """Arrays that a search for true places works in, made once for many roots.

    Attributes:
        children: for the candidates of a root.
        buffers: to count paths in.
        corrected_buffers: to count paths in where a 3-gram corrects the scores.
        guess: int64 ``[1]``, a limit of costs to begin with; it changes how long things take and nothing else.
    """

    children: Children
    buffers: CountBuffers
    corrected_buffers: CorrectedCountBuffers
    guess: Longs


@kernel
def workspace_for(roots: Roots, top_k: int, most: int) -> Workspace:
    """A workspace for any of these roots, and places up to ``most``."""
    num_depths, widest = roots.counts.shape[1], 1
    for root in range(roots.counts.shape[0]):
        widest = max(widest, num_widest(roots.counts[root], top_k))
    children, buffers = empty_children(num_depths, widest), count_buffers_for(num_depths, most)
    return Workspace(
        children, buffers, corrected_count_buffers_for(num_depths, widest), np.full(1, 4 * STEPS_PER_NAT, np.int64)
    )


@inlined_kernel
def find_true_places(roots: Roots, top_k: int, root: int, most: int, workspace: Workspace, insertions: Shorts) -> None:
    """The places of the true path at one root, by the drafter's own scores.

    Args:
        roots: of all texts.
        top_k: ranks that are read at each depth.
        root: one of the roots.
        most: places above it are `simlab.policies.kernels.insertion.NEVER`.
        workspace: for these roots and places.
        insertions: uint16 ``[R, D]``; the row of the root is filled.
    """
    counts, true_ranks, start = roots.counts[root], roots.true_ranks[root], roots.starts[root]
    limit = _limit(roots.log_probs, counts, true_ranks, start, top_k, most)
    fill_costs(workspace.children, roots.log_probs, counts, start, top_k, limit)
    insertions_into(workspace.children, true_ranks, most, workspace.buffers, insertions[root], limit)


@borrowing_kernel
def find_mapped_true_places(
    roots: Roots, top_k: int, edge_map: Doubles, root: int, most: int, workspace: Workspace, insertions: Shorts
) -> None:
    """The places of the true path at one root, by mapped scores; arguments as of `find_true_places`.

    A map takes long, so only as many candidates are sent through it as the first nodes need.
    """
    counts, true_ranks, start = roots.counts[root], roots.true_ranks[root], roots.starts[root]
    children = workspace.children
    highest = mapped_limit(roots.log_probs, counts, true_ranks, start, top_k, edge_map)
    limit = min(highest, workspace.guess[0])
    fill_mapped(children, roots.ids, roots.log_probs, counts, start, top_k, edge_map, limit)
    while limit < highest:
        number, _, _ = gather_paths(children, SPINE, 0, counts.size, limit, workspace.buffers.other)
        if number > most:
            workspace.guess[0] = limit - limit // 32
            break
        limit = grown_limit(limit, highest)
        workspace.guess[0] = limit
        fill_mapped(children, roots.ids, roots.log_probs, counts, start, top_k, edge_map, limit)
    insertions_into(children, true_ranks, most, workspace.buffers, insertions[root], limit)


@inlined_kernel
def grown_limit(limit: int, highest: int) -> int:
    """The limit to look within next: a quarter more, and some of a nat, so that few are tried whatever costs are."""
    return min(highest, limit + limit // 4 + STEPS_PER_NAT // 4)


@borrowing_kernel
def find_corrected_true_places(
    roots: Roots,
    top_k: int,
    correction: Correction,
    text: int,
    root: int,
    most: int,
    workspace: Workspace,
    insertions: Shorts,
) -> None:
    """The places of the true path at one root, by scores that a 3-gram corrects; arguments as of `find_true_places`.

    The text is counted up to the root, if its counts are read.
    """
    children, buffers = workspace.children, workspace.corrected_buffers
    fill_marginal(children, roots.ids, roots.log_probs, roots.counts[root], roots.starts[root], top_k)
    fit_weights(correction, children)
    before, token = token_before(roots, text, root), root_token(roots, root)
    ranks, row = roots.true_ranks[root], insertions[root]
    corrected_insertions_into(children, correction, before, token, ranks, ranks.size, most, buffers, row)


@inlined_kernel
def _limit(log_probs: Floats, counts: Ints, true_ranks: Ints, start: int, top_k: int, most: int) -> int:
    """What the true path costs as far as it may be among the first nodes; -1 where its first token is not.

    All paths that have a smaller or equal rank at each depth come before it.
    """
    limit, num_equal, num_before = -1, 1, 0
    for depth in range(counts.size):
        rank = true_ranks[depth]
        if not 0 <= rank < min(counts[depth], top_k):
            break
        num_equal *= rank + 1
        num_before += num_equal
        if num_before > most:
            break
        limit = max(limit, 0) + int(log_probs[start + rank] * np.float32(-STEPS_PER_NAT))
        start += counts[depth]
    return limit


@inlined_kernel
def num_kept_paths(counts: Ints, root: int, top_k: int, most: int) -> int:
    """How many candidates there are below a root, at most so many."""
    total, level = 0, 1
    for depth in range(counts.shape[1]):
        level = min(level * min(counts[root, depth], top_k), most)
        total = min(total + level, most)
    return total
