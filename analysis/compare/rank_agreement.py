"""Whether a prediction puts policies in the order in which they were measured."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from scipy import stats

from simlab.analysis.compare.comparisons import Comparison, compare_pairs
from simlab.analysis.statistics.intervals import Interval, finite
from simlab.analysis.table.prompt_sums import PolicyRun, prompt_sums
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
            **self.interval.row("measured_ratio_ci"),
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
        return sum(pair.agrees for pair in self.pairs)

    @property
    def disagreeing(self) -> tuple[PairOrder, ...]:
        """Pairs that separate and that the prediction has the other way round, or level."""
        return tuple(pair for pair in self.pairs if not pair.agrees)

    def value(self) -> dict[str, object]:
        """The agreement as a JSON value, with the pairs that disagree."""
        return {
            "policies": self.num_policies,
            "pairs": self.num_pairs,
            "separate": len(self.pairs),
            "same_order": self.num_agreeing,
            "kendall_tau": finite(self.kendall_tau),
            "disagreeing": [order.row() for order in self.disagreeing],
        }


def rank_agreement(runs: Sequence[PolicyRun], predicted: Mapping[str, float]) -> RankAgreement:
    """Agreement of the predicted order with the measured one; intervals are each pair's own.

    Args:
        runs: measured, of the same prompts.
        predicted: tokens per second by the name of the run; a run that is not in it, or NaN, is left out.
    """
    known = [run for run in runs if predicted.get(run.name, math.nan) > 0]
    if len(known) < 2:
        return RankAgreement(len(known), (), math.nan)
    names = [run.name for run in known]
    found = compare_pairs(prompt_sums(known), names, list(combinations(range(len(known)), 2)), "tokens_per_s")
    speeds = {comparison.first: comparison.first_value for comparison in found} | {
        comparison.second: comparison.second_value for comparison in found
    }
    found_tau = stats.kendalltau([predicted[name] for name in names], [speeds[name] for name in names])
    tau = float(np.asarray(found_tau, np.float64)[0])
    pairs = [
        _pair(comparison, predicted)
        for comparison in found
        if comparison.is_known and not comparison.ratio_interval.low <= 1 <= comparison.ratio_interval.high
    ]
    return RankAgreement(len(known), tuple(pairs), tau)


def agreement_text(agreement: RankAgreement) -> str:
    """In sentences; empty where nothing was predicted of two policies."""
    if agreement.num_policies < 2:
        return ""
    if not agreement.pairs:
        return f"Order: of {agreement.num_pairs} pairs of policies none has a measured interval that leaves out 1."
    pairs = f"{len(agreement.pairs)} pairs of policies whose measured interval leaves out 1 (of {agreement.num_pairs})"
    tau = f"Kendall's tau over all {agreement.num_policies} policies {agreement.kendall_tau:.2f}"
    lines = [f"Order: of {pairs}, the prediction has {agreement.num_agreeing} in the same order; {tau}."]
    lines += [
        f"  predicted otherwise: {order.faster} is {order.measured:.3f} [{order.interval.low:.3f}, "
        f"{order.interval.high:.3f}] times as fast as {order.slower}; predicted {order.predicted:.3f}"
        for order in agreement.disagreeing
    ]
    return "\n".join(lines)


def _pair(comparison: Comparison, predicted: Mapping[str, float]) -> PairOrder:
    ratio, interval = predicted[comparison.first] / predicted[comparison.second], comparison.ratio_interval
    if comparison.ratio > 1:
        return PairOrder(comparison.first, comparison.second, comparison.ratio, interval, ratio)
    return PairOrder(
        comparison.second,
        comparison.first,
        1 / comparison.ratio,
        Interval(1 / interval.high, 1 / interval.low),
        1 / ratio,
    )
