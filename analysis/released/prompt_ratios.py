"""Ratios of sums over prompts, with intervals: what most figures of released records are.

A row of a table is a turn; turns of one prompt stay together. Two methods side by side in one row are paired. A figure
over all prompts takes the mix of datasets as drawn by chance too; one that averages over datasets holds it fixed.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from scipy.special import stdtr

from simlab.analysis.statistics.intervals import (
    UNKNOWN,
    Interval,
    Spread,
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
class PromptFigure:
    """A figure of sums over prompts.

    Attributes:
        value: NaN where a sum is not positive.
        interval: 95 %, over prompts.
        p_value: of the value 1, two-sided; NaN where it is no ratio, or no two prompts differ.
        prompts: how many it is over.
    """

    value: float
    interval: Interval
    p_value: float
    prompts: int

    @property
    def differs(self) -> bool:
        """Whether the interval excludes 1."""
        return is_known(self.interval) and not self.interval.low <= 1 <= self.interval.high

    @property
    def direction(self) -> int:
        """1 or -1 where the interval lies above or below 1, else 0."""
        return int(np.sign(self.value - 1)) if self.differs else 0

    def row(self, name: str, factor: float = 1.0) -> dict[str, float | None]:
        """The value and the ends of its interval, under a name; None where not known.

        Args:
            name: of the value.
            factor: what all three are multiplied by, such as 1000 for a number per 1,000.
        """
        found = {name: self.value, f"{name}_ci_low": self.interval.low, f"{name}_ci_high": self.interval.high}
        return {key: round(factor * value, 5) if np.isfinite(value) else None for key, value in found.items()}

    def text(self, digits: int = 2, factor: float = 1.0) -> str:
        """The value and its interval, as a table prints them.

        Args:
            digits: decimals.
            factor: what all three are multiplied by, such as 100 for per cent.
        """
        if not is_known(self.interval):
            return number(factor * self.value, digits)
        low, high = (factor * end for end in (self.interval.low, self.interval.high))
        return f"{factor * self.value:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"


def prompt_ratio(turns: pl.DataFrame, **powers: int) -> PromptFigure:
    """A product of powers of sums of columns, such as ``committed=1, rounds=-1``.

    Args:
        turns: a row per turn, with the columns of `PROMPT` and those that are named; none of these negative.
        powers: of the sum of each column.

    Raises:
        ValueError: there is no row.
    """
    table = turns.group_by(*PROMPT, maintain_order=True).agg(pl.col(*powers).cast(pl.Float64).sum())
    spread = log_products(table.select(*powers).to_numpy(), np.array([list(powers.values())], np.float64))
    return _of_logarithm(spread)


def prompt_share(turns: pl.DataFrame, part: str, whole: str) -> PromptFigure:
    """The share that the sum of a column is of the sum of another; the interval stays between 0 and 1.

    Args:
        turns: a row per turn, with the columns of `PROMPT` and the two.
        part: a column, nowhere larger than the other.
        whole: a column.

    Raises:
        ValueError: there is no row.
    """
    table = turns.group_by(*PROMPT, maintain_order=True).agg(pl.col(whole, part).cast(pl.Float64).sum())
    spread = prompt_spread(table.select(whole, part).to_numpy(), ratios)
    return PromptFigure(float(spread.whole[0]), share_intervals(spread)[0], float("nan"), table.height)


def mean_over_datasets(turns: pl.DataFrame, above: str, below: str) -> PromptFigure:
    """The mean over datasets, each of equal weight, of the sum of a column over the sum of another.

    Args:
        turns: a row per turn, with the columns of `PROMPT` and the two.
        above: a column.
        below: a column; one of ones makes the mean over turns.
    """
    spread = _over_datasets(turns, (above, below), lambda sums: _mean_ratio(sums[..., 0, :], sums[..., 1, :]))
    return PromptFigure(float(spread.whole[0]), intervals_of(spread)[0], float("nan"), spread.num_prompts)


def ratio_of_dataset_means(turns: pl.DataFrame, first: tuple[str, str], second: tuple[str, str]) -> PromptFigure:
    """One `mean_over_datasets` over another of the same turns, paired.

    Args:
        turns: a row per turn, with the columns of `PROMPT` and those that are named.
        first: columns above and below.
        second: likewise.
    """

    def figures(sums: Doubles) -> Doubles:
        means = [_mean_ratio(sums[..., place, :], sums[..., place + 1, :]) for place in (0, 2)]
        return np.asarray(np.log(means[0] / means[1]), np.float64)

    return _of_logarithm(_over_datasets(turns, (*first, *second), figures))


def _of_logarithm(spread: Spread) -> PromptFigure:
    """A ratio, its interval and p-value, from the spread of its logarithm."""
    log = float(spread.whole[0])
    value = float(np.exp(log))
    (found,) = intervals_of(spread)
    if not is_known(found):
        return PromptFigure(value, UNKNOWN, float("nan"), spread.num_prompts)
    error, degrees = float(spread.standard_errors()[0]), float(spread.degrees_of_freedom()[0])
    p_value = 2 * float(stdtr(degrees, -abs(log) / error)) if error > 0 else 1.0 if log == 0 else 0.0
    ends = Interval(float(np.exp(found.low)), float(np.exp(found.high)))
    return PromptFigure(value, ends, p_value, spread.num_prompts)


def _over_datasets(turns: pl.DataFrame, columns: Sequence[str], figures: Callable[[Doubles], Doubles]) -> Spread:
    """The spread of figures of sums, float64 ``[.., columns, datasets]``."""
    datasets = turns["dataset"].unique(maintain_order=True).to_list()
    parts = [
        pl.when(pl.col("dataset") == name).then(pl.col(column)).otherwise(0.0).sum().alias(f"{place} {name}")
        for place, column in enumerate(columns)
        for name in datasets
    ]
    table = turns.group_by(*PROMPT, maintain_order=True).agg(pl.len().cast(pl.Float64).alias("all"), *parts)
    shape = (len(columns), len(datasets))
    return prompt_spread(
        table.drop(*PROMPT).to_numpy(), lambda sums: figures(sums[..., 1:].reshape(*sums.shape[:-1], *shape))
    )


def _mean_ratio(above: Doubles, below: Doubles) -> Doubles:
    return np.asarray((above / below).mean(axis=-1, keepdims=True), np.float64)
