"""How any figure of sums over prompts varies with the prompts, and by how much noise makes it too large."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import erf

from simlab.analysis.statistics.intervals import Interval, intervals_of
from simlab.analysis.statistics.jackknife import Spread
from simlab.arrays import Doubles


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
        found = whole, figures(total - sums), np.full(len(whole), 1 / float((shares**2).sum()))
    return Spread(*(np.asarray(one, np.float64) for one in found))


def ratios(sums: Doubles) -> Doubles:
    """All columns but the first, divided by the first."""
    found: Doubles = sums[..., 1:] / sums[..., :1]
    return found


def share_intervals(spread: Spread) -> list[Interval]:
    """Intervals of figures that lie between 0 and 1; Student's may reach beyond and are cut there."""
    return [Interval(*np.clip([one.low, one.high], 0.0, 1.0).tolist()) for one in intervals_of(spread)]


@dataclass(frozen=True, slots=True)
class CorrectedSum:
    """A sum of distances, whose noise does not cancel.

    Attributes:
        raw: as it is on these prompts.
        value: less what noise is thought to add to it, and not below 0.
        interval: of ``value``, 95 % over prompts; not below 0.
    """

    raw: float
    value: float
    interval: Interval


def sum_of_distances(spread: Spread) -> CorrectedSum:
    """The sum of the absolute values of some signed figures, which is too large where few prompts make them noisy.

    A figure b with a standard error s is expected to be |N(b, s)|, a folded normal, away from 0. Its excess over |b| is
    taken off, with b^2 - s^2 in place of the unknown b^2, or 0 where that is negative. The interval reaches as far
    around what is left as that of the raw sum does around it. In simulations of 40 prompts it holds the truth in 92 to
    96 % of cases; with 160, where figures are off by no more than their standard errors, in 79 %, since what noise adds
    is then not well known.
    """
    figures, errors = spread.whole, np.maximum(spread.standard_errors(), 1e-12)
    there = np.sqrt(np.maximum(figures**2 - errors**2, 0.0))
    folded = errors * np.sqrt(2 / np.pi) * np.exp(-((there / errors) ** 2) / 2) + there * erf(
        there / errors / np.sqrt(2)
    )
    raw = float(np.abs(figures).sum())
    value = max(raw - float((folded - there).sum()), 0.0)
    total = Spread(np.array([raw]), np.abs(spread.without_each).sum(axis=1, keepdims=True), spread.num_effective[:1])
    (around,) = intervals_of(total)
    if math.isnan(around.low):
        return CorrectedSum(raw, value, around)
    return CorrectedSum(raw, value, Interval(max(value - (raw - around.low), 0.0), value + (around.high - raw)))
