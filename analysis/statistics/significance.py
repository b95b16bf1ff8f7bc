"""p-values of several comparisons at once, and the smallest difference that so many prompts can detect.

Without a correction one of twenty equal policies would seem to differ.
"""

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from scipy.special import stdtrit

from simlab.analysis.statistics.intervals import LEVEL, UNKNOWN, Interval
from simlab.arrays import Doubles
from simlab.policies.costs.cell_prices import half_width

# Intervals by the noise of a latency profile alone: the same figure at prices from its sweeps drawn again.
#
# Prompts are held fixed. What one profile does not show is not in them: another day, another clock, another machine.


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


POWER = 0.8
"""The chance of finding a difference that is called detectable."""

MOST_PROMPTS = 100_000
"""No number of prompts above it is worked out."""


def holm(p_values: Doubles) -> Doubles:
    """Adjusted so that any false finding among all is as rare as the level says.

    Holm (1979), Scandinavian Journal of Statistics 6:65-70; holds however the comparisons depend on each other.

    Args:
        p_values: float64 ``[family]``; nan where nothing was tested, which does not count.

    Returns:
        float64 ``[family]``, nan in the same places.

    >>> holm(np.array([0.01, 0.04, 0.03])).tolist()
    [0.03, 0.06, 0.06]
    """
    return _adjusted(p_values, lambda ordered: np.maximum.accumulate(ordered * np.arange(len(ordered), 0, -1)))


def benjamini_hochberg(p_values: Doubles) -> Doubles:
    """Adjusted so that of all findings the share of false ones is, on average, no more than the level says.

    Benjamini and Hochberg (1995), Journal of the Royal Statistical Society B 57:289-300; holds for comparisons that
    are independent or depend on each other positively, as those of policies with a shared rival do.

    Args:
        p_values: as for `holm`.

    Returns:
        likewise.

    >>> benjamini_hochberg(np.array([0.01, 0.04, 0.02])).tolist()
    [0.03, 0.04, 0.03]
    """
    return _adjusted(p_values, _least_from_above)


CORRECTIONS: Mapping[str, Callable[[Doubles], Doubles]] = MappingProxyType({"holm": holm, "bh": benjamini_hochberg})
"""By the names under which they are asked for."""


def _least_from_above(ordered: Doubles) -> Doubles:
    scaled = ordered * len(ordered) / np.arange(1, len(ordered) + 1)
    return np.asarray(np.minimum.accumulate(scaled[::-1])[::-1], np.float64)


def _adjusted(p_values: Doubles, of_ordered: Callable[[Doubles], Doubles]) -> Doubles:
    tested = np.flatnonzero(~np.isnan(p_values))
    order = tested[np.argsort(p_values[tested], kind="stable")]
    adjusted = np.full(len(p_values), np.nan)
    adjusted[order] = np.minimum(of_ordered(p_values[order]), 1.0)
    return adjusted


def detectable_ratios(log_errors: Doubles, degrees: Doubles, num_comparisons: int = 1, power: float = POWER) -> Doubles:
    """The ratio of two policies, above 1, that as many prompts like these would find with the stated power.

    From the spread that was seen, not from the difference that was seen, so it is no statement about this result.

    Args:
        log_errors: float64 ``[M]``, standard errors of the logarithms of the ratios.
        degrees: float64 ``[M]``, of freedom.
        num_comparisons: in the family; each is tested at the level divided by it, which Holm never exceeds.
        power: the chance of finding it.

    Returns:
        float64 ``[M]``; 1 where every prompt shows the same ratio, nan where the error is not known.
    """
    if not 0.5 <= power < 1 or num_comparisons < 1:
        raise ValueError(
            f"expected a power from 0.5 to below 1 and at least one comparison; got {power} and {num_comparisons}"
        )
    beyond = stdtrit(degrees, 1 - (1 - LEVEL) / 2 / num_comparisons) + stdtrit(degrees, power)
    with np.errstate(over="ignore"):
        return np.asarray(np.exp(beyond * log_errors), np.float64)


def detectable_at(log_error: float, degrees: float, prompts: int, numbers: Sequence[int]) -> Doubles:
    """The ratio that other numbers of prompts would find, of one comparison that stands alone.

    They are taken to be like those that were seen: squared errors fall with the number of prompts, and degrees of
    freedom rise with it, both in proportion.

    Args:
        log_error: standard error of the logarithm of the ratio on the prompts that were seen.
        degrees: of freedom, on these.
        prompts: how many these are.
        numbers: how many others are, 2 or more each.

    Returns:
        float64 ``[len(numbers)]``, as `detectable_ratios`.
    """
    times = np.asarray(numbers, np.float64) / prompts
    errors, others = log_error / np.sqrt(times), np.maximum((degrees + 1) * times - 1, 1.0)
    return detectable_ratios(errors, others)


def prompts_to_detect(log_error: float, degrees: float, prompts: int, ratio: float) -> int | None:
    """The fewest prompts that would find a ratio; arguments as of `detectable_at`.

    Returns:
        None where it is not known, or is more than `MOST_PROMPTS`.
    """

    def finds(number: int) -> bool:
        return bool(detectable_at(log_error, degrees, prompts, [number])[0] <= ratio)

    # More prompts never find less.
    needed = 2 + bisect_left(range(2, MOST_PROMPTS + 1), True, key=finds)
    return needed if needed <= MOST_PROMPTS else None
