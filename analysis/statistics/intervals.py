"""Intervals over prompts, because the rounds of one text are not independent."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import stdtrit

from simlab.arrays import Doubles

# Products of sums over prompts, and how they vary with the prompts: without each of them in turn.
#
# The turns and samples of a prompt stay together: they enter as one sum. An acceptance length, a speed, a speedup, and
# the ratio of any of these for two policies are products of powers of such sums, so a table of all of them takes one
# matrix product.


_ROUNDING = 1e-12
"""Logarithms of equal numbers may differ by so much, since sums are added in another order."""


@dataclass(frozen=True, slots=True, eq=False)
class Spread:
    """Some numbers M on all prompts, and without each of them; nan where not known.

    Attributes:
        whole: float64 ``[M]``.
        without_each: float64 ``[prompts, M]``.
        num_effective: float64 ``[M]``, Kish's (1965) number of prompts: as many prompts of equal weight carry as much.
    """

    whole: Doubles
    without_each: Doubles
    num_effective: Doubles

    @property
    def num_prompts(self) -> int:
        """Number of prompts that the sums are over."""
        return len(self.without_each)

    def exp(self) -> "Spread":
        """The exponentials of numbers that were logarithms."""
        return Spread(np.exp(self.whole), np.exp(self.without_each), self.num_effective)

    def take(self, indices: list[int]) -> "Spread":
        """Some of the numbers, in this order."""
        return Spread(*(part[..., indices] for part in (self.whole, self.without_each, self.num_effective)))

    def minus(self, other: "Spread") -> "Spread":
        """Number by number, on the same prompts: paired."""
        return Spread(
            self.whole - other.whole,
            self.without_each - other.without_each,
            np.minimum(self.num_effective, other.num_effective),
        )

    def standard_errors(self) -> Doubles:
        """By the jackknife (Tukey 1958), float64 ``[M]``; nan where a prompt alone carries a number."""
        share = (self.num_prompts - 1) / self.num_prompts
        return np.asarray(np.sqrt(share * (self._moved() ** 2).sum(axis=0)), np.float64)

    def degrees_of_freedom(self) -> Doubles:
        """What the standard errors are worth in Student's t, float64 ``[M]``, from 1 to one less than the prompts.

        The fewer of two counts. Unequal prompts: Kish's number less one. A few prompts that move a number far more
        than the others do: the degrees of a chi-squared variable that varies as much as the square of the standard
        error (Satterthwaite 1946, Biometrics Bulletin 2:110-114), by the kurtosis of what each prompt moves; of normal
        ones that is one less than the prompts. Needs two prompts.
        """
        num, squares = self.num_prompts, self._moved() ** 2
        second, fourth = squares.mean(axis=0), (squares**2).mean(axis=0)
        with np.errstate(divide="ignore", invalid="ignore"):
            kurtosis = np.where(second > 0, fourth / second**2, 1.0)
        by_kurtosis = 2 * num / (kurtosis - (num - 3) / (num - 1))
        return np.asarray(np.maximum(np.minimum(self.num_effective - 1, by_kurtosis), 1.0), np.float64)

    def _moved(self) -> Doubles:
        """By how much each prompt moves each number, float64 ``[prompts, M]``."""
        moved = self.without_each - self.without_each.mean(axis=0)
        return np.where(np.abs(moved) < _ROUNDING, 0.0, moved)


def log_products(sums: Doubles, powers: Doubles) -> Spread:
    """Logarithms of products of powers of sums over prompts.

    Args:
        sums: float64 ``[prompts, C]``, of each prompt; not negative.
        powers: float64 ``[M, C]``, of the sum of each column in each product; 0: it is not in it.
    """
    num_prompts = len(sums)
    if not num_prompts:
        raise ValueError("expected at least one prompt; got none")
    total = sums.sum(axis=0)
    shares = sums / np.where(total > 0, total, 1)
    carried = np.where(total > 0, 1 / np.maximum((shares**2).sum(axis=0), 1 / num_prompts), 1.0)
    effective = np.where(powers != 0, carried, num_prompts).min(axis=1)
    without = np.where(np.abs(total - sums) > _ROUNDING * total, total - sums, 0)
    return Spread(
        _log_products(total[None, :], powers)[0],
        _log_products(without, powers),
        np.asarray(effective, np.float64),
    )


def _log_products(sums: Doubles, powers: Doubles) -> Doubles:
    """Logarithms of the products for each row ``[.., C]``, float64 ``[.., M]``; nan where a sum is not positive."""
    positive = sums > 0
    logs = np.log(np.where(positive, sums, 1.0)) @ powers.T
    if positive.all():
        return np.asarray(np.where(np.abs(logs) < _ROUNDING, 0.0, logs), np.float64)
    unknown = (~positive).astype(np.float64) @ (powers != 0).astype(np.float64).T > 0
    return np.asarray(np.where(unknown, np.nan, np.where(np.abs(logs) < _ROUNDING, 0.0, logs)), np.float64)


LEVEL = 0.95
FEW_PROMPTS = 20
"""With fewer, intervals are rough, and no verdict is given."""


def rough_intervals(number: int, of: str = "prompts") -> list[str]:
    """The sentence that belongs beside intervals over few prompts; none where there are enough.

    Args:
        number: of prompts, in the smallest part of what is shown.
        of: what there are few of, as it stands in the sentence.
    """
    return [f"Fewer than {FEW_PROMPTS} {of}: the intervals are rough."] if number < FEW_PROMPTS else []


Numbers = npt.NDArray[np.int64] | Doubles


@dataclass(frozen=True, slots=True)
class Interval:
    """A 95 % interval; nan at both ends where fewer than two prompts allow none."""

    low: float
    high: float

    def row(self, name: str) -> dict[str, float | None]:
        """Both ends under ``NAME_low`` and ``NAME_high``; None where they are not known."""
        return {f"{name}_low": finite(self.low), f"{name}_high": finite(self.high)}


UNKNOWN = Interval(math.nan, math.nan)


def finite(value: float) -> float | None:
    """A number as JSON has it; None where it is not known."""
    return float(value) if math.isfinite(value) else None


def intervals_of(spread: Spread) -> list[Interval]:
    """Where each of some numbers would lie on many more prompts.

    Student's interval, with the standard errors and degrees of freedom of
    `simlab.analysis.statistics.intervals.Spread`. In simulations it holds the truth more often than
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
        Interval(float(lower), float(upper)) if has_ends else UNKNOWN
        for lower, upper, has_ends in zip(low, high, known, strict=True)
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
        denominators: ``[prompts]``, the same.
    """
    return _interval_of_product((numerators, denominators), (1, -1))


def speedup_interval(tokens: Numbers, seconds: Numbers, base_tokens: Numbers, base_seconds: Numbers) -> Interval:
    """Where the speedup, tokens per second over the baseline's, of many more prompts would lie.

    Paired: a prompt is left out of both, so what makes it slow for both does not widen the interval.

    Args:
        tokens: ``[prompts]``, committed, summed over the turns and samples of each prompt.
        seconds: ``[prompts]``, the same; not negative.
        base_tokens: ``[prompts]``, plain decoding's, of the same prompts in the same order.
        base_seconds: ``[prompts]``, the same.
    """
    if len(tokens) != len(base_tokens):
        raise ValueError(f"a paired interval needs the same prompts; got {len(tokens)} and {len(base_tokens)}")
    return _interval_of_product((tokens, seconds, base_tokens, base_seconds), (1, -1, -1, 1))


def _interval_of_product(columns: tuple[Numbers, ...], powers: tuple[int, ...]) -> Interval:
    if len(columns[0]) < 2:
        return UNKNOWN
    sums = np.stack(columns, axis=1).astype(np.float64)
    (interval,) = intervals_of(log_products(sums, np.array([powers], np.float64)))
    return Interval(math.exp(interval.low), math.exp(interval.high))


# How any figure of sums over prompts varies with the prompts, and by how much noise makes it too large.


def prompt_spread(sums: Doubles, figures: Callable[[Doubles], Doubles]) -> Spread:
    """Some figures on all prompts, and without each of them.

    Args:
        sums: float64 ``[P, C]``, of each prompt; the first column says how much a prompt carries, and is not negative.
        figures: from sums of prompts, float64 ``[.., C]``, to numbers, float64 ``[.., M]``; nan where not known.
    """
    num_prompts = len(sums)
    if not num_prompts:
        raise ValueError("expected at least one prompt; got none")
    total = sums.sum(axis=0)
    shares = sums[:, 0] / total[0] if total[0] > 0 else np.full(num_prompts, 1 / num_prompts)
    with np.errstate(divide="ignore", invalid="ignore"):
        whole = figures(total)
        parts = whole, figures(total - sums), np.full(len(whole), 1 / float((shares**2).sum()))
    return Spread(*(np.asarray(array, np.float64) for array in parts))


def ratios(sums: Doubles) -> Doubles:
    """All columns but the first, divided by the first."""
    rates: Doubles = sums[..., 1:] / sums[..., :1]
    return rates


def share_intervals(spread: Spread) -> list[Interval]:
    """Intervals of figures that lie between 0 and 1; Student's may reach beyond and are cut there."""
    return [Interval(*np.clip([interval.low, interval.high], 0.0, 1.0).tolist()) for interval in intervals_of(spread)]
