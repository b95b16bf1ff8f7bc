"""How often is a drafter's candidate of a rank right at a depth? Counted on a dense trace.

Sequoia (2024, arXiv 2402.12374) builds one tree for all rounds from such frequencies.
"""

from typing import NamedTuple

import numpy as np

from simlab.arrays import Doubles, Ints, Longs
from simlab.jit import kernel
from simlab.recorded import DraftRows


class RankCounts(NamedTuple):
    """True tokens by depth and rank.

    Attributes:
        numbers: int64 ``[D]``, nodes of the true path whose next token is known, by the depth of that token.
        hits: int64 ``[D, R]``, how often that token had a rank.
    """

    numbers: Longs
    hits: Longs


def no_rank_counts(num_depths: int, num_ranks: int) -> RankCounts:
    """Counts of ranks, all still 0."""
    return RankCounts(np.zeros(num_depths, np.int64), np.zeros((num_depths, num_ranks), np.int64))


def add_ranks(counts: RankCounts, rows: DraftRows) -> None:
    """Count the true tokens of one text, in place, at every root; a path goes on as long as its ranks are below R."""
    _add_ranks(rows.true_ranks, counts.numbers, counts.hits)


def rank_frequencies(counts: RankCounts) -> Doubles:
    """How often the true token has a rank at a depth, given that the path was right so far.

    Returns:
        float64 ``[D, R]``; a row sums to at most 1, and is 0 at a depth that no path reached.
    """
    return counts.hits / np.maximum(counts.numbers, 1)[:, None]


@kernel
def _add_ranks(true_ranks: Ints, numbers: Longs, hits: Longs) -> None:
    num_roots, num_depths = true_ranks.shape
    for root in range(num_roots):
        for depth in range(min(num_depths, num_roots - root)):
            rank = true_ranks[root, depth]
            numbers[depth] += 1
            if not 0 <= rank < hits.shape[1]:
                break
            hits[depth, rank] += 1
