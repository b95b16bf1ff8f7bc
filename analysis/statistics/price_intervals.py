"""Intervals by the noise of a latency profile alone: the same figure at prices from its sweeps drawn again.

Prompts are held fixed. What one profile does not show is not in them: another day, another clock, another machine.
"""

from dataclasses import dataclass

import numpy as np

from simlab.analysis.statistics.intervals import UNKNOWN, Interval
from simlab.arrays import Doubles
from simlab.policies.costs.cell_prices import half_width


def price_interval(value: float, logs: Doubles) -> Interval:
    """Where a figure would lie with a latency profile measured again in the same way, 95 %.

    Args:
        value: the figure at the prices as they are, above 0; nan where it is not known.
        logs: float64 ``[B]``, its logarithm at each draw of the prices, up to a constant; nan where not known.

    Returns:
        ``value`` times and over the exponential of half a Student interval of the logarithms; unknown where one is.
    """
    if not (value > 0 and np.isfinite(logs).all()):
        return UNKNOWN
    factor = float(np.exp(half_width(logs)))
    return Interval(value / factor, value * factor)


@dataclass(frozen=True, slots=True, eq=False)
class PriceSpread:
    """Logarithms of one number of some runs, at each draw of the prices.

    Attributes:
        logs: float64 ``[runs, B]``, up to a constant; nan where not known.
        profiles: of each run, the latency profile that its draws are of; None: it has none.
    """

    logs: Doubles
    profiles: tuple[str | None, ...]

    def ratio_interval(self, first: int, second: int, ratio: float) -> Interval:
        """That of one run's number over another's, paired draw by draw; unknown between two profiles.

        Args:
            first: place of a run.
            second: place of the run that it is compared with.
            ratio: at the prices as they are.
        """
        if self.profiles[first] != self.profiles[second]:
            return UNKNOWN
        return price_interval(ratio, self.logs[first] - self.logs[second])
