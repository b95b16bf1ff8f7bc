"""Result rows of a few policies on a few prompts, with and without prices."""

from collections.abc import Sequence

import polars as pl
from made_up_rows import result_row

from simlab.analysis.table.summaries import STAGE_COLUMNS


def results() -> pl.DataFrame:
    """Two policies on three prompts of two datasets; prompt c-0 has two turns, and m-1 no round."""
    rows: list[dict[str, object]] = []
    for policy, factor in (("chain", 1), ("ddtree:budget=4", 2)):
        for dataset, prompt_id, turn, rounds, committed in (
            ("maths", "m-0", 0, 10, 20 * factor),
            ("maths", "m-1", 0, 0, 0),
            ("chat", "c-0", 0, 5, 20 * factor),
            ("chat", "c-0", 1, 5, 10 * factor),
        ):
            place = {"dataset": dataset, "prompt_id": prompt_id, "turn": turn, "sequence": len(rows) % 4}
            counts = {"rounds": rounds, "drafted": 7 * rounds, "verified": 8 * rounds, "accepted": committed - rounds}
            rows.append(result_row(policy, **place, **counts, committed=committed, draws_s=None))
    types: dict[str, pl.DataType] = dict.fromkeys(STAGE_COLUMNS, pl.Float64())
    return pl.DataFrame(rows, schema_overrides={**types, "cost_id": pl.String(), "draws_s": pl.List(pl.Float32)})


def as_measured(rows: pl.DataFrame) -> pl.DataFrame:
    """Predicted rows, as if they had been measured."""
    return rows.with_columns(
        pl.col(STAGE_COLUMNS).fill_null(1.0),
        kind=pl.lit("measured"),
        cost_id=pl.lit(None, pl.String),
        draws_s=pl.lit(None, pl.List(pl.Float32)),
    )


def priced() -> pl.DataFrame:
    """The same at a price: plain decoding takes 1 s a token, the others 0.1 + 0.2 + 1 + 0.3 s a round."""
    rows = results()
    per_round = {"draft_s": 0.1, "channel_s": 0.0, "select_s": 0.2, "verify_s": 1.0, "commit_s": 0.3}
    drafted = rows.with_columns(pl.lit("made-up").alias("cost_id")).with_columns(
        (pl.col("rounds") * seconds).alias(name) for name, seconds in per_round.items()
    )
    plain = drafted.filter(pl.col("policy") == "chain").with_columns(
        *(
            pl.lit(name).alias(column)
            for column, name in (("policy", "autoregressive"), ("policy_id", "ar"), ("name", "ar"))
        ),
        pl.col("committed").alias("rounds"),
        pl.col("committed").cast(pl.Float64).alias("verify_s"),
        *(pl.lit(0.0).alias(name) for name in ("draft_s", "channel_s", "select_s", "commit_s")),
    )
    return pl.concat([plain, drafted])


def with_draws(rows: pl.DataFrame, lists: Sequence[Sequence[float]]) -> pl.DataFrame:
    """The rows with their seconds at each draw of the prices."""
    return rows.with_columns(pl.Series("draws_s", lists, pl.List(pl.Float32)))
