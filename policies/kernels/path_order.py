"""Which of two paths comes first, and a heap of paths in that order: the smaller cost, then the smaller ranks.

Costs are whole numbers, so paths tie; the tuple of ranks from the root down makes the order total.
"""

from simlab.arrays import Ints, Longs
from simlab.jit import borrowing_kernel

TOKENS, PARENTS, DEPTHS, RANKS, LISTS = 0, 1, 2, 3, 4
"""The rows of a tree; `LISTS` says which list of candidates lies below a node, -1: none."""


@borrowing_kernel
def sift_up(heap: Ints, size: int, parents: Ints, ranks: Ints, costs: Longs, tree: Ints) -> None:
    """Put the last entry of a heap where it belongs.

    Args:
        heap: int32, entries, the one that comes first on top.
        size: how many there are.
        parents: int32, the node above the path's last, by entry.
        ranks: int32, the last rank of the path, by entry.
        costs: int64, of the path, by entry.
        tree: int32 ``[5, N + 1]``, the parents and what is above them.
    """
    place, moving = size - 1, heap[size - 1]
    while place > 0:
        above = (place - 1) // 2
        if not _goes_first(moving, heap[above], parents, ranks, costs, tree):
            break
        heap[place] = heap[above]
        place = above
    heap[place] = moving


@borrowing_kernel
def sift_down(heap: Ints, size: int, parents: Ints, ranks: Ints, costs: Longs, tree: Ints) -> None:
    """Put the top entry of a heap where it belongs; arguments as of `sift_up`."""
    place, moving = 0, heap[0]
    while 2 * place + 1 < size:
        below = 2 * place + 1
        if below + 1 < size and _goes_first(heap[below + 1], heap[below], parents, ranks, costs, tree):
            below += 1
        if _goes_first(moving, heap[below], parents, ranks, costs, tree):
            break
        heap[place] = heap[below]
        place = below
    heap[place] = moving


@borrowing_kernel
def _goes_first(one: int, other: int, parents: Ints, ranks: Ints, costs: Longs, tree: Ints) -> bool:
    """Whether an entry comes before another: the smaller cost, then the smaller tuple of ranks, a prefix first."""
    if costs[one] != costs[other]:
        return bool(costs[one] < costs[other])
    return is_before(tree, parents[one], ranks[one], parents[other], ranks[other])


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
