"""Which of two paths comes first, and a heap of paths in that order: the smaller cost, then the smaller ranks.

Costs are whole numbers, so paths tie; the tuple of ranks from the root down makes the order total.
"""

from simlab.arrays import Ints, Longs
from simlab.jit import borrowing_kernel, inlined_kernel

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
    place, moving = size - 1, heap[size - 1]
    while place > 0:
        above = (place - 1) // 2
        if not _goes_first(moving, heap[above], parents, ranks, tree):
            break
        heap[place] = heap[above]
        place = above
    heap[place] = moving


@borrowing_kernel
def sift_down(heap: Longs, size: int, parents: Ints, ranks: Ints, tree: Ints) -> None:
    """Put the top key of a heap where it belongs; arguments as of `sift_up`."""
    # With a last key behind the others both children of a place can be read, and are compared without a branch.
    heap[size] = LAST_KEY
    place, moving = 0, heap[0]
    while 2 * place + 1 < size:
        below = 2 * place + 1
        below += _goes_first(heap[below + 1], heap[below], parents, ranks, tree)
        if _goes_first(moving, heap[below], parents, ranks, tree):
            break
        heap[place] = heap[below]
        place = below
    heap[place] = moving


@borrowing_kernel
def _goes_first(one: int, other: int, parents: Ints, ranks: Ints, tree: Ints) -> bool:
    """Whether a key comes before another: the smaller cost, then the smaller tuple of ranks, a prefix first."""
    if (one ^ other) >= (1 << ENTRY_BITS):
        return bool(one < other)
    first, second = entry_of_key(one), entry_of_key(other)
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
