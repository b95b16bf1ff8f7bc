"""How many nodes of a lattice come before those of the true path: all that budgets read, without building trees.

A node comes before another if its path costs less, or as much and its ranks come first. A walk into the depth, list by
list, meets paths in the order of their ranks; so of those that cost as much the ones that are met first come first.
"""

from typing import NamedTuple

import numpy as np

from simlab.arrays import Ints, Longs, Shorts
from simlab.jit import borrowing_kernel, kernel
from simlab.policies.edges.lattice import LEAF, Lattice, find_token

_NO_LIMIT = 1 << 40
"""No path costs as much."""


class WalkBuffers(NamedTuple):
    """What a walk keeps of each depth; made once for many roots.

    Attributes:
        places: int32 ``[L]``, the candidate that is next.
        ends: int32 ``[L]``, where its list ends.
        costs: int64 ``[L]``, of the path above it.
        path: int32 ``[L]``, the candidates of the true path.
    """

    places: Ints
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
    """The places of the nodes of the true path in the best-first tree, as `take_lattice` has it.

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
        place = find_token(lattice, number, text[depth])
        if place < 0:
            break
        walk.path[depth] = place
        cost += lattice.costs[place]
        before = _num_before(lattice, depth + 1, cost, most, walk)
        if before == most:
            return most
        insertions[depth] = before + 1
        depth, number = depth + 1, lattice.below[place]
    return _num_before(lattice, 0, _NO_LIMIT, most, walk)


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
    places, ends, costs, path = walk.places, walk.ends, walk.costs, walk.path
    places[0], ends[0], costs[0] = lattice.starts[0], lattice.ends[0], 0
    # So many steps of the walk follow the true path; -1 where its node was met.
    depth, followed, limit, num = 0, 0 if length > 0 else -1, cost, 0
    while depth >= 0 and num < most:
        place = places[depth]
        if place == ends[depth] or costs[depth] + lattice.costs[place] > limit:
            depth -= 1
            continue
        places[depth] = place + 1
        if depth == followed and place == path[depth]:
            followed += 1
            if followed == length:
                # What costs as much comes behind from here on, and so does all below the node.
                followed, limit = -1, cost - 1
                continue
        num, below = num + 1, lattice.below[place]
        if below != LEAF:
            costs[depth + 1] = costs[depth] + lattice.costs[place]
            depth += 1
            places[depth], ends[depth] = lattice.starts[below], lattice.ends[below]
    return num
