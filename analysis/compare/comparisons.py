"""Runs compared on the same prompts, pair by pair: differences and ratios with paired intervals.

`compare_runs` is where to begin: every pair, by every measure that is known, slice by slice.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
from scipy.special import stdtr

from simlab.analysis.statistics.intervals import (
    FEW_PROMPTS,
    LEVEL,
    Interval,
    Spread,
    finite,
    intervals_of,
    log_products,
)
from simlab.analysis.statistics.significance import CORRECTIONS, PriceSpread, detectable_ratios
from simlab.analysis.statistics.slices import Slice
from simlab.analysis.table.prompt_sums import COLUMNS, PolicyRun, PromptSums, prompt_sums, runs_by_slice
from simlab.arrays import Doubles

POWERS: dict[str, dict[str, int]] = {
    "acceptance_length": {"committed": 1, "rounds": -1},
    "acceptance_length_macro": {"response_means": 1, "responses": -1},
    "tokens_per_s": {"committed": 1, "seconds": -1},
    "speedup": {"committed": 1, "seconds": -1, "plain_committed": -1, "plain_seconds": 1},
}
"""What can be compared, each a product of powers of sums over prompts; more is better."""

_ENDS = {
    "difference_interval": "difference_ci",
    "ratio_interval": "ratio_ci",
    "price_interval": "ratio_price",
}
"""What the ends of each interval are called in rows."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """One number of two runs on the same prompts.

    Attributes:
        measure: one of ``POWERS``, or `simlab.analysis.optimize.finalists.WORST_SPEEDUP`.
        first: name of a run.
        second: name of the run that it is compared with.
        slice: of which rows; None: all.
        first_value: NaN where it is not known; likewise all that follows.
        difference: the first value less the second.
        ratio: the first value over the second.
        price_interval: of the ratio, by the noise of the latency profile alone; unknown where it does not depend on
            prices, or these are of two profiles, measured, or without noise.
        p_value: of equal runs, two-sided, by Student's t on the logarithm of the ratio.
        p_adjusted: the same in the family of comparisons that it is read in.
        detectable: the ratio above 1 that so many prompts would find, 8 times in 10.
        family: how many comparisons it is read among.
        equal: whether every prompt has the same sums in both.
    """

    measure: str
    first: str
    second: str
    slice: Slice
    prompts: int
    first_value: float
    second_value: float
    difference: float
    difference_interval: Interval
    ratio: float
    ratio_interval: Interval
    price_interval: Interval
    p_value: float
    p_adjusted: float
    log_error: float
    degrees: float
    detectable: float
    family: int
    equal: bool

    @property
    def is_known(self) -> bool:
        """Whether the prompts allow an interval."""
        return not math.isnan(self.ratio_interval.low)

    @property
    def differs(self) -> bool:
        """Whether the two can be told apart, by the prompts and by the prices."""
        return self.differs_by_prompts and not self.is_within_price_noise

    @property
    def has_enough_prompts(self) -> bool:
        """Whether there are as many prompts as an interval needs, and it is more than a point."""
        return self.prompts >= FEW_PROMPTS and self.ratio_interval.low < self.ratio_interval.high

    @property
    def verdict(self) -> bool | None:
        """Whether the first is better (True) or worse (False); None where prompts or prices do not tell."""
        return self.ratio > 1 if self.differs and self.has_enough_prompts else None

    @property
    def differs_by_prompts(self) -> bool:
        """Whether the interval over prompts leaves out 1, and the adjusted p-value is below 5 %."""
        interval = self.ratio_interval
        return self.is_known and not interval.low <= 1 <= interval.high and self.p_adjusted < 1 - LEVEL

    @property
    def is_within_price_noise(self) -> bool:
        """Whether the price interval is known and holds 1."""
        return self.price_interval.low <= 1 <= self.price_interval.high

    def row(self) -> dict[str, Slice]:
        """Flat scalars, as a script reads them; what is not known is None."""
        row: dict[str, Slice] = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, Interval):
                row |= value.row(_ENDS[field.name])
            else:
                row[field.name] = finite(value) if isinstance(value, float) else value
        return row | {"differs": self.differs}


def compare_pairs(
    by_prompt: PromptSums, names: Sequence[str], pairs: Sequence[tuple[int, int]], measure: str, value: Slice = None
) -> list[Comparison]:
    """Each pair of runs by one measure, each alone; `adjust_family` reads them together.

    Args:
        by_prompt: of all runs.
        names: of the runs.
        pairs: places of two runs each.
        measure: one of ``POWERS``.
        value: the slice, if it is one.

    Raises:
        ValueError: there is no such measure, or no prompt.
    """
    if measure not in POWERS:
        raise ValueError(f"measure must be one of {', '.join(POWERS)}; got {measure!r}")
    columns = [COLUMNS.index(name) for name in POWERS[measure]]
    sums = by_prompt.sums[:, :, columns]
    logs = logs_of_runs(sums, np.array(list(POWERS[measure].values()), np.float64))
    equal = [bool(np.array_equal(sums[:, first], sums[:, second])) for first, second in pairs]
    return compare_logs(logs, price_spread(by_prompt, measure), equal, names, pairs, measure, value)


def price_spread(by_prompt: PromptSums, measure: str) -> PriceSpread:
    """Logarithms of one of ``POWERS`` at each draw of the prices; nan of what does not depend on seconds."""
    powers = [POWERS[measure].get(name, 0) for name in ("seconds", "plain_seconds")]
    parts = [power * by_prompt.log_draws[:, index] for index, power in enumerate(powers) if power]
    unknown = np.full_like(by_prompt.log_draws[:, 0], np.nan)
    return PriceSpread(np.sum(parts, axis=0) if parts else unknown, by_prompt.profiles)


def compare_logs(
    logs: Spread,
    prices: PriceSpread,
    equal: Sequence[bool],
    names: Sequence[str],
    pairs: Sequence[tuple[int, int]],
    measure: str,
    value: Slice = None,
) -> list[Comparison]:
    """Each pair of runs by logarithms of a number of theirs, each alone.

    Args:
        logs: of each run.
        prices: of the same number of each run.
        equal: of each pair whether every prompt has the same sums in both.
        names: of the runs.
        pairs: places of two runs each.
        measure: what the number is.
        value: the slice, if it is one.
    """
    first, second = (logs.take([pair[side] for pair in pairs]) for side in (0, 1))
    ratio, difference = first.minus(second), first.exp().minus(second.exp())
    errors = degrees = np.full(len(ratio.whole), np.nan)
    if ratio.num_prompts > 1:
        errors, degrees = ratio.standard_errors(), ratio.degrees_of_freedom()
    p_values, detectable = _p_values(ratio.whole, errors, degrees), detectable_ratios(errors, degrees)
    ratios, differences = intervals_of(ratio), intervals_of(difference)
    return [
        Comparison(
            measure=measure,
            first=names[left],
            second=names[right],
            slice=value,
            prompts=logs.num_prompts,
            first_value=float(np.exp(first.whole[index])),
            second_value=float(np.exp(second.whole[index])),
            difference=float(difference.whole[index]),
            difference_interval=differences[index],
            ratio=float(np.exp(ratio.whole[index])),
            ratio_interval=_exp(ratios[index]),
            price_interval=prices.ratio_interval(left, right, float(np.exp(ratio.whole[index]))),
            p_value=float(p_values[index]),
            p_adjusted=float(p_values[index]),
            log_error=float(errors[index]),
            degrees=float(degrees[index]),
            detectable=float(detectable[index]),
            family=1,
            equal=equal[index],
        )
        for index, (left, right) in enumerate(pairs)
    ]


def adjust_family(comparisons: Sequence[Comparison], correction: str = "holm") -> list[Comparison]:
    """Comparisons read together as one family: p-values adjusted, and what is detectable among so many.

    Args:
        comparisons: of one measure; those of which nothing is known do not count.
        correction: one of ``CORRECTIONS``.
    """
    if correction not in CORRECTIONS:
        raise ValueError(f"correction must be one of {', '.join(CORRECTIONS)}; got {correction!r}")
    p_values = np.array([comparison.p_value for comparison in comparisons], np.float64)
    tested = max(1, int((~np.isnan(p_values)).sum()))
    errors, degrees = (
        np.array([getattr(comparison, name) for comparison in comparisons]) for name in ("log_error", "degrees")
    )
    adjusted, detectable = CORRECTIONS[correction](p_values), detectable_ratios(errors, degrees, tested)
    return [
        replace(comparison, p_adjusted=float(p_value), detectable=float(ratio), family=tested)
        for comparison, p_value, ratio in zip(comparisons, adjusted, detectable, strict=True)
    ]


def logs_of_runs(sums: Doubles, powers: Doubles) -> Spread:
    """Logarithm of a product of powers of sums for each run; a column that is not known makes it unknown.

    Args:
        sums: float64 ``[prompts, runs, C]``; nan where not known.
        powers: float64 ``[C]``, of the sum of each column in the product.
    """
    num_prompts, num_runs, num_columns = sums.shape
    flat = np.nan_to_num(sums.reshape(num_prompts, -1), nan=0.0)
    flat[:, np.isnan(sums.reshape(num_prompts, -1)).any(axis=0)] = 0.0
    spread = np.zeros((num_runs, num_runs * num_columns))
    for run in range(num_runs):
        spread[run, run * num_columns : (run + 1) * num_columns] = powers
    return log_products(flat, spread)


def _p_values(logs: Doubles, errors: Doubles, degrees: Doubles) -> Doubles:
    """nan where there is no error to hold a difference against."""
    with np.errstate(divide="ignore", invalid="ignore"):
        distance = np.where(logs == 0, 0.0, np.abs(logs) / errors)
    p_values = 2 * stdtr(degrees, -distance)
    return np.asarray(np.where(np.isfinite(errors) & np.isfinite(logs), p_values, np.nan), np.float64)


def _exp(interval: Interval) -> Interval:
    with np.errstate(over="ignore"):
        return Interval(float(np.exp(interval.low)), float(np.exp(interval.high)))


def compare_runs(
    runs: Sequence[PolicyRun], pairs: Sequence[tuple[int, int]], by: str | None = None, correction: str = "holm"
) -> list[Comparison]:
    """Comparisons of pairs of runs; with ``by`` those of the slices first.

    All pairs on everything are one family for each measure, and all pairs on all slices another: who looks at slices
    too pays for it in the slices alone.

    Args:
        runs: of the same prompts; see `simlab.analysis.table.prompt_sums.shared_runs`.
        pairs: places of two runs each.
        by: as for `simlab.analysis.statistics.slices.split_by_slice`.
        correction: one of `simlab.analysis.statistics.significance.CORRECTIONS`.
    """
    if not runs[0].rows.height:
        return []
    families = [] if by is None else [runs_by_slice(runs, by)]
    names = [run.name for run in runs]
    comparisons = []
    for family in [*families, runs_by_slice(runs, None)]:
        parts = [(value, prompt_sums(of_slice)) for value, of_slice in family]
        for measure in POWERS:
            alone = [pair for value, sums in parts for pair in compare_pairs(sums, names, pairs, measure, value)]
            comparisons += adjust_family(alone, correction)
    known = {comparison.measure for comparison in comparisons if not math.isnan(comparison.ratio)}
    return [comparison for comparison in comparisons if comparison.measure in known]


def headline_measure(comparisons: Sequence[Comparison]) -> str:
    """What a verdict is about: tokens per second where these are known of every pair, else the acceptance length."""
    pairs = {(comparison.first, comparison.second) for comparison in comparisons}
    timed = {
        (comparison.first, comparison.second)
        for comparison in comparisons
        if comparison.measure == "tokens_per_s" and not math.isnan(comparison.ratio)
    }
    return "tokens_per_s" if timed == pairs else "acceptance_length"
