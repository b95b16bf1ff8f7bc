"""Whether valleys that one half of the samples shows are there by the other half, which did not choose them."""

from dataclasses import dataclass

import numpy as np

from simlab.analysis.curves.tallies import NOTABLE_SHARE, RootPart
from simlab.arrays import Doubles
from simlab.policies.costs.curves import RoundCosts
from simlab.policies.rules.ratio_curves import DEEP_MAXIMA, MAXIMA, kept_valleys, scan_curves


@dataclass(frozen=True, slots=True)
class SplitHalves:
    """Shares of the roots; of valleys the mean of both directions.

    Attributes:
        several: with several maxima by each half.
        deep: with maxima more than `NOTABLE_SHARE` apart by each half.
        deep_twice: by both halves, wherever the valleys are.
        found_again: with a valley by one half whose sizes make one by the other too.
        deep_again: with a valley by one half whose sizes make one deeper than `NOTABLE_SHARE` by the other.
    """

    several: tuple[float, float]
    deep: tuple[float, float]
    deep_twice: float
    found_again: float
    deep_again: float


def scan_halves(halves: tuple[RoundCosts, ...], part: RootPart) -> Doubles:
    """Sums over some roots, float64 ``[8]``; the last is how many roots there are.

    Args:
        halves: the seconds of a round by each of two halves.
        part: the roots.
    """
    one, other = halves
    found = []
    for costs in (one, other):
        maxima = scan_curves(part.expected, costs, NOTABLE_SHARE)
        found += [maxima[:, MAXIMA] > 1, maxima[:, DEEP_MAXIMA] > 1]
    again = sum(
        kept_valleys(part.expected, costs, there.seconds[None], NOTABLE_SHARE) / 2
        for costs, there in ((one, other), (other, one))
    )
    shares = [*(each.sum() for each in found), (found[1] & found[3]).sum(), *np.sum(again, axis=0)]
    return np.array([*shares, len(part.sequences)], np.float64)


def split_halves(sums: Doubles) -> SplitHalves:
    """Shares of all roots.

    Args:
        sums: float64 ``[8]``, those of `scan_halves` added up.
    """
    several, deep, other_several, other_deep, twice, found, again = (sums[:-1] / sums[-1]).tolist()
    return SplitHalves((several, other_several), (deep, other_deep), twice, found, again)
