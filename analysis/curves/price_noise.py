"""Intervals that hold the noise of prices beside that of prompts."""

import math

from simlab.analysis.curves.rows import DrawnSums
from simlab.analysis.curves.tallies import PRICE
from simlab.analysis.statistics.intervals import Interval
from simlab.arrays import Doubles
from simlab.policies.costs.cell_prices import half_width

KEPT_SHARE = 0.95
"""A valley that stays in at least this share of the draws is told from the noise of prices."""


def with_price_noise(value: float, prompts: Interval, drawn: Doubles) -> Interval:
    """An interval over prompts made wide enough for prices.

    The two are independent, so each end is as far away as the root of the summed squares. Noise makes hollows and
    peaks of its own, so at drawn prices regret is larger than at those they are drawn from, and at measured prices
    larger than at true ones, by about as much. So the interval reaches from the value with this taken off to the value
    without, and beyond each by the noise.

    Args:
        value: at the prices as measured, a share that prices alone cannot bring below 0.
        prompts: the interval over prompts.
        drawn: float64 ``[B]``, the same at each draw of the prices.

    Returns:
        at most 1, and below 0 only where the prompts' is.
    """
    if math.isnan(prompts.low):
        return prompts
    corrected, reach = 2 * value - float(drawn.mean()), float(half_width(drawn))
    low = min(value, corrected) - math.hypot(value - prompts.low, reach)
    high = max(value, corrected) + math.hypot(prompts.high - value, reach)
    return Interval(max(low, min(prompts.low, 0.0)), min(high, 1.0))


def drawn_regrets(drawn: DrawnSums, rule: str) -> Doubles:
    """The mean regret of a round at each draw, float64 ``[B]``."""
    regrets: Doubles = drawn.sums[rule][:, :, 2].sum(axis=0) / drawn.roots.sum()
    return regrets


def drawn_behind_price(drawn: DrawnSums, rule: str) -> Doubles:
    """What the rule's tokens per second of the whole lack of the price rule's at each draw, float64 ``[B]``."""
    tokens, seconds, _ = drawn.sums[rule].sum(axis=0).T
    base_tokens, base_seconds, _ = drawn.sums[PRICE].sum(axis=0).T
    behind: Doubles = 1.0 - (tokens / seconds) / (base_tokens / base_seconds)
    return behind
