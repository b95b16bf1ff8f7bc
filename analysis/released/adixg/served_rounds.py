"""Paired rounds of serving at two prices: how much faster one is, and whether neighbouring rounds are alike."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from simlab.analysis.compare.averaging import finite
from simlab.analysis.released.adixg.pass_fits import ValueWithInterval
from simlab.analysis.released.adixg.records import PairedRounds
from simlab.analysis.statistics.intervals import mean_interval
from simlab.analysis.table.text import aligned, is_known, number, within_width
from simlab.arrays import Doubles

BLOCKS = (2, 4)
"""Rounds of serving that are taken together, since neighbours may be alike; with an even number each price goes first
as often."""

_WHITE = 1.96
"""Of white noise, the correlation of N rounds with the next lies within this over the root of N in 95 % of cases."""


@dataclass(frozen=True, slots=True)
class ServedDifference:
    """How much faster serving is at the corrected price, in per cent.

    Attributes:
        rounds: how many.
        mean: with Student's interval over rounds, as if these were independent.
        by_block: the same over blocks of so many neighbouring rounds.
        by_order: the same of the rounds in which either price went first, by which.
        standard_errors: the mean over its standard error; NaN where it has none.
        correlation: of a round with the next one; NaN where not known.
    """

    rounds: int
    mean: ValueWithInterval
    by_block: Mapping[int, ValueWithInterval]
    by_order: Mapping[str, ValueWithInterval]
    standard_errors: float
    correlation: float

    @property
    def correlation_limit(self) -> float:
        """What the correlation of independent rounds stays below, either way, in 95 % of cases."""
        return _WHITE / math.sqrt(self.rounds)

    def follows(self) -> str:
        """What serving comes to, in a sentence."""
        if self.mean.side_of(0) == 0:
            return f"serving at the corrected price made no difference that {self.rounds} rounds show."
        said = f"serving at the corrected price was {abs(self.mean.value):.2f} % {_direction(self.mean)} over rounds"
        unsure = [size for size, one in self.by_block.items() if not one.side_of(0)]
        numbers = [self.rounds // size for size in unsure]
        blocks = [f"{num} block{'' if num == 1 else 's'} of {size}" for num, size in zip(numbers, unsure, strict=True)]
        alike = "are" if abs(self.correlation) > self.correlation_limit else "may be"
        if not blocks:
            return f"{said}, and over blocks of {' and '.join(map(str, self.by_block))} rounds too."
        return (
            f"{said}; if neighbouring rounds are taken together, as they {alike} alike, {' and '.join(blocks)} "
            f"{'does' if numbers == [1] else 'do'} not show it."
        )

    def text(self) -> str:
        """The means and their intervals, and how alike neighbours are."""
        cells = [["% faster with the corrected price", "mean", "[95 %]"]]
        named = {f"over blocks of {size} rounds": one for size, one in self.by_block.items()}
        for name, one in {"over rounds": self.mean, **named, **self.by_order}.items():
            ends = f"[{one.interval.low:.3f}, {one.interval.high:.3f}]" if is_known(one.interval) else "-"
            cells.append([name, number(one.value, 3), ends])
        table = aligned(cells, [True, False, True])
        return table if math.isnan(self.correlation) else f"{table}\n\n{within_width(self._alike())}"

    def _alike(self) -> str:
        shown = "more" if abs(self.correlation) > self.correlation_limit else "no more"
        return (
            f"Correlation of a round with the next: {self.correlation:.2f}, {shown} than the "
            f"{self.correlation_limit:.2f} that independent rounds reach in one case of 20. Where rounds are alike the "
            "interval over blocks is the better one, though of fewer values."
        )

    def values(self) -> dict[str, object]:
        """What ``--json`` prints of it; what is not known is None."""
        return {
            "by_block": {f"over blocks of {size} rounds": one.row() for size, one in self.by_block.items()},
            "correlation_of_neighbours": finite(self.correlation),
            "correlation_of_independent_rounds_below": self.correlation_limit,
            "by_order": {name: one.row() for name, one in self.by_order.items()},
        }


def served_difference(rounds: PairedRounds) -> ServedDifference:
    """The difference of the two prices over rounds, over blocks of rounds, and by which price went first."""
    percent = rounds.percent
    orders = (("vLLM's price first", True), ("corrected price first", False))
    return ServedDifference(
        len(percent),
        over_blocks(percent, 1),
        {size: over_blocks(percent, size) for size in BLOCKS},
        {name: over_blocks(percent[rounds.stock_first == first], 1) for name, first in orders},
        standard_errors_from_zero(percent),
        neighbours_alike(percent),
    )


def over_blocks(values: Doubles, size: int) -> ValueWithInterval:
    """The mean of rounds with its interval over blocks of neighbours; rounds that fill no block are left out.

    Args:
        values: float64 ``[rounds]``, in the order in which they ran.
        size: rounds of a block.

    Returns:
        NaN where no block is full; without an interval where only one is.
    """
    means = values[: len(values) // size * size].reshape(-1, size).mean(axis=1)
    return ValueWithInterval(float(means.mean()) if len(means) else math.nan, mean_interval(means))


def standard_errors_from_zero(values: Doubles) -> float:
    """The mean over its standard error; NaN of fewer than two values, or of equal ones.

    Args:
        values: float64 ``[rounds]``.
    """
    if len(values) < 2 or np.ptp(values) == 0:
        return math.nan
    return float(values.mean() / (values.std(ddof=1) / math.sqrt(len(values))))


def neighbours_alike(values: Doubles) -> float:
    """Correlation of each round with the next one; NaN where all are equal.

    Args:
        values: float64 ``[rounds]``, in the order in which they ran.
    """
    about = values - values.mean()
    squares = float((about**2).sum())
    return float((about[1:] * about[:-1]).sum()) / squares if squares > 0 else math.nan


def _direction(mean: ValueWithInterval) -> str:
    return "slower" if mean.value < 0 else "faster"
