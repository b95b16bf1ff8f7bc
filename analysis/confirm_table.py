"""Predicted beside measured: one row per policy, and which policy won."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from simlab.analysis.intervals import UNKNOWN, Interval, ratio_interval
from simlab.analysis.speeds import STAGE_COLUMNS, speed_of
from simlab.analysis.tables import BASELINE, Scalar, Summary, summaries

FAILED = "FAILED"
"""The lossless verdict on texts that are not the target's."""


@dataclass(frozen=True, slots=True)
class Judged:
    """What was found of the texts and rounds that a policy really had.

    Attributes:
        lossless: ``exact``, ``ties(3)`` or ``FAILED``.
        worst_gap: the largest loss of a token against float32, in units of a logit.
        bound: what a loss may be.
        fault: of a failure, what was found first; else empty.
        num_equal: decoded texts whose rounds equal the replay of their own rows.
        num_texts: all decoded texts.
        unequal: of the first text whose rounds do not, how they differ; else empty.
    """

    lossless: str
    num_ties: int
    worst_gap: float
    bound: float
    fault: str
    num_equal: int
    num_texts: int
    unequal: str

    @property
    def counts_equal_replay(self) -> bool:
        """Whether all rounds equal their replay."""
        return self.num_equal == self.num_texts


@dataclass(frozen=True, slots=True)
class ConfirmedPolicy:
    """One policy, as it was replayed and as it ran.

    Attributes:
        measured: None of the hindsight bound, which cannot run; likewise ``judged``.
        tokens_per_s_interval: of the measured speed, over prompts.
    """

    predicted: Summary
    measured: Summary | None
    judged: Judged | None
    tokens_per_s_interval: Interval

    @property
    def policy(self) -> str:
        """As it stands in tables."""
        return self.predicted.policy

    def row(self) -> dict[str, Scalar]:
        """What a replay says of it, then what was measured; what is not known is None."""
        values: dict[str, Scalar] = {
            **_measured_values(self.measured),
            "measured_tokens_per_s_ci_low": self.tokens_per_s_interval.low,
            "measured_tokens_per_s_ci_high": self.tokens_per_s_interval.high,
            "predicted_speedup": self.predicted.speed.speedup,
            **_judged_values(self.judged),
        }
        for kind, summary in (("predicted", self.predicted), ("measured", self.measured)):
            for stage, seconds in zip(STAGE_COLUMNS, stages_per_round(summary), strict=True):
                values[f"{kind}_{stage}_per_round"] = seconds
        return self.predicted.row() | {key: _finite(value) for key, value in values.items()}


def _measured_values(ran: Summary | None) -> dict[str, Scalar]:
    return {
        "measured_acceptance_length": None if ran is None else ran.totals.acceptance_length,
        "measured_tokens_per_s": None if ran is None else ran.speed.tokens_per_s,
        "measured_speedup": None if ran is None else ran.speed.speedup,
        "measured_speedup_ci_low": None if ran is None else ran.speed.interval.low,
        "measured_speedup_ci_high": None if ran is None else ran.speed.interval.high,
    }


def _judged_values(judged: Judged | None) -> dict[str, Scalar]:
    names = ("lossless", "num_ties", "worst_gap", "bound", "num_equal", "num_texts", "counts_equal_replay")
    return {name: None if judged is None else getattr(judged, name) for name in names}


@dataclass(frozen=True, slots=True)
class Contest:
    """Which policy was fastest, and which cannot be told from it.

    Attributes:
        best: the fastest whose texts are the target's.
        rivals: others, where the paired interval of ``best``'s speed over theirs does not lie above 1.
    """

    best: ConfirmedPolicy
    rivals: tuple[ConfirmedPolicy, ...]


def stages_per_round(summary: Summary | None) -> tuple[float, ...]:
    """Seconds of each stage per round; NaN where they are not known."""
    if summary is None or summary.speed.seconds is None or not summary.totals.rounds:
        return (math.nan,) * len(STAGE_COLUMNS)
    return tuple(getattr(summary.speed.seconds, name) / summary.totals.rounds for name in STAGE_COLUMNS)


def confirmed_policies(results: pl.DataFrame, judged: Mapping[str, Judged]) -> list[ConfirmedPolicy]:
    """A row per policy, in the order of the predicted rows.

    Args:
        results: result rows of both kinds, on the same sequences.
        judged: by the id of the policy, for each that was measured.
    """
    ran = results.filter(pl.col("kind") == "measured")
    measured = {one.policy_id: one for one in summaries(ran)}
    return [
        ConfirmedPolicy(
            one, measured.get(one.policy_id), judged.get(one.policy_id), _tokens_per_s_interval(_of(ran, one))
        )
        for one in summaries(results.filter(pl.col("kind") == "predicted"))
    ]


def contest(found: Sequence[ConfirmedPolicy], results: pl.DataFrame) -> Contest | None:
    """The fastest policy and its rivals, plain decoding and failures left out; None where nobody is left.

    Args:
        found: from `confirmed_policies`.
        results: the same.
    """
    ran = results.filter(pl.col("kind") == "measured")
    speeds = {
        one.policy: one.measured.speed.speedup
        for one in found
        if one.measured is not None and one.judged is not None and one.judged.lossless != FAILED
        if one.predicted.name != BASELINE and not math.isnan(one.measured.speed.speedup)
    }
    contenders = [one for one in found if one.policy in speeds]
    if not contenders:
        return None
    best = max(contenders, key=lambda one: speeds[one.policy])
    first = _of(ran, best.predicted)
    rivals = [
        one for one in contenders if one is not best and not speed_of(first, _of(ran, one.predicted)).interval.low > 1
    ]
    return Contest(best, tuple(rivals))


def _of(ran: pl.DataFrame, summary: Summary) -> pl.DataFrame:
    return ran.filter((pl.col("policy_id") == summary.policy_id) & (pl.col("policy") == summary.policy))


def _tokens_per_s_interval(rows: pl.DataFrame) -> Interval:
    if rows.is_empty():
        return UNKNOWN
    total_s = pl.sum_horizontal(STAGE_COLUMNS).sum().alias("total_s")
    prompts = rows.group_by("dataset", "prompt_id").agg(pl.col("committed").cast(pl.Int64).sum(), total_s)
    prompts = prompts.sort("dataset", "prompt_id")
    return ratio_interval(prompts["committed"].to_numpy(), prompts["total_s"].to_numpy())


def _finite(value: Scalar) -> Scalar:
    return None if isinstance(value, float) and not math.isfinite(value) else value
