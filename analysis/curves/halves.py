"""Whether valleys that one half of the samples shows are there by the other half, which did not choose them."""

import numpy as np

from simlab.analysis.curves.tallies import NOTABLE_SHARE, RootPart
from simlab.analysis.table.estimates import Figures
from simlab.arrays import Doubles
from simlab.policies.costs.curves import RoundCosts
from simlab.policies.rules.ratio_curves import DEEP_MAXIMA, MAXIMA, kept_valleys, scan_curves


def scan_halves(halves: tuple[RoundCosts, ...], part: RootPart) -> Doubles:
    """Sums over some roots, float64 ``[8]``; the last is how many roots there are.

    Args:
        halves: the seconds of a round by each of two halves.
        part: the roots.
    """
    first, second = halves
    flags = []
    for costs in (first, second):
        maxima = scan_curves(part.expected, costs, NOTABLE_SHARE)
        flags += [maxima[:, MAXIMA] > 1, maxima[:, DEEP_MAXIMA] > 1]
    again = sum(
        kept_valleys(part.expected, costs, against.seconds[None], NOTABLE_SHARE) / 2
        for costs, against in ((first, second), (second, first))
    )
    shares = [*(flag.sum() for flag in flags), (flags[1] & flags[3]).sum(), *np.sum(again, axis=0)]
    return np.array([*shares, len(part.sequences)], np.float64)


def split_halves(sums: Doubles) -> Figures:
    """Shares of all roots; of valleys the mean of both directions.

    ``several`` are those with several maxima by each half, ``deep`` with maxima more than `NOTABLE_SHARE` apart,
    ``deep_twice`` by both halves, wherever the valleys are. ``found_again`` have a valley by one half whose sizes make
    one by the other too, ``deep_again`` one deeper than `NOTABLE_SHARE`.

    Args:
        sums: float64 ``[8]``, those of `scan_halves` added up.
    """
    several, deep, other_several, other_deep, twice, valley_again, deep_again = (sums[:-1] / sums[-1]).tolist()
    return {
        "several": [several, other_several],
        "deep": [deep, other_deep],
        "deep_twice": twice,
        "found_again": valley_again,
        "deep_again": deep_again,
    }
