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
class RankAgreement:
    """Over all pairs of policies whose speeds are known on both sides.

    Attributes:
        num_policies: compared.
        pairs: those whose measured interval leaves out 1, as flat scalars: the faster and the slower by measurement,
            the measured ratio of their speeds with its interval, the predicted one, and whether it agrees.
        kendall_tau: rank correlation of predicted and measured speeds over all policies, tau-b; NaN with fewer than
            two, or where one side ties them all.
    """

    num_policies: int
    pairs: tuple[Mapping[str, Scalar], ...]
    kendall_tau: float

    @property
    def num_pairs(self) -> int:
        """All of them, separate or not."""
        return self.num_policies * (self.num_policies - 1) // 2

    @property
    def num_agreeing(self) -> int:
        """Pairs that separate and that the prediction has in the same order."""
        return len(self.pairs) - len(self.disagreeing)

    @property
    def disagreeing(self) -> tuple[Mapping[str, Scalar], ...]:
        """Pairs that separate and that the prediction has the other way round, or level."""
        return tuple(pair for pair in self.pairs if not pair["agrees"])

    def value(self) -> dict[str, object]:
        """The agreement as a JSON value, with the pairs that disagree."""
        return {
            "policies": self.num_policies,
            "pairs": self.num_pairs,
            "separate": len(self.pairs),
            "same_order": self.num_agreeing,
            "kendall_tau": finite(self.kendall_tau),
            "disagreeing": [dict(order) for order in self.disagreeing],
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
    comparisons = compare_pairs(prompt_sums(known), names, list(combinations(range(len(known)), 2)), "tokens_per_s")
    speeds = {comparison.first: comparison.first_value for comparison in comparisons} | {
        comparison.second: comparison.second_value for comparison in comparisons
    }
    found_tau = stats.kendalltau([predicted[name] for name in names], [speeds[name] for name in names])
    tau = float(np.asarray(found_tau, np.float64)[0])
    pairs = [
        _pair(comparison, predicted)
        for comparison in comparisons
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
        f"  predicted otherwise: {order['faster']} is {order['measured_ratio']:.3f} "
        f"[{order['measured_ratio_ci_low']:.3f}, {order['measured_ratio_ci_high']:.3f}] times as fast as "
        f"{order['slower']}; predicted {order['predicted_ratio']:.3f}"
        for order in agreement.disagreeing
    ]
    return "\n".join(lines)


def _pair(comparison: Comparison, predicted: Mapping[str, float]) -> dict[str, Scalar]:
    """Two policies that were measured to differ, the faster one first; a tie of the prediction does not agree."""
    faster, slower, measured = comparison.first, comparison.second, comparison.ratio
    ratio, interval = predicted[faster] / predicted[slower], comparison.ratio_interval
    if measured < 1:
        faster, slower, measured, ratio = slower, faster, 1 / measured, 1 / ratio
        interval = Interval(1 / interval.high, 1 / interval.low)
    return {
        "faster": faster,
        "slower": slower,
        "measured_ratio": measured,
        **interval.row("measured_ratio_ci"),
        "predicted_ratio": ratio,
        "agrees": ratio > 1,
    }
