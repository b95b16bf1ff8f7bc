"""Figures of sums over prompts with their intervals, such as those of records that others released.

A row of a table is a turn; turns of a prompt stay together. Two methods side by side in a row are paired. A figure over
all prompts takes the mix of datasets as drawn by chance too; a mean over datasets holds it fixed.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import polars as pl
from scipy.special import erf, stdtr

from simlab.analysis.statistics.intervals import (
    UNKNOWN,
    Interval,
    Spread,
    finite,
    intervals_of,
    log_products,
    prompt_spread,
    ratios,
    share_intervals,
)
from simlab.analysis.table.text import is_known, number
from simlab.arrays import Doubles

PROMPT = ("dataset", "prompt")
"""Columns that name a prompt."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A figure and its 95 % interval.

    Attributes:
        value: NaN where it is not known.
        interval: unknown where it has none.
        p_value: of the value 1, two-sided; NaN where it is no ratio, or no two prompts differ.
        prompts: how many it is over; 0 where that is not said.
    """

    value: float
    interval: Interval = UNKNOWN
    p_value: float = math.nan
    prompts: int = 0

    def side_of(self, other: float = 1.0) -> int:
        """1 or -1 where the interval lies above or below a number; 0 where it holds it or is unknown."""
        return int(self.interval.low > other) - int(self.interval.high < other)

    def row(self, name: str, factor: float = 1.0, digits: int | None = 5) -> dict[str, float | None]:
        """The value and the ends of its interval, under a name; None where not known.

        Args:
            name: of the value.
            factor: what all three are multiplied by, such as 1000 for a number per 1,000.
            digits: decimals; None: as they are.
        """
        row = {name: finite(self.value), **self.interval.row(f"{name}_ci")}
        if digits is None:
            return row
        return {key: None if value is None else round(factor * value, digits) for key, value in row.items()}

    def __format__(self, spec: str) -> str:
        """As a table prints it: the value and its interval with so many decimals, 2 unless given.

        Behind the digits ``%`` for per cent or ``k`` for a number per 1,000; before them ``v`` for the value alone or
        ``i`` for the interval alone, which is empty where it is not known.
        """
        digits = int(spec.strip("vi%k") or 2)
        factor = {"%": 100.0, "k": 1000.0}.get(spec[-1:], 1.0)
        low, high = (factor * end for end in (self.interval.low, self.interval.high))
        ends = f"[{low:.{digits}f}, {high:.{digits}f}]" if is_known(self.interval) else ""
        if spec[:1] in ("v", "i"):
            return ends if spec[0] == "i" else number(factor * self.value, digits)
        return f"{number(factor * self.value, digits)} {ends}".rstrip()


Scalar = str | int | float | bool | None
Row = dict[str, Scalar]

Figures: TypeAlias = dict[str, Any]
"""Labels, numbers and estimates by the keys of the JSON."""

NO_FIGURE = Estimate(math.nan)
"""An estimate that is asked of nobody, such as of how far the first is ahead of itself; its cell stays empty."""


def flat(figures: Figures) -> Row:
    """Scalars alone: of an estimate the value and both ends; what is not known is None."""
    row: Row = {}
    for name, value in figures.items():
        if isinstance(value, Estimate):
            row |= value.row(name, digits=None)
        else:
            row[name] = finite(value) if isinstance(value, float) else value
    return row


def estimates(spread: Spread) -> list[Estimate]:
    """Figures of sums over prompts, each with its interval."""
    pairs = zip(spread.whole.tolist(), intervals_of(spread), strict=True)
    return [Estimate(value, interval, prompts=spread.num_prompts) for value, interval in pairs]


def ratio_estimates(spread: Spread) -> list[Estimate]:
    """Ratios, each with its interval, from the spread of their logarithms."""
    ends = (
        Interval(math.exp(ends.low), math.exp(ends.high)) if is_known(ends) else ends for ends in intervals_of(spread)
    )
    pairs = zip(np.exp(spread.whole).tolist(), ends, strict=True)
    return [Estimate(value, interval, prompts=spread.num_prompts) for value, interval in pairs]


def share_estimates(spread: Spread) -> list[Estimate]:
    """Figures between 0 and 1, each with an interval that stays there."""
    pairs = zip(spread.whole.tolist(), share_intervals(spread), strict=True)
    return [Estimate(value, interval, prompts=spread.num_prompts) for value, interval in pairs]


def sum_of_distances(spread: Spread) -> tuple[float, Estimate]:
    """The sum of the absolute values of some signed figures, which is too large where few prompts make them noisy.

    A figure b with a standard error s is expected to be |N(b, s)|, a folded normal, away from 0. Its excess over |b| is
    taken off, with b^2 - s^2 in place of the unknown b^2, or 0 where that is negative. The interval reaches as far
    around what is left as that of the raw sum does around it. In simulations of 40 prompts it holds the truth in 92 to
    96 % of cases; with 160, where figures are off by no more than their standard errors, in 79 %, since what noise adds
    is then not well known.

    Returns:
        The sum as it is on these prompts, and less what noise is thought to add to it; neither that nor its interval
        lies below 0.
    """
    figures, errors = spread.whole, np.maximum(spread.standard_errors(), 1e-12)
    distances = np.sqrt(np.maximum(figures**2 - errors**2, 0.0))
    folded = errors * np.sqrt(2 / np.pi) * np.exp(-((distances / errors) ** 2) / 2) + distances * erf(
        distances / errors / np.sqrt(2)
    )
    raw = float(np.abs(figures).sum())
    value = max(raw - float((folded - distances).sum()), 0.0)
    total = Spread(np.array([raw]), np.abs(spread.without_each).sum(axis=1, keepdims=True), spread.num_effective[:1])
    (around,) = intervals_of(total)
    if is_known(around):
        around = Interval(max(value - (raw - around.low), 0.0), value + (around.high - raw))
    return raw, Estimate(value, around)


def prompt_ratio(turns: pl.DataFrame, **powers: int) -> Estimate:
    """A product of powers of sums of columns, such as ``committed=1, rounds=-1``.

    Args:
        turns: a row per turn, with the columns of `PROMPT` and those that are named; none of these negative.
        powers: of the sum of each column.

    Raises:
        ValueError: there is no row.
    """
    table = turns.group_by(*PROMPT, maintain_order=True).agg(pl.col(*powers).cast(pl.Float64).sum())
    return _of_logarithm(log_products(table.select(*powers).to_numpy(), np.array([list(powers.values())], np.float64)))


def prompt_share(turns: pl.DataFrame, part: str, whole: str) -> Estimate:
    """The share that the sum of a column is of the sum of another; the interval stays between 0 and 1.

    Args:
        turns: a row per turn, with the columns of `PROMPT` and the two.
        part: a column, nowhere larger than the other.
        whole: a column.

    Raises:
        ValueError: there is no row.
    """
    table = turns.group_by(*PROMPT, maintain_order=True).agg(pl.col(whole, part).cast(pl.Float64).sum())
    return share_estimates(prompt_spread(table.select(whole, part).to_numpy(), ratios))[0]


def mean_over_datasets(turns: pl.DataFrame, above: str, below: str) -> Estimate:
    """The mean over datasets, each of equal weight, of the sum of a column over the sum of another.

    Args:
        turns: a row per turn, with the columns of `PROMPT` and the two.
        above: a column.
        below: a column; a column of ones makes the mean over turns.
    """
    return estimates(_over_datasets(turns, (above, below), lambda sums: _mean_ratio(sums[..., 0, :], sums[..., 1, :])))[
        0
    ]


def ratio_of_dataset_means(turns: pl.DataFrame, first: tuple[str, str], second: tuple[str, str]) -> Estimate:
    """One `mean_over_datasets` over another of the same turns, paired; each by its columns above and below."""

    def figures(sums: Doubles) -> Doubles:
        means = [_mean_ratio(sums[..., at, :], sums[..., at + 1, :]) for at in (0, 2)]
        return np.asarray(np.log(means[0] / means[1]), np.float64)

    return _of_logarithm(_over_datasets(turns, (*first, *second), figures))


def _of_logarithm(spread: Spread) -> Estimate:
    """A ratio, its interval and p-value, from the spread of its logarithm."""
    log = float(spread.whole[0])
    value = float(np.exp(log))
    (ends,) = intervals_of(spread)
    if not is_known(ends):
        return Estimate(value, prompts=spread.num_prompts)
    error, degrees = float(spread.standard_errors()[0]), float(spread.degrees_of_freedom()[0])
    p_value = 2 * float(stdtr(degrees, -abs(log) / error)) if error > 0 else 1.0 if log == 0 else 0.0
    return Estimate(value, Interval(float(np.exp(ends.low)), float(np.exp(ends.high))), p_value, spread.num_prompts)


def _over_datasets(turns: pl.DataFrame, columns: Sequence[str], figures: Callable[[Doubles], Doubles]) -> Spread:
    """The spread of figures of sums, float64 ``[.., columns, datasets]``."""
    datasets = turns["dataset"].unique(maintain_order=True).to_list()
    parts = [
        pl.when(pl.col("dataset") == name).then(pl.col(column)).otherwise(0.0).sum().alias(f"{at} {name}")
        for at, column in enumerate(columns)
        for name in datasets
    ]
    table = turns.group_by(*PROMPT, maintain_order=True).agg(pl.len().cast(pl.Float64).alias("all"), *parts)
    shape = (len(columns), len(datasets))
    return prompt_spread(
        table.drop(*PROMPT).to_numpy(), lambda sums: figures(sums[..., 1:].reshape(*sums.shape[:-1], *shape))
    )


def _mean_ratio(above: Doubles, below: Doubles) -> Doubles:
    return np.asarray((above / below).mean(axis=-1, keepdims=True), np.float64)
