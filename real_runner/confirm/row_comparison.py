"""A row as it was drafted against the same row as it was recorded."""

from dataclasses import dataclass

import numpy as np

from simlab.arrays import Floats, Ints
from simlab.draft import Marginals


@dataclass(frozen=True, slots=True)
class RowDifference:
    """A depth of a drafted row at which ranks hold other candidates than in the record.

    Attributes:
        position: of the root.
        depth: counted from 1.
        num_ranks: how many.
        gap: the largest difference of log-probability, in the record, between the two candidates of a
            rank; NaN where one is not kept there.
        size: the largest difference of log-probability of one candidate, run against record.
    """

    position: int
    depth: int
    num_ranks: int
    gap: float
    size: float

    def __str__(self) -> str:
        return (
            f"row at {self.position}, depth {self.depth}: {self.num_ranks} ranks differ "
            f"(gap {self.gap:.3g}, log-probs by {self.size:.3g})"
        )


def compare_rows(position: int, ran: Marginals, recorded: Marginals) -> tuple[list[RowDifference], float]:
    """The depths at which ranks differ, and the largest difference of one candidate's log-probability.

    As many ranks of a depth are compared as both rows hold.

    Args:
        position: of the root, for the result.
        ran: what the policy saw.
        recorded: the record's row.

    Raises:
        ValueError: they look ahead differently far.
    """
    if recorded.depth != ran.depth:
        raise ValueError(f"the run drafts {ran.depth} tokens ahead, and the record holds {recorded.depth}")
    differences, largest = [], 0.0
    for depth in range(1, ran.depth + 1):
        num_ranks, gap, size = _compare_depth(*ran.at(depth), *recorded.at(depth))
        largest = max(largest, size)
        if num_ranks:
            differences.append(RowDifference(position, depth, num_ranks, gap, size))
    return differences, largest


def _compare_depth(ids: Ints, log_probs: Floats, ids_there: Ints, log_probs_there: Floats) -> tuple[int, float, float]:
    """Ranks that differ, the largest gap between their candidates, the largest difference of one candidate."""
    num = min(len(ids), len(ids_there))
    if num == 0:
        return 0, 0.0, 0.0
    order = np.argsort(ids_there)
    places = order[np.minimum(np.searchsorted(ids_there, ids[:num], sorter=order), len(order) - 1)]
    there = np.where(ids_there[places] == ids[:num], log_probs_there[places].astype(np.float64), np.nan)
    differing = ids[:num] != ids_there[:num]
    gap = np.abs(there - log_probs_there[:num])[differing].max(initial=0.0)
    size = np.nan_to_num(np.abs(there - log_probs[:num]), nan=0.0).max()
    return int(differing.sum()), float(gap), float(size)
