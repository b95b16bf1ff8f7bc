"""What a pass costs by tokens and context: floors, the price of a context token, and errors on contexts left out."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from simlab.analysis.compare.averaging import finite
from simlab.analysis.released.adixg.records import PassCell
from simlab.analysis.statistics.intervals import UNKNOWN, Interval, Spread, intervals_of, log_products
from simlab.analysis.table.text import is_known

HELD_OUT = (1024, 4096)
"""Contexts that they leave out of the fit."""

WIDEST = 100.0
"""An interval of a factor whose ends are further apart than this many times tells nothing, and is left out."""


@dataclass(frozen=True, slots=True)
class ValueWithInterval:
    """A number of ours, and its 95 % interval.

    Attributes:
        value: NaN where it is not known.
        interval: unknown where it has none.
    """

    value: float
    interval: Interval

    def side_of(self, other: float) -> int:
        """1 or -1 where the interval lies above or below a number; 0 where it holds it or is unknown."""
        return int(self.interval.low > other) - int(self.interval.high < other)

    def row(self) -> dict[str, float | None]:
        """Value and ends, as a script reads them; what is not known is None."""
        ends = self.interval
        return {"value": finite(self.value), "ci_low": finite(ends.low), "ci_high": finite(ends.high)}


@dataclass(frozen=True, slots=True)
class HeldOutErrors:
    """Root mean squared errors on the contexts that were left out of a fit, in ms.

    Attributes:
        k_ms: what the fit says of one context token.
        cells: how many.
        sizes: of a pass, over which the interval is.
        profile: the error of vLLM's one price for each size.
        additive: that of the floor of the size and ``k`` times the context.
        reduction: the first over the second, with its interval over sizes; unknown where these tell nothing.
    """

    k_ms: float
    cells: int
    sizes: int
    profile: float
    additive: float
    reduction: ValueWithInterval

    @property
    def in_words(self) -> str:
        """How much smaller or larger the error of the price with the context is, in a clause."""
        factor, side = self.reduction.value, self.reduction.side_of(1)
        if not is_known(self.reduction.interval):
            errors = f"errors are {self.profile:.2f} ms at one price and {self.additive:.2f} ms with the context"
            return f"{errors} ({self.sizes} sizes do not tell the factor)"
        if side == 0:
            return f"shows no difference ({self.profile:.2f} and {self.additive:.2f} ms)"
        return f"errs {factor if side > 0 else 1 / factor:.{0 if max(factor, 1 / factor) >= 10 else 1}f} times " + (
            "less" if side > 0 else "more"
        )

    def row(self) -> dict[str, object]:
        """As a script reads it; what is not known is None."""
        return {
            "k_us": 1000 * self.k_ms,
            "cells": self.cells,
            "sizes": self.sizes,
            "profile_ms": self.profile,
            "additive_ms": self.additive,
            "reduction": self.reduction.row(),
        }


def additive_slope(cells: Sequence[PassCell]) -> float:
    """Milliseconds per context token, by least squares on medians over each size's pass without context."""
    floors = floors_of(cells)
    over = [(cell.context_tokens, cell.median_ms - floors[cell.sweep, cell.tokens]) for cell in cells]
    return sum(x * y for x, y in over) / sum(x * x for x, _ in over)


def floors_of(cells: Iterable[PassCell]) -> dict[tuple[str, int], float]:
    """The median without context, by sweep and size."""
    return {(cell.sweep, cell.tokens): cell.median_ms for cell in cells if cell.context == 0}


def fitted_cells(cells: Iterable[PassCell]) -> list[PassCell]:
    """The cells that a fit sees: all but those of the contexts that are left out."""
    return [cell for cell in cells if cell.context not in HELD_OUT]


def held_out_errors(cells: Sequence[PassCell], k_ms: float) -> HeldOutErrors:
    """The errors of both prices on the contexts that were left out.

    Args:
        cells: those without context among them.
        k_ms: of one context token.
    """
    floors = floors_of(cells)
    left = [cell for cell in cells if cell.context in HELD_OUT]
    sizes = sorted({(cell.sweep, cell.tokens) for cell in left})
    sums = np.zeros((len(sizes), 2))
    for cell in left:
        additive = floors[cell.sweep, cell.tokens] + k_ms * cell.context_tokens
        place = sizes.index((cell.sweep, cell.tokens))
        sums[place] += (cell.profiled_ms - cell.median_ms) ** 2, (additive - cell.median_ms) ** 2
    profile, additive = (float(one) for one in np.sqrt(sums.sum(axis=0) / len(left)))
    factor = profile / additive if additive > 0 else math.nan
    return HeldOutErrors(
        k_ms, len(left), len(sizes), profile, additive, ValueWithInterval(factor, _reduction_interval(sums))
    )


def _reduction_interval(sums: np.ndarray[tuple[int, int], np.dtype[np.float64]]) -> Interval:
    """Over sizes; unknown where an error is 0, or the ends are too far apart to tell anything."""
    (ends,) = intervals_of(log_products(sums, np.array([[0.5, -0.5]])))
    if not is_known(ends) or ends.high - ends.low > math.log(WIDEST):
        return UNKNOWN
    return Interval(math.exp(ends.low), math.exp(ends.high))


def context_slope(cells: Sequence[PassCell]) -> ValueWithInterval:
    """Microseconds per context token: least squares on all samples, a level of its own for each size.

    The interval is over sizes of a pass: samples of a size share what is special to it.
    """
    sizes = sorted({cell.tokens for cell in cells})
    sums = np.array([_cross_sums([cell for cell in cells if cell.tokens == size]) for size in sizes])
    total = sums.sum(axis=0)
    without = total - sums
    shares = sums[:, 1] / total[1]
    spread = Spread(
        np.array([1000 * total[0] / total[1]]),
        1000 * (without[:, :1] / without[:, 1:]),
        np.array([1 / (shares**2).sum()]),
    )
    return ValueWithInterval(float(spread.whole[0]), intervals_of(spread)[0])


def _cross_sums(cells: Sequence[PassCell]) -> tuple[float, float]:
    """Sums of products of context and time, and of squares of the context, about the means of one size."""
    x = np.concatenate([np.full(len(cell.samples_ms), cell.context_tokens, np.float64) for cell in cells])
    y = np.concatenate([np.array(cell.samples_ms) for cell in cells])
    return float(((x - x.mean()) * (y - y.mean())).sum()), float(((x - x.mean()) ** 2).sum())
