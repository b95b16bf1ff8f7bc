"""Predicted beside measured: one row per policy, and which policy won."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
import polars as pl
from scipy import stats

from simlab.analysis.compare.comparisons import Comparison, adjust_family, compare_pairs, logs_of_runs
from simlab.analysis.statistics.intervals import UNKNOWN, Interval, finite, intervals_of, ratio_interval
from simlab.analysis.statistics.slices import split_by_slice
from simlab.analysis.table.estimates import Estimate
from simlab.analysis.table.prompt_sums import PolicyRun, prompt_sums
from simlab.analysis.table.summaries import BASELINE, NO_SPEED, STAGE_COLUMNS, Scalar, Summary, known_values, summarise
from simlab.analysis.table.text import aligned
from simlab.arrays import Doubles

EXACT, FAILED = "exact", "FAILED"
"""The lossless verdicts on texts that are the target's, token for token, and on texts that are not."""


@dataclass(frozen=True, slots=True)
class TextFindings:
    """What was found of the texts and rounds that a policy really had.

    Attributes:
        lossless: ``exact``, ``ties(3)`` or ``FAILED``.
        worst_gap: the largest loss of a token against float32, in units of a logit.
        bound: what a loss may be.
        fault: of a failure, what was found first; else empty.
        num_equal: decoded texts whose rounds equal the replay of their own rows.
        num_texts: all decoded texts.
        unequal: of the first text whose rounds do not, how they differ; else empty.
        num_same_texts: decoded texts that are plain decoding's of the same run, token for token.
    """

    lossless: str
    num_ties: int
    worst_gap: float
    bound: float
    fault: str
    num_equal: int
    num_texts: int
    unequal: str
    num_same_texts: int

    @property
    def counts_equal_replay(self) -> bool:
        """Whether all rounds equal their replay."""
        return self.num_equal == self.num_texts


@dataclass(frozen=True, slots=True)
class ConfirmedPolicy:
    """One policy, as it was replayed and as it ran.

    Attributes:
        measured: None of the hindsight bound, which cannot run; the same for ``judged``.
        tokens_per_s_interval: of the measured speed, over prompts.
    """

    predicted: Summary
    measured: Summary | None
    judged: TextFindings | None
    tokens_per_s_interval: Interval

    @property
    def policy(self) -> str:
        """As it stands in tables."""
        return self.predicted.policy

    def row(self) -> dict[str, Scalar]:
        """What a replay says of it, then what was measured; what is not known is None."""
        ran = self.measured
        speed = NO_SPEED if ran is None else ran.speed
        values: dict[str, Scalar] = {
            "measured_acceptance_length": None if ran is None else ran.totals.acceptance_length,
            "measured_tokens_per_s": speed.tokens_per_s,
            "measured_speedup": speed.speedup,
            **speed.interval.row("measured_speedup_ci"),
            **self.tokens_per_s_interval.row("measured_tokens_per_s_ci"),
            "predicted_speedup": self.predicted.speed.speedup,
            **{name: getattr(self.judged, name, None) for name in (*_AUDITED, *_COUNTED, "counts_equal_replay")},
        }
        for kind, summary in (("predicted", self.predicted), ("measured", self.measured)):
            for stage, seconds in zip(STAGE_COLUMNS, stages_per_round(summary), strict=True):
                values[f"{kind}_{stage}_per_round"] = seconds
        return self.predicted.row() | known_values(values)


_AUDITED, _COUNTED = ("lossless", "num_ties", "worst_gap", "bound"), ("num_same_texts", "num_equal", "num_texts")
"""What stands in a row of how a policy's texts were judged."""


@dataclass(frozen=True, slots=True)
class WinnerComparison:
    """Where one policy stands among the others.

    Attributes:
        first: the policy that was chosen beforehand, else the fastest; its texts are the target's.
        comparisons: of its measured speed with each other contender's, read as one family; as `simlab compare` does.
        rivals: others that cannot be told from it.
        ahead: others that are faster.
    """

    first: ConfirmedPolicy
    comparisons: tuple[Comparison, ...]
    rivals: tuple[ConfirmedPolicy, ...]
    ahead: tuple[ConfirmedPolicy, ...]


def stages_per_round(summary: Summary | None) -> tuple[float, ...]:
    """Seconds of each stage per round; NaN where they are not known."""
    if summary is None or summary.speed.seconds is None or not summary.totals.rounds:
        return (math.nan,) * len(STAGE_COLUMNS)
    return tuple(getattr(summary.speed.seconds, name) / summary.totals.rounds for name in STAGE_COLUMNS)


def confirmed_policies(
    results: pl.DataFrame, judged: Mapping[str, TextFindings], by: str | None = None
) -> list[ConfirmedPolicy]:
    """A row per policy, in the order of the predicted rows; with ``by``, slice by slice.

    Args:
        results: result rows of both kinds, on the same sequences.
        judged: by the id of the policy, for each that was measured; slices are not judged.
        by: one of `simlab.analysis.statistics.slices.SLICES`.
    """
    confirmed = []
    for value, part in split_by_slice(results, by):
        ran = part.filter(pl.col("kind") == "measured")
        measured = {summary.policy_id: summary for summary in summarise(ran)}
        confirmed += [
            ConfirmedPolicy(
                replace(summary, slice=value),
                measured.get(summary.policy_id),
                judged.get(summary.policy_id) if by is None else None,
                _tokens_per_s_interval(_of(ran, summary)),
            )
            for summary in summarise(part.filter(pl.col("kind") == "predicted"))
        ]
    return confirmed


def measured_runs(policies: Sequence[ConfirmedPolicy], results: pl.DataFrame) -> list[PolicyRun]:
    """The measured rows of each policy whose texts are the target's and whose speed is known, plain decoding's too.

    Args:
        policies: from `confirmed_policies`.
        results: the same.
    """
    ran = results.filter(pl.col("kind") == "measured")
    plain = ran.filter(pl.col("name") == BASELINE)
    return [PolicyRun(policy.policy, _of(ran, policy.predicted), plain) for policy in policies if _has_speed(policy)]


def compare_winner(
    policies: Sequence[ConfirmedPolicy], results: pl.DataFrame, chosen: str | None = None
) -> WinnerComparison | None:
    """Where the chosen or the fastest policy stands, plain decoding and failures left out; None where nobody is left.

    Args:
        policies: from `confirmed_policies`.
        results: the same.
        chosen: id of a policy that was chosen on other prompts; where it cannot stand, the fastest does.
    """
    contenders = [policy for policy in policies if _has_speed(policy) and policy.predicted.name != BASELINE]
    if not contenders:
        return None
    first = max(contenders, key=lambda policy: math.nan if policy.measured is None else policy.measured.speed.speedup)
    first = next((contender for contender in contenders if contender.predicted.policy_id == chosen), first)
    others = [contender for contender in contenders if contender is not first]
    if not others:
        return WinnerComparison(first, (), (), ())
    runs = measured_runs([first, *others], results)
    pairs = [(0, index) for index in range(1, len(runs))]
    compared_all = adjust_family(compare_pairs(prompt_sums(runs), [run.name for run in runs], pairs, "tokens_per_s"))
    level = [policy for policy, held in zip(others, compared_all, strict=True) if not held.differs]
    ahead = [policy for policy, held in zip(others, compared_all, strict=True) if held.differs and held.ratio < 1]
    return WinnerComparison(first, tuple(compared_all), tuple(level), tuple(ahead))


def _has_speed(policy: ConfirmedPolicy) -> bool:
    if policy.measured is None or policy.judged is None or policy.judged.lossless == FAILED:
        return False
    return not math.isnan(policy.measured.speed.speedup)


def _of(ran: pl.DataFrame, summary: Summary) -> pl.DataFrame:
    return ran.filter((pl.col("policy_id") == summary.policy_id) & (pl.col("policy") == summary.policy))


def _tokens_per_s_interval(rows: pl.DataFrame) -> Interval:
    if rows.is_empty():
        return UNKNOWN
    total_s = pl.sum_horizontal(STAGE_COLUMNS).sum().alias("total_s")
    prompts = rows.group_by("dataset", "prompt_id", maintain_order=True).agg(
        pl.col("committed").cast(pl.Int64).sum(), total_s
    )
    prompts = prompts.sort("dataset", "prompt_id")
    return ratio_interval(prompts["committed"].to_numpy(), prompts["total_s"].to_numpy())


def widest_half_width(sums: Doubles, plain: int) -> float:
    """Half the width of the widest 95 % interval of a speed ratio, as a share of the ratio.

    The ratios are, paired by prompt, each policy's speed over plain decoding's, and the fastest policy's over each
    of the others.

    Args:
        sums: float64 ``[prompts, policies, 2]``, tokens and seconds of each prompt; positive.
        plain: the place of plain decoding among the policies.

    Returns:
        infinite while an interval is not known.
    """
    num_prompts, num_policies, _ = sums.shape
    if num_prompts < 2 or num_policies < 2:
        return math.inf
    tokens, seconds = sums.sum(axis=0).T
    fastest = int(np.argmax(tokens / seconds))
    every = {(policy, plain) for policy in range(num_policies)} | {(fastest, policy) for policy in range(num_policies)}
    pairs = [pair for pair in sorted(every) if pair[0] != pair[1]]
    speeds = logs_of_runs(sums, np.array([1.0, -1.0]))
    spread = speeds.take([first for first, _ in pairs]).minus(speeds.take([second for _, second in pairs]))
    ends = np.array([(interval.low, interval.high) for interval in intervals_of(spread)])
    halves = (np.exp(ends[:, 1]) - np.exp(ends[:, 0])) / 2 / np.exp(spread.whole)
    return float(np.where(np.isnan(halves), np.inf, halves).max())


# A confirmation of several texts at a time: its result rows by the groups that were served, and the machine's speed.
#
# Texts that are served together share the seconds of their rounds, and what disturbed the machine meanwhile. So they
# are no independent measurements, and intervals are over groups, as they are over prompts where texts run alone.


def by_group(results: pl.DataFrame, groups: Mapping[int, tuple[str, str]], by: str | None = None) -> pl.DataFrame:
    """Result rows with a group in the place of each prompt, so that what is over prompts is over groups.

    Args:
        results: result rows.
        groups: two names of its group, by the place of the sequence in the trace.
        by: the slice that the rows will be cut by; datasets stay where it is ``dataset``.
    """
    columns = ("dataset", "prompt_id")
    named = pl.DataFrame(
        [(index, *names) for index, names in groups.items()],
        schema={"sequence": pl.Int32(), **{f"group_{name}": pl.String() for name in columns}},
        orient="row",
    )
    joined = results.join(named, on="sequence", how="left", maintain_order="left")
    replaced = columns[1:] if by == "dataset" else columns
    return joined.with_columns(pl.col(f"group_{name}").alias(name) for name in replaced).select(results.columns)


def with_prompts(
    policies: Sequence[ConfirmedPolicy], results: pl.DataFrame, by: str | None = None
) -> list[ConfirmedPolicy]:
    """Policies by group with the number of prompts put where that of groups stands.

    Args:
        policies: from `simlab.analysis.confirm.table.confirmed_policies` on the rows by group.
        results: the rows by prompt.
        by: what both are cut by.
    """
    counts = {value: part.select("dataset", "prompt_id").n_unique() for value, part in split_by_slice(results, by)}
    changed = []
    for policy in policies:
        prompts = counts[policy.predicted.slice]
        measured = None if policy.measured is None else replace(policy.measured, prompts=prompts)
        changed.append(replace(policy, predicted=replace(policy.predicted, prompts=prompts), measured=measured))
    return changed


def machine_table(speeds: Mapping[str, Estimate], batch: int) -> str:
    """A row per policy, by its label."""
    heading = [f"all {batch} texts together", "tokens/s [95 %]"]
    return aligned([heading, *([policy, f"{speed:1}"] for policy, speed in speeds.items())], [True, True])


# Whether a prediction puts policies in the order in which they were measured.


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
