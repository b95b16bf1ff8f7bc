"""Rows of a pass in which nodes of a tree carry masks, and what as many rows cost."""

import numpy as np

from simlab.arrays import Doubles, Longs


def rows_of_pass(num_drafted: Longs, masked: int, num_masks: int) -> Longs:
    """Rows of the passes that verify: the nodes, and k masks behind each of the first ones.

    A tree of the root alone carries masks behind it: a root without a draft is read so that the next one has some.

    Args:
        num_drafted: int64 ``[N]``, the root not counted.
        masked: the number of the last node that carries masks, the root's being 0; -1: none does.
        num_masks: k.

    Returns:
        int64 ``[N]``.

    >>> rows_of_pass(np.array([0, 4, 4]), 0, 4).tolist(), rows_of_pass(np.array([4]), 9, 4).tolist()
    ([5, 9, 9], [25])
    """
    carriers = np.where(num_drafted == 0, 1, np.minimum(masked, num_drafted) + 1)
    rows: Longs = num_drafted + 1 + num_masks * carriers
    return rows


def seconds_by_rows(seconds: Doubles, masked: int, num_masks: int) -> Doubles:
    """Seconds of passes in which the first nodes carry masks, from those of passes in which all do.

    How rows are laid out is taken to matter little: linear between passes of more and of fewer rows, and never below
    the one with the fewest.

    Args:
        seconds: float64 ``[C, N + 1]``, by context and drafted tokens; a pass of n of them has (n + 1)(k + 1) rows.
        masked: see `rows_of_pass`.
        num_masks: k.

    Returns:
        float64 ``[C, N + 1]``.
    """
    num_drafted = np.arange(seconds.shape[1])
    measured = (num_drafted + 1) * (num_masks + 1)
    rows = rows_of_pass(num_drafted, masked, num_masks)
    return np.array([np.interp(rows, measured, row) for row in seconds], np.float64)
