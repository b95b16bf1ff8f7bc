"""Whether valleys that one half of the samples shows are there by the other half, which did not choose them."""

from dataclasses import dataclass

import numpy as np

from simlab.analysis.curves.tallies import NOTABLE_SHARE, RootPart
from simlab.arrays import Doubles
from simlab.policies.costs.round_costs import RoundCosts
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


class HalvesTally:
    """The curves by each half of the samples, part after part."""

    def __init__(self, halves: tuple[RoundCosts, ...]) -> None:
        """The seconds of a round by each of two halves."""
        self._one, self._other = halves
        self._sums: Doubles = np.zeros(7)
        self._roots = 0

    def scan(self, part: RootPart) -> None:
        """Look at some more roots."""
        one, other, found = self._one, self._other, []
        for costs in (one, other):
            maxima = scan_curves(part.scores, part.contexts, costs, NOTABLE_SHARE)
            found += [maxima[:, MAXIMA] > 1, maxima[:, DEEP_MAXIMA] > 1]
        again = sum(
            kept_valleys(part.scores, part.contexts, costs, there.seconds[None], NOTABLE_SHARE) / 2
            for costs, there in ((one, other), (other, one))
        )
        self._sums += [*(shares.sum() for shares in found), (found[1] & found[3]).sum(), *np.sum(again, axis=0)]
        self._roots += len(part.contexts)

    def result(self) -> SplitHalves:
        """Shares of all roots so far."""
        several, deep, other_several, other_deep, twice, found, again = (self._sums / self._roots).tolist()
        return SplitHalves((several, other_several), (deep, other_deep), twice, found, again)
