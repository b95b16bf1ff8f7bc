"""Intervals that resample prompts, because the rounds of one text are not independent."""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr, stdtrit

from simlab.analysis.statistics.bootstrap import BOOTSTRAP_FROM, Spread, log_products
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

    From ``BOOTSTRAP_FROM`` prompts up it is a bootstrap over prompts with the *expanded* percentiles of Hesterberg
    (2015, The American Statistician 69:371-386): the plain percentile interval is narrow by the factor
    ``sqrt((n - 1) / n)`` and knows no Student factor, so its levels are moved outwards by both. With fewer it is
    Student's, with the jackknife's standard error and the degrees of freedom of the *effective* number of prompts:
    when a few prompts carry most of the rounds, the bootstrap and an ordinary t-interval are too narrow. In
    simulations with skewed lengths and uneven prompts both cover 93.5-96.5 % from 5 prompts up.

    Args:
        spread: logarithms where the numbers are ratios, since these are more nearly symmetric.

    Returns:
        unknown where there are fewer than two prompts, or one prompt alone carries the number.
    """
    if spread.num_prompts < 2:
        return [UNKNOWN] * len(spread.whole)
    errors = spread.standard_errors()
    if spread.num_prompts < BOOTSTRAP_FROM:
        reach = stdtrit(degrees_of_freedom(spread), (1 + LEVEL) / 2) * errors
        low, high = spread.whole - reach, spread.whole + reach
    else:
        tail = _expanded_tail(spread.num_prompts)
        low, high = _quantiles(spread.resampled, tail)
    known = np.isfinite(spread.whole) & np.isfinite(errors)
    return [
        Interval(float(one), float(other)) if there else UNKNOWN
        for one, other, there in zip(low, high, known, strict=True)
    ]


def degrees_of_freedom(spread: Spread) -> Doubles:
    """Effective prompts less one, and at least 1, float64 ``[M]``."""
    return np.asarray(np.maximum(spread.num_effective - 1, 1), np.float64)


def ratio_interval(numerators: Numbers, denominators: Numbers) -> Interval:
    """Where the pooled ratio ``sum(numerators) / sum(denominators)`` of many more prompts would lie.

    Args:
        numerators: ``[prompts]``, summed over the turns and samples of each prompt; not negative.
        denominators: ``[prompts]``, likewise.
    """
    return _interval_of_product((numerators, denominators), (1, -1))


def speedup_interval(tokens: Numbers, seconds: Numbers, base_tokens: Numbers, base_seconds: Numbers) -> Interval:
    """Where the speedup, tokens per second over the baseline's, of many more prompts would lie.

    Paired: each resample draws the same prompts for both, so what makes a prompt slow for both
    does not widen the interval.

    Args:
        tokens: ``[prompts]``, committed, summed over the turns and samples of each prompt.
        seconds: ``[prompts]``, likewise; not negative.
        base_tokens: ``[prompts]``, plain decoding's, of the same prompts in the same order.
        base_seconds: ``[prompts]``, likewise.

    Raises:
        ValueError: the two are not of equally many prompts.
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


def _expanded_tail(num_prompts: int) -> float:
    student = stdtrit(num_prompts - 1, (1 - LEVEL) / 2)
    return float(ndtr(math.sqrt(num_prompts / (num_prompts - 1)) * student))


def _quantiles(resampled: Doubles, tail: float) -> Doubles:
    """float64 ``[2, M]``; resamples on which a number is not known are left out."""
    if np.isfinite(resampled).all():
        return np.asarray(np.quantile(resampled, [tail, 1 - tail], axis=0), np.float64)
    columns = [column[np.isfinite(column)] for column in resampled.T]
    found = [np.quantile(one, [tail, 1 - tail]) if len(one) else [math.nan, math.nan] for one in columns]
    return np.asarray(found, np.float64).T
