"""Whether a prediction puts policies in the order in which they were measured."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from simlab.analysis.compare.comparisons import Comparison, compared
from simlab.analysis.statistics.intervals import Interval
from simlab.analysis.table.prompt_sums import Run, prompt_sums
from simlab.analysis.table.summaries import Scalar


@dataclass(frozen=True, slots=True)
class PairOrder:
    """Two policies that were measured to differ.

    Attributes:
        faster: by measurement.
        measured: its measured speed over the other's, above 1; ``interval`` is its 95 % interval, paired by prompt.
        predicted: the same ratio by prediction; not above 1 where the prediction says otherwise.
    """

    faster: str
    slower: str
    measured: float
    interval: Interval
    predicted: float

    @property
    def agrees(self) -> bool:
        """Whether the prediction has them in the same order; a tie has not."""
        return self.predicted > 1

    def row(self) -> dict[str, Scalar]:
        """The pair as flat scalars, as a script reads them."""
        return {
            "faster": self.faster,
            "slower": self.slower,
            "measured_ratio": self.measured,
            "measured_ratio_ci_low": self.interval.low,
            "measured_ratio_ci_high": self.interval.high,
            "predicted_ratio": self.predicted,
            "agrees": self.agrees,
        }


@dataclass(frozen=True, slots=True)
class RankAgreement:
    """Over all pairs of policies whose speeds are known on both sides.

    Attributes:
        num_policies: compared.
        pairs: those whose measured interval leaves out 1.
        kendall_tau: rank correlation of predicted and measured speeds over all policies, tau-b; NaN with fewer than
            two, or where one side ties them all.
    """

    num_policies: int
    pairs: tuple[PairOrder, ...]
    kendall_tau: float

    @property
    def num_pairs(self) -> int:
        """All of them, separate or not."""
        return self.num_policies * (self.num_policies - 1) // 2

    @property
    def num_agreeing(self) -> int:
        """Pairs that separate and that the prediction has in the same order."""
        return sum(one.agrees for one in self.pairs)

    @property
    def disagreeing(self) -> tuple[PairOrder, ...]:
        """Pairs that separate and that the prediction has the other way round, or level."""
        return tuple(one for one in self.pairs if not one.agrees)

    def value(self) -> dict[str, object]:
        """The agreement as a JSON value, with the pairs that disagree."""
        return {
            "policies": self.num_policies,
            "pairs": self.num_pairs,
            "separate": len(self.pairs),
            "same_order": self.num_agreeing,
            "kendall_tau": self.kendall_tau if math.isfinite(self.kendall_tau) else None,
            "disagreeing": [one.row() for one in self.disagreeing],
        }


def rank_agreement(runs: Sequence[Run], predicted: Mapping[str, float]) -> RankAgreement:
    """Agreement of the predicted order with the measured one; intervals are each pair's own.

    Args:
        runs: measured, of the same prompts.
        predicted: tokens per second by the name of the run; a run that is not in it, or NaN, is left out.
    """
    known = [run for run in runs if predicted.get(run.name, math.nan) > 0]
    if len(known) < 2:
        return RankAgreement(len(known), (), math.nan)
    names = [run.name for run in known]
    found = compared(prompt_sums(known), names, list(combinations(range(len(known)), 2)), "tokens_per_s")
    speeds = {one.first: one.first_value for one in found} | {one.second: one.second_value for one in found}
    tau = kendall_tau([predicted[name] for name in names], [speeds[name] for name in names])
    pairs = [_pair(one, predicted) for one in found if one.is_known and not _holds_one(one.ratio_interval)]
    return RankAgreement(len(known), tuple(pairs), tau)


def kendall_tau(one: Sequence[float], other: Sequence[float]) -> float:
    """Rank correlation of two columns of numbers, tau-b of Kendall (1945), which counts ties.

    Args:
        one: numbers.
        other: as many, in the same order.

    Returns:
        -1 to 1; NaN where a number is not known, or where one side ties them all.

    >>> kendall_tau([1.0, 2.0, 3.0], [10.0, 30.0, 20.0])
    0.3333333333333333
    """
    columns = np.array([one, other], np.float64)
    if np.isnan(columns).any():
        return math.nan
    above = np.triu_indices(columns.shape[1], 1)
    signs = np.sign(columns[:, :, None] - columns[:, None, :])[:, *above]
    untied_one, untied_other = np.abs(signs).sum(axis=1).tolist()
    if untied_one == 0 or untied_other == 0:
        return math.nan
    tau = float(signs.prod(axis=0).sum()) / math.sqrt(untied_one) / math.sqrt(untied_other)
    return min(1.0, max(-1.0, tau))


def agreement_text(found: RankAgreement) -> str:
    """In sentences; empty where nothing was predicted of two policies."""
    if found.num_policies < 2:
        return ""
    if not found.pairs:
        return f"Order: of {found.num_pairs} pairs of policies none has a measured interval that leaves out 1."
    pairs = f"{len(found.pairs)} pairs of policies whose measured interval leaves out 1 (of {found.num_pairs})"
    tau = f"Kendall's tau over all {found.num_policies} policies {found.kendall_tau:.2f}"
    lines = [f"Order: of {pairs}, the prediction has {found.num_agreeing} in the same order; {tau}."]
    lines += [
        f"  predicted otherwise: {one.faster} is {one.measured:.3f} [{one.interval.low:.3f}, {one.interval.high:.3f}] "
        f"times as fast as {one.slower}; predicted {one.predicted:.3f}"
        for one in found.disagreeing
    ]
    return "\n".join(lines)


def _holds_one(interval: Interval) -> bool:
    return interval.low <= 1 <= interval.high


def _pair(one: Comparison, predicted: Mapping[str, float]) -> PairOrder:
    ratio, interval = predicted[one.first] / predicted[one.second], one.ratio_interval
    if one.ratio > 1:
        return PairOrder(one.first, one.second, one.ratio, interval, ratio)
    return PairOrder(one.second, one.first, 1 / one.ratio, Interval(1 / interval.high, 1 / interval.low), 1 / ratio)
