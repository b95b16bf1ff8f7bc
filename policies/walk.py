"""From places in the order of nodes to rounds: how a policy of nested trees goes through a text."""

import numpy as np

from simlab.arrays import Ints, Longs, Shorts
from simlab.columns import RoundColumns
from simlab.jit import kernel


def walk_layer(insertions: Shorts, num_drafted: Ints, num_tokens: int) -> RoundColumns:
    """The rounds of trees that hold the first nodes of an order.

    Args:
        insertions: uint16 ``[T - 1, D]``, the place of each node of the true path at each root, from 1; they rise.
        num_drafted: int32 ``[T - 1]``, the size of the tree at each root.
        num_tokens: T.
    """
    return rounds_of(_walk(insertions, num_drafted, num_tokens), num_drafted, num_tokens)


def rounds_of(visited: Longs, num_drafted: Ints, num_tokens: int) -> RoundColumns:
    """The columns of a walk.

    Args:
        visited: int64 ``[2, R]``, positions of the roots, and how many tokens were accepted there.
        num_drafted: int32 ``[T - 1]``.
        num_tokens: T.
    """
    positions, accepted = visited
    left, drafted = num_tokens - 1 - positions, num_drafted[positions].astype(np.int64)
    return RoundColumns(positions, drafted, accepted, np.minimum(accepted + 1, left), accepted == left)


@kernel
def _walk(insertions: Shorts, num_drafted: Ints, num_tokens: int) -> Longs:
    visited = np.empty((2, num_tokens), np.int64)
    number, position, last = 0, 0, num_tokens - 1
    while position < last:
        accepted = 0
        most = min(insertions.shape[1], last - position)
        while accepted < most and insertions[position, accepted] <= num_drafted[position]:
            accepted += 1
        visited[0, number], visited[1, number] = position, accepted
        number += 1
        position = min(position + accepted + 1, last)
    return visited[:, :number].copy()
