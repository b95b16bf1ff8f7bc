"""Pools that a beam makes, of whatever network says what follows a node."""

from collections.abc import Callable, Sequence

import numpy as np

from simlab.arrays import Bools, Floats, Ints, Longs
from simlab.channels import PoolRows
from simlab.grid import STEPS_PER_NAT

Behind = Callable[[Ints, Longs], tuple[Ints, Floats]]
"""What follows nodes that are looked behind: from their tokens, int32 ``[N, b]``, and the place of each one's parent
among the nodes of the pass before, int64 ``[N, b]``, to ids, int32 ``[N, b, R]``, and log-probabilities, float32
likewise, on the grid and in the order of `simlab.sampling.candidates`."""


def beam_pools(first: tuple[Ints, Floats], behind: Behind, beam: int, num_passes: int) -> PoolRows:
    """The pools of a beam: all that it looks at, pass by pass.

    The order within a pass is that of a parent's place, then of the place among its children; of nodes with equal
    scores the first ones are looked behind.

    Args:
        first: ids and log-probabilities of the root's children, ``[N, 1, R]``.
        behind: see `Behind`.
        beam: b, how many of the best nodes of a pass are looked behind.
        num_passes: how often.
    """
    (ids, log_probs), (num_roots, _, top_k) = first, first[0].shape
    numbers, costs = np.zeros((num_roots, 1), np.int32), np.zeros((num_roots, 1), np.int64)
    columns, num_nodes = list[tuple[Ints, Ints, Floats, Bools]](), 0
    for passes_left in reversed(range(num_passes + 1)):
        below = (costs[:, :, None] + np.rint(log_probs * -STEPS_PER_NAT).astype(np.int64)).reshape(num_roots, -1)
        chosen, tokens = _best(below, beam if passes_left else 0), ids.reshape(num_roots, -1)
        expanded = np.zeros(below.shape, np.bool_)
        np.put_along_axis(expanded, chosen, values=True, axis=1)
        columns.append((tokens, np.repeat(numbers, top_k, 1), log_probs.reshape(num_roots, -1), expanded))
        costs, numbers = np.take_along_axis(below, chosen, 1), (num_nodes + 1 + chosen).astype(np.int32)
        num_nodes += below.shape[1]
        if passes_left:
            ids, log_probs = behind(np.take_along_axis(tokens, chosen, 1), chosen // top_k)
    whole = [np.concatenate(column, axis=1).ravel() for column in zip(*columns, strict=True)]
    return PoolRows(np.full(num_roots, num_nodes, np.int64), *whole)


def _best(costs: Longs, count: int) -> Longs:
    """int64 ``[N, b]``, rising: places of the lowest costs ``[N, n]`` of each root, of equal ones the first."""
    first = np.argsort(costs, axis=1, kind="stable")[:, :count]
    return np.sort(first, axis=1)


def joined_pools(parts: Sequence[PoolRows]) -> PoolRows:
    """The pools of some roots, one part after the other; of no part none."""
    return PoolRows(
        np.concatenate([np.empty(0, np.int64), *(part.sizes for part in parts)]),
        np.concatenate([np.empty(0, np.int32), *(part.tokens for part in parts)]),
        np.concatenate([np.empty(0, np.int32), *(part.parents for part in parts)]),
        np.concatenate([np.empty(0, np.float32), *(part.log_probs for part in parts)]),
        np.concatenate([np.empty(0, np.bool_), *(part.expanded for part in parts)]),
    )
