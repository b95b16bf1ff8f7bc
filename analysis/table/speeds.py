"""Seconds, tokens per second and speedup out of the result rows of a policy and of plain decoding."""

import math
from dataclasses import dataclass

import polars as pl

from simlab.analysis.statistics.intervals import UNKNOWN, Interval, speedup_interval
from simlab.cost import StageSeconds

STAGE_COLUMNS = ("draft_s", "select_s", "verify_s", "commit_s")

_SEQUENCE = ("dataset", "prompt_id", "turn", "sample", "sequence")


@dataclass(frozen=True, slots=True)
class Speed:
    """How fast a policy was, pooled over its sequences; prefill is not in it.

    Attributes:
        seconds: summed by stage; None where some row has none.
        tokens_per_s: committed tokens per second; NaN where it is not known.
        speedup: over plain decoding on the same sequences; NaN where it is not known.
        interval: of the speedup, over prompts, paired.
    """

    seconds: StageSeconds | None
    tokens_per_s: float
    speedup: float
    interval: Interval


NO_SPEED = Speed(None, math.nan, math.nan, UNKNOWN)


def speed_of(rows: pl.DataFrame, plain: pl.DataFrame) -> Speed:
    """The speed of a policy beside plain decoding's.

    Args:
        rows: the result rows of one policy.
        plain: those of plain decoding; without speedup if they are not of the same sequences.
    """
    seconds = _seconds(rows)
    if seconds is None:
        return NO_SPEED
    tokens_per_s = _tokens_per_s(rows, seconds)
    base_seconds = _seconds(plain)
    if base_seconds is None or not _same_sequences(rows, plain):
        return Speed(seconds, tokens_per_s, math.nan, UNKNOWN)
    speedup = tokens_per_s / _tokens_per_s(plain, base_seconds)
    ours, base = _by_prompt(rows), _by_prompt(plain)
    interval = speedup_interval(
        ours["committed"].to_numpy(),
        ours["total_s"].to_numpy(),
        base["committed"].to_numpy(),
        base["total_s"].to_numpy(),
    )
    return Speed(seconds, tokens_per_s, speedup, interval)


def _seconds(rows: pl.DataFrame) -> StageSeconds | None:
    """Summed over the rows; None without rows, or where one has no seconds."""
    stages = rows.select(STAGE_COLUMNS)
    if rows.is_empty() or any(stages.null_count().row(0)):
        return None
    return StageSeconds(*stages.sum().row(0))


def _tokens_per_s(rows: pl.DataFrame, seconds: StageSeconds) -> float:
    committed = int(rows["committed"].cast(pl.Int64).sum())
    return committed / seconds.total_s if seconds.total_s > 0 else math.nan


def _same_sequences(rows: pl.DataFrame, plain: pl.DataFrame) -> bool:
    return rows.select(_SEQUENCE).sort(_SEQUENCE).equals(plain.select(_SEQUENCE).sort(_SEQUENCE))


def _by_prompt(rows: pl.DataFrame) -> pl.DataFrame:
    """Tokens and seconds of each prompt, in an order that depends on the prompts alone."""
    sums = (pl.col("committed").cast(pl.Int64).sum(), pl.sum_horizontal(STAGE_COLUMNS).sum().alias("total_s"))
    return rows.group_by("dataset", "prompt_id").agg(sums).sort("dataset", "prompt_id")
