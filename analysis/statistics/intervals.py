"""Intervals over prompts, because the rounds of one text are not independent."""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import stdtrit

from simlab.analysis.statistics.jackknife import Spread, log_products
from simlab.arrays import Doubles

LEVEL = 0.95
FEW_PROMPTS = 20
"""With fewer, what a table says of its intervals is a warning."""

Numbers = npt.NDArray[np.int64] | Doubles


@dataclass(frozen=True, slots=True)
class Interval:
    """A 95 % interval; nan at both ends where fewer than two prompts allow none."""

    low: float
    high: float


UNKNOWN = Interval(math.nan, math.nan)


def intervals_of(spread: Spread) -> list[Interval]:
    """Where each of some numbers would lie on many more prompts.

    Student's interval, with the standard errors and degrees of freedom of
    `simlab.analysis.statistics.jackknife.Spread`. In simulations it holds the truth more often than
    a bootstrap of percentiles, and about as often as a studentised one. With 40 prompts that is in 95 % of cases where
    they are of like length and in 91 to 96 % where lengths are very different, fewer the more length goes with what is
    measured (``docs/measurements/interval_coverage.md`` has it by the number of prompts).

    Args:
        spread: logarithms where the numbers are ratios, since these are more nearly symmetric.

    Returns:
        unknown where there are fewer than two prompts, or one prompt alone carries the number.
    """
    if spread.num_prompts < 2:
        return [UNKNOWN] * len(spread.whole)
    errors = spread.standard_errors()
    reach = stdtrit(spread.degrees_of_freedom(), (1 + LEVEL) / 2) * errors
    low, high = spread.whole - reach, spread.whole + reach
    known = np.isfinite(spread.whole) & np.isfinite(errors)
    return [
        Interval(float(one), float(other)) if there else UNKNOWN
        for one, other, there in zip(low, high, known, strict=True)
    ]


def mean_interval(values: Doubles) -> Interval:
    """Where the mean of many more values would lie: Student's interval; unknown for fewer than two values.

    Args:
        values: float64 ``[N]``, independent of each other; of either sign.
    """
    number = len(values)
    if number < 2:
        return UNKNOWN
    without = ((values.sum() - values) / (number - 1))[:, None]
    return intervals_of(Spread(np.array([values.mean()]), without, np.array([float(number)])))[0]


def ratio_interval(numerators: Numbers, denominators: Numbers) -> Interval:
    """Where the pooled ratio ``sum(numerators) / sum(denominators)`` of many more prompts would lie.

    Args:
        numerators: ``[prompts]``, summed over the turns and samples of each prompt; not negative.
        denominators: ``[prompts]``, likewise.
    """
    return _interval_of_product((numerators, denominators), (1, -1))


def speedup_interval(tokens: Numbers, seconds: Numbers, base_tokens: Numbers, base_seconds: Numbers) -> Interval:
    """Where the speedup, tokens per second over the baseline's, of many more prompts would lie.

    Paired: a prompt is left out of both, so what makes it slow for both does not widen the interval.

    Args:
        tokens: ``[prompts]``, committed, summed over the turns and samples of each prompt.
        seconds: ``[prompts]``, likewise; not negative.
        base_tokens: ``[prompts]``, plain decoding's, of the same prompts in the same order.
        base_seconds: ``[prompts]``, likewise.
    """
    if len(tokens) != len(base_tokens):
        raise ValueError(f"a paired interval needs the same prompts; got {len(tokens)} and {len(base_tokens)}")
    return _interval_of_product((tokens, seconds, base_tokens, base_seconds), (1, -1, -1, 1))


def _interval_of_product(columns: tuple[Numbers, ...], powers: tuple[int, ...]) -> Interval:
    if len(columns[0]) < 2:
        return UNKNOWN
    sums = np.stack(columns, axis=1).astype(np.float64)
    (found,) = intervals_of(log_products(sums, np.array([powers], np.float64)))
    return Interval(math.exp(found.low), math.exp(found.high))
