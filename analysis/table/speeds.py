"""Seconds, tokens per second and speedup out of the result rows of a policy and of plain decoding."""

import math
from dataclasses import KW_ONLY, dataclass
from functools import cached_property

import polars as pl

from simlab.analysis.statistics.intervals import UNKNOWN, Interval, speedup_interval
from simlab.analysis.statistics.price_intervals import price_interval
from simlab.analysis.table.price_draws import log_seconds_at_draws
from simlab.arrays import Doubles
from simlab.cost import StageSeconds
from simlab.traces.results.rows import SECONDS

STAGE_COLUMNS = SECONDS
"""The columns of result rows that are summed, a stage each."""

_SEQUENCE = ("dataset", "prompt_id", "turn", "sample", "sequence")


@dataclass(frozen=True, slots=True)
class Speed:
    """How fast a policy was, pooled over its sequences; prefill is not in it.

    Attributes:
        seconds: summed by stage; None where some row has none.
        tokens_per_s: committed tokens per second; NaN where it is not known.
        speedup: over plain decoding on the same sequences; NaN where it is not known.
        interval: of the speedup, over prompts, paired.
        price_interval: of the speedup, by the noise of the latency profile alone; unknown where rows do not tell.
        tokens_per_s_price_interval: of ``tokens_per_s``, likewise.
    """

    seconds: StageSeconds | None
    _: KW_ONLY
    tokens_per_s: float = math.nan
    speedup: float = math.nan
    interval: Interval = UNKNOWN
    price_interval: Interval = UNKNOWN
    tokens_per_s_price_interval: Interval = UNKNOWN


NO_SPEED = Speed(None)


class PlainRows:
    """The rows of plain decoding, beside which policies stand; what is read of them is worked out once.

    Args:
        rows: result rows; there may be none.
    """

    def __init__(self, rows: pl.DataFrame) -> None:
        self.rows = rows

    @cached_property
    def seconds(self) -> StageSeconds | None:
        """Summed over the rows; None without rows, or where one has no seconds."""
        return _seconds(self.rows)

    @cached_property
    def log_draws(self) -> Doubles:
        """Logarithms of the seconds at each draw of the prices, float64 ``[B]``; nan where not known."""
        return log_seconds_at_draws(self.rows)

    @cached_property
    def prompts(self) -> pl.DataFrame:
        """Tokens and seconds of each prompt."""
        return _by_prompt(self.rows)


def speed_of(rows: pl.DataFrame, plain: pl.DataFrame | PlainRows) -> Speed:
    """The speed of a policy beside plain decoding's.

    Args:
        rows: the result rows of one policy.
        plain: those of plain decoding; without speedup if they are not of the same sequences.
    """
    seconds = _seconds(rows)
    if seconds is None:
        return NO_SPEED
    tokens_per_s, log_draws = _tokens_per_s(rows, seconds), log_seconds_at_draws(rows)
    alone = price_interval(tokens_per_s, log_draws)
    plain = PlainRows(plain) if isinstance(plain, pl.DataFrame) else plain
    if plain.seconds is None or not _same_sequences(rows, plain.rows):
        return Speed(seconds, tokens_per_s=tokens_per_s, tokens_per_s_price_interval=alone)
    speedup = tokens_per_s / _tokens_per_s(plain.rows, plain.seconds)
    ours, base = _by_prompt(rows), plain.prompts
    interval = speedup_interval(
        ours["committed"].to_numpy(),
        ours["total_s"].to_numpy(),
        base["committed"].to_numpy(),
        base["total_s"].to_numpy(),
    )
    return Speed(
        seconds,
        tokens_per_s=tokens_per_s,
        speedup=speedup,
        interval=interval,
        price_interval=price_interval(speedup, plain.log_draws - log_draws),
        tokens_per_s_price_interval=alone,
    )


def _seconds(rows: pl.DataFrame) -> StageSeconds | None:
    """Summed over the rows; None without rows, or where one has no seconds."""
    stages = [rows[name] for name in STAGE_COLUMNS]
    if rows.is_empty() or any(stage.null_count() for stage in stages):
        return None
    return StageSeconds(*(float(stage.sum()) for stage in stages))


def _tokens_per_s(rows: pl.DataFrame, seconds: StageSeconds) -> float:
    committed = int(rows["committed"].cast(pl.Int64).sum())
    return committed / seconds.total_s if seconds.total_s > 0 else math.nan


def _same_sequences(rows: pl.DataFrame, plain: pl.DataFrame) -> bool:
    ours, base = rows[list(_SEQUENCE)], plain[list(_SEQUENCE)]
    return ours.equals(base) or ours.sort(_SEQUENCE).equals(base.sort(_SEQUENCE))


def _by_prompt(rows: pl.DataFrame) -> pl.DataFrame:
    """Tokens and seconds of each prompt, in an order that depends on the prompts alone."""
    sums = (pl.col("committed").cast(pl.Int64).sum(), pl.sum_horizontal(STAGE_COLUMNS).sum().alias("total_s"))
    return rows.lazy().group_by("dataset", "prompt_id").agg(sums).sort("dataset", "prompt_id").collect()
