"""Ratios of sums over prompts, with intervals: what most figures of released records are.

A row of a table is a turn; turns of one prompt stay together. Two methods side by side in one row are paired.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import polars as pl
from scipy.special import stdtr

from simlab.analysis.statistics.intervals import LEVEL, UNKNOWN, Interval, intervals_of
from simlab.analysis.statistics.jackknife import log_products
from simlab.analysis.statistics.prompt_spread import prompt_spread, ratios, share_intervals
from simlab.analysis.table.text import is_known
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
        """Whether the interval leaves out 1."""
        return is_known(self.interval) and not self.interval.low <= 1 <= self.interval.high

    @property
    def direction(self) -> int:
        """1 or -1 where the interval lies above or below 1, else 0."""
        return int(np.sign(self.value - 1)) if self.differs else 0

    def row(self, name: str) -> dict[str, float | None]:
        """The value and the ends of its interval, under a name; None where not known."""
        found = {name: self.value, f"{name}_ci_low": self.interval.low, f"{name}_ci_high": self.interval.high}
        return {key: round(value, 5) if np.isfinite(value) else None for key, value in found.items()}


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
    value = float(np.exp(spread.whole[0]))
    (found,) = intervals_of(spread)
    if not is_known(found):
        return PromptFigure(value, UNKNOWN, float("nan"), table.height)
    error, degrees = float(spread.standard_errors()[0]), float(spread.degrees_of_freedom()[0])
    log = float(spread.whole[0])
    p_value = 2 * float(stdtr(degrees, -abs(log) / error)) if error > 0 else 1.0 if log == 0 else 0.0
    return PromptFigure(value, Interval(float(np.exp(found.low)), float(np.exp(found.high))), p_value, table.height)


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
    datasets = turns["dataset"].unique(maintain_order=True).to_list()
    parts = [
        pl.when(pl.col("dataset") == name).then(pl.col(column)).otherwise(0.0).sum().alias(f"{column} {name}")
        for column in (above, below)
        for name in datasets
    ]
    table = turns.group_by(*PROMPT, maintain_order=True).agg(pl.len().cast(pl.Float64).alias("all"), *parts)
    sums = table.drop(*PROMPT).to_numpy()
    spread = prompt_spread(sums, _mean_of_ratios(len(datasets)))
    return PromptFigure(float(spread.whole[0]), intervals_of(spread)[0], float("nan"), table.height)


def significance_level() -> float:
    """The level at which a p-value counts, the intervals' own."""
    return 1 - LEVEL


def _mean_of_ratios(num_datasets: int) -> Callable[[Doubles], Doubles]:
    def figures(sums: Doubles) -> Doubles:
        above, below = sums[..., 1 : 1 + num_datasets], sums[..., 1 + num_datasets :]
        return np.asarray((above / below).mean(axis=-1, keepdims=True), np.float64)

    return figures
