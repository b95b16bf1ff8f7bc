"""Published figures beside our own: chains and trees of a fixed budget on a recorded trace."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from simlab.analysis.compare.averaging import MACRO, POOLED, both_means, finite
from simlab.analysis.reproduce.published import PublishedFigure, PublishedStudy
from simlab.analysis.statistics.intervals import UNKNOWN, Interval
from simlab.analysis.table.prompt_sums import PolicyRun
from simlab.analysis.table.summaries import BASELINE, Scalar, speed_of

GRID = (16, 32, 64, 128, 256, 512, 1024)
"""The budgets that DDTree tries."""


@dataclass(frozen=True, slots=True)
class ReproducedFigure:
    """A published figure and ours.

    Attributes:
        policy: which policy of ours it is held against.
        ours: NaN where it is not known.
    """

    theirs: PublishedFigure
    policy: str
    ours: float
    interval: Interval

    @property
    def difference_share(self) -> float:
        """Ours over theirs, less 1."""
        return self.ours / self.theirs.value - 1

    @property
    def is_within(self) -> bool:
        """Whether the interval holds their figure, as it is rounded."""
        half = 0.005
        return self.interval.low - half <= self.theirs.value <= self.interval.high + half

    def row(self) -> dict[str, Scalar]:
        """Flat scalars, as a script reads them; what is not known is None."""
        known = not math.isnan(self.interval.low)
        return {
            "policy": self.policy,
            "measure": self.theirs.measure,
            "theirs": self.theirs.value,
            "theirs_note": self.theirs.note,
            "ours": finite(self.ours),
            "ours_ci_low": finite(self.interval.low),
            "ours_ci_high": finite(self.interval.high),
            "difference_share": finite(self.difference_share),
            "within_interval": self.is_within if known else None,
        }


def reproduce_figures(
    published: PublishedStudy, rows: pl.DataFrame, policies: dict[str, str]
) -> list[ReproducedFigure]:
    """Each published figure beside that of our rows.

    Args:
        published: what they say.
        rows: result rows of plain decoding and the policies.
        policies: which policy of the rows stands for each of theirs, by its name there.
    """
    plain = rows.filter(pl.col("name") == BASELINE)
    found = []
    for figure in published.figures:
        label = policies[figure.policy]
        own = rows.filter(pl.col("policy") == label)
        found.append(ReproducedFigure(figure, label, *_value(figure.measure, PolicyRun(label, own, plain))))
    return found


def _value(measure: str, run: PolicyRun) -> tuple[float, Interval]:
    if measure in (POOLED, MACRO):
        means = both_means(run)
        return (means.pooled, means.pooled_interval) if measure == POOLED else (means.macro, means.macro_interval)
    speed = speed_of(run.rows, run.plain)
    return speed.speedup, speed.interval if not math.isnan(speed.speedup) else UNKNOWN


@dataclass(frozen=True, slots=True)
class BudgetFigures:
    """A fixed budget on some prompts."""

    policy: str
    acceptance_length: float
    acceptance_length_macro: float
    tokens_per_s: float

    def row(self) -> dict[str, Scalar]:
        """Flat scalars; what is not known is None."""
        return {
            "policy": self.policy,
            POOLED: finite(self.acceptance_length),
            MACRO: finite(self.acceptance_length_macro),
            "tokens_per_s": finite(self.tokens_per_s),
        }


def budget_figures(rows: pl.DataFrame, policies: Sequence[str]) -> list[BudgetFigures]:
    """Both means and the predicted speed of each policy."""
    found = []
    for policy in policies:
        own = rows.filter(pl.col("policy") == policy)
        means = both_means(PolicyRun(policy, own, own.clear()))
        found.append(BudgetFigures(policy, means.pooled, means.macro, speed_of(own, own.clear()).tokens_per_s))
    return found


def fastest_budget(figures: Sequence[BudgetFigures]) -> BudgetFigures:
    """The budget with the most tokens per second, the smaller of equal ones.

    Raises:
        ValueError: a speed is not known.
    """
    if any(math.isnan(one.tokens_per_s) for one in figures):
        raise ValueError("a budget is chosen by its speed, and there is no latency profile")
    return max(figures, key=lambda one: one.tokens_per_s)
