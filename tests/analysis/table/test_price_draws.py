"""Price intervals of summaries: seconds at prices drawn again, added up over rows."""

import math
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from confirm_results import results as made_up_results
from hypothesis import given
from hypothesis import strategies as st
from summary_rows import priced, results, with_draws

from simlab.analysis.statistics.intervals import UNKNOWN
from simlab.analysis.table.summaries import STAGE_COLUMNS, Summary, seconds_at_draws, summarise
from simlab.arrays import Doubles
from simlab.errors import TraceError
from simlab.policies.costs.cell_prices import NUM_DRAWS
from simlab.studies.inspect.sign import sign
from simlab.traces.results.files import read_results, write_results
from simlab.traces.results.rows import joined_results, results_schema


def noisy(factors: dict[str, Doubles]) -> pl.DataFrame:
    """The priced rows, the seconds of each policy times its factor at each draw."""
    rows = priced()
    totals = rows.select(pl.sum_horizontal(STAGE_COLUMNS)).to_series().to_list()
    lists = [
        (total * factors[name]).tolist() if name in factors else [total] * NUM_DRAWS
        for name, total in zip(rows["name"], totals, strict=True)
    ]
    return with_draws(rows, lists)


def of(rows: pl.DataFrame, name: str) -> Summary:
    return next(summary for summary in summarise(rows) if summary.name == name)


def test_prices_without_noise_give_a_point() -> None:
    for summary in summarise(noisy({})):
        assert summary.speed.price_interval.low == pytest.approx(summary.speed.speedup, rel=1e-12)
        assert summary.speed.price_interval.high == pytest.approx(summary.speed.speedup, rel=1e-12)


@given(st.integers(0, 500))
def test_the_interval_is_of_the_paired_ratio_of_sums(seed: int) -> None:
    rng = np.random.default_rng(seed)
    shared, own = rng.lognormal(0, 0.3, NUM_DRAWS), rng.lognormal(0, 0.01, NUM_DRAWS)
    summary = of(noisy({"ar": shared, "chain": shared * own}), "chain")
    half = 2.0395134 * np.std(np.log(own), ddof=1)
    interval, alone = summary.speed.price_interval, summary.speed.tokens_per_s_price_interval
    assert math.log(interval.high / summary.speed.speedup) == pytest.approx(half, rel=1e-3)
    assert math.log(summary.speed.speedup / interval.low) == pytest.approx(half, rel=1e-3)
    # Tokens per second have the noise of the machine too.
    assert alone.high / alone.low > 1.5 * interval.high / interval.low
    row = summary.row()
    assert (row["speedup_price_low"], row["speedup_price_high"]) == (interval.low, interval.high)


def test_rows_without_draws_have_no_price_interval() -> None:
    half_known = noisy({}).with_columns(
        pl.when(pl.col("sequence") == 0).then(None).otherwise(pl.col("draws_s")).alias("draws_s")
    )
    shorter = noisy({}).with_columns(pl.col("draws_s").list.head(5))
    for rows in (results(), priced(), half_known, shorter, priced().clear()):
        assert np.isnan(seconds_at_draws(rows)).all()
        for summary in summarise(rows):
            assert summary.speed.price_interval is UNKNOWN
            assert summary.row()["speedup_price_low"] is None
    # A policy without a plain one beside it has the interval of its own speed.
    (alone,) = (summary for summary in summarise(noisy({}).filter(pl.col("name") == "chain")))
    assert math.isnan(alone.speed.price_interval.low)
    assert alone.speed.tokens_per_s_price_interval.low == pytest.approx(alone.speed.tokens_per_s)


def test_lists_add_up_over_slices_and_over_merged_files(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    rows = noisy({name: rng.lognormal(0, 0.1, NUM_DRAWS) for name in ("ar", "chain", "ddtree")})
    parts = rows.partition_by("dataset")
    assert sum(seconds_at_draws(part) for part in parts) == pytest.approx(seconds_at_draws(rows))
    whole = made_up_results().filter(pl.col("kind") == "predicted")
    lists = np.outer(whole["verify_s"].to_numpy(), rng.lognormal(0, 0.1, NUM_DRAWS)).tolist()
    whole = with_draws(whole, lists)
    for number, part in enumerate((whole.filter(pl.col("sequence") < 9), whole.filter(pl.col("sequence") >= 9))):
        write_results(tmp_path / f"{number}.parquet", part)
    merged = joined_results([read_results(tmp_path / f"{number}.parquet") for number in range(2)])
    assert [summary.row() for summary in summarise(merged)] == [summary.row() for summary in summarise(whole)]
    assert summarise(whole)[1].row()["speedup_price_low"] is not None


def test_a_file_of_an_older_simlab_is_signed_and_then_read_and_has_no_price_interval(tmp_path: Path) -> None:
    path = tmp_path / "old.parquet"
    rows = made_up_results().filter(pl.col("kind") == "predicted")
    rows.drop("draws_s").write_parquet(path)
    with pytest.raises(TraceError, match=r"has no digest of its rows.*`simlab inspect .*old\.parquet --sign`"):
        read_results(path)
    sign(str(path))
    found = read_results(path)
    assert found.schema == pl.Schema(results_schema())
    speeds = [summary.speed for summary in summarise(found)]
    assert all(speed.price_interval is UNKNOWN and speed.speedup > 0 for speed in speeds)
