"""From result rows to summaries, and to the table that a person reads."""

import math

import numpy as np
import polars as pl
import pytest
from summary_rows import priced, results, with_draws

from simlab.analysis.table.summaries import STAGE_COLUMNS, summarise
from simlab.analysis.table.text import summary_blocks, summary_notes, summary_table
from simlab.cost import StageSeconds
from simlab.policies.costs.cell_prices import NUM_DRAWS


def test_a_summary_pools_and_averages() -> None:
    chain, tree = summarise(results())
    assert (chain.policy, tree.policy) == ("chain", "ddtree:budget=4")
    assert (chain.prompts, chain.sequences, chain.totals.rounds) == (3, 4, 20)
    assert chain.totals.acceptance_length == 2.5
    assert chain.acceptance_length_macro == pytest.approx((2 + 4 + 2) / 3)
    assert chain.interval.low <= 2.5 <= chain.interval.high


@pytest.mark.parametrize("by", ["dataset", "turn"])
def test_slices_add_up_to_the_whole(by: str) -> None:
    whole, slices = summarise(results()), summarise(results(), by)
    for one in whole:
        parts = [part for part in slices if part.policy == one.policy]
        assert sum((part.totals for part in parts[1:]), parts[0].totals) == one.totals
        assert sum(part.sequences for part in parts) == one.sequences
    with pytest.raises(ValueError, match="by must be one of"):
        summarise(results(), "prompt_id")


def test_a_row_is_flat_and_holds_no_nan() -> None:
    nothing = summarise(results().filter(pl.col("prompt_id") == "m-1"))[0]
    assert math.isnan(nothing.totals.acceptance_length)
    row = nothing.row()
    assert all(value is None or isinstance(value, str | int | float) for value in row.values())
    assert all(not isinstance(value, float) or math.isfinite(value) for value in row.values())
    assert row["acceptance_length"] is None
    assert row["speedup"] is None
    assert "slice" not in row
    assert summarise(results(), "dataset")[-1].row()["slice"] == "chat"


def test_a_table_shows_both_means_and_aligns() -> None:
    lines = summary_table(summarise(results())).splitlines()
    assert len(lines) == 4
    assert lines[2].split()[:2] == ["chain", "2.50"]
    assert "2.67" in lines[2]
    assert len({len(line) for line in lines[2:]}) == 1


def test_blocks_end_with_the_whole() -> None:
    whole, slices = summarise(results()), summarise(results(), "dataset")
    titles = [block.splitlines()[0] for block in summary_blocks(slices, whole, "dataset").split("\n\n")]
    assert titles == [
        "dataset maths: 2 prompts, 2 sequences",
        "dataset chat: 1 prompts, 2 sequences",
        "all: 3 prompts, 4 sequences",
    ]
    assert "bonus token included" in summary_notes(whole)
    assert "Fewer than 20 prompts" in summary_notes(whole)


def test_speeds_are_pooled_and_over_plain_decoding() -> None:
    plain, chain, tree = summarise(priced())
    assert plain.speed.tokens_per_s == 1.0
    assert (plain.speed.speedup, plain.speed.interval.low, plain.speed.interval.high) == (1.0, 1.0, 1.0)
    assert chain.speed.seconds is not None
    assert chain.speed.seconds.total_s == pytest.approx(20 * 1.6)
    assert chain.speed.tokens_per_s == pytest.approx(50 / (20 * 1.6))
    assert tree.speed.speedup == pytest.approx(2 * chain.speed.speedup) == pytest.approx(100 / (20 * 1.6))
    assert chain.speed.interval.low < chain.speed.speedup < chain.speed.interval.high
    row = chain.row()
    assert [row["draft_s"], row["commit_s"]] == pytest.approx([2.0, 6.0])
    assert (row["tokens_per_s"], row["speedup"]) == (chain.speed.tokens_per_s, chain.speed.speedup)
    assert (row["speedup_ci_low"], row["speedup_ci_high"]) == (chain.speed.interval.low, chain.speed.interval.high)


@pytest.mark.parametrize("policy", ["autoregressive", "chain"])
def test_rows_of_no_seconds_have_no_speed(policy: str) -> None:
    """Prices may be zero, or no round be run: nothing is divided by them."""
    is_idle = pl.col("policy") == policy
    rows = priced().with_columns(
        pl.when(is_idle).then(0.0).otherwise(pl.col(name)).alias(name) for name in STAGE_COLUMNS
    )
    found = {one.policy: one.speed for one in summarise(rows)}
    assert found[policy].seconds == StageSeconds()
    assert math.isnan(found[policy].tokens_per_s)
    assert math.isnan(found[policy].speedup)
    assert math.isnan(found["chain"].speedup)
    assert found["ddtree:budget=4"].tokens_per_s == pytest.approx(100 / (20 * 1.6))


def test_seconds_of_slices_add_up_and_each_has_its_own_baseline() -> None:
    whole, slices = summarise(priced()), summarise(priced(), "dataset")
    for one in whole:
        parts = [part.speed.seconds for part in slices if part.policy == one.policy]
        total = sum((part for part in parts if part is not None), start=StageSeconds())
        assert one.speed.seconds is not None
        assert total.total_s == pytest.approx(one.speed.seconds.total_s)
    by_slice = {(one.slice, one.policy): one.speed.speedup for one in slices}
    assert by_slice["maths", "chain"] == pytest.approx(20 / (10 * 1.6))
    assert by_slice["chat", "chain"] == pytest.approx(30 / (10 * 1.6))
    assert by_slice["chat", "autoregressive"] == 1.0


def test_a_speedup_is_paired_prompt_by_prompt_whatever_the_order_of_the_rows() -> None:
    rng = np.random.default_rng(2)
    one = priced().filter((pl.col("policy") == "chain") & (pl.col("prompt_id") == "m-0"))
    verify_s = rng.lognormal(0, 2, 300).tolist()
    prompts = [
        one.with_columns(pl.lit(f"p-{place}").alias("prompt_id"), pl.lit(seconds).alias("verify_s"))
        for place, seconds in enumerate(verify_s)
    ]
    chain = pl.concat(prompts).with_columns(
        pl.lit(0.0).alias(name) for name in ("draft_s", "channel_s", "select_s", "commit_s")
    )
    plain = chain.with_columns(pl.lit("ar").alias("name"), pl.lit("ar").alias("policy"), pl.col("verify_s") * 2)
    rows = pl.concat([plain, chain]).sample(fraction=1, shuffle=True, seed=3)
    (speed,) = (found.speed for found in summarise(rows) if found.policy == "chain")
    assert (speed.speedup, speed.interval.low, speed.interval.high) == pytest.approx((2.0, 2.0, 2.0))


def test_a_speed_that_is_not_known_is_left_out() -> None:
    unpriced = summarise(priced().with_columns(pl.lit(None, pl.Float64).alias("select_s")))
    assert all(one.speed.seconds is None and math.isnan(one.speed.tokens_per_s) for one in unpriced)
    without_plain = summarise(priced().filter(pl.col("name") != "ar"))
    fewer_plain = summarise(priced().filter((pl.col("name") != "ar") | (pl.col("prompt_id") != "c-0")))
    for found in (without_plain[0], fewer_plain[1]):
        assert found.speed.tokens_per_s == pytest.approx(50 / (20 * 1.6))
        assert math.isnan(found.speed.speedup)
        assert found.row()["speedup"] is found.row()["speedup_ci_low"] is None


def test_predictions_and_measurements_are_not_mixed() -> None:
    measured = priced().with_columns(pl.lit("measured").alias("kind"))
    dearer = priced().with_columns(pl.lit("other").alias("cost_id"))
    assert summarise(measured)[0].kind == "measured"
    for other in (measured, dearer):
        with pytest.raises(ValueError, match="do not add up"):
            summarise(pl.concat([priced(), other]))


def test_a_table_shows_speeds_only_where_they_are_known() -> None:
    without, found = summarise(results()), summarise(priced())
    assert "tokens/s" not in summary_table(without)
    assert "speedup" not in summary_table(without)
    assert "`simlab profile`" in summary_notes(without)
    assert summary_notes(without, "No speeds at all.").splitlines()[2] == "No speeds at all."
    lines = summary_table(found).splitlines()
    assert "tokens/s  speedup" in lines[0]
    assert lines[1].endswith("[95 %]")
    assert lines[2].split()[-3:] == ["1.0", "1.00", "-"]
    assert "1.56 [" in lines[3].split("rounds")[-1]
    assert lines[3].endswith("]  -")
    assert "a latency profile; prefill is not in them" in summary_notes(found)
    assert "`simlab profile`" not in summary_notes(found)
    measured = summarise(priced().with_columns(pl.lit("measured").alias("kind")))
    assert "Speeds were measured" in summary_notes(measured)


def test_a_table_is_narrow_enough_for_a_terminal() -> None:
    rng = np.random.default_rng(1)
    lists = [rng.uniform(1, 2, NUM_DRAWS).tolist() for _ in range(len(priced()))]
    wide = with_draws(priced(), lists).with_columns(
        pl.col("policy").str.replace("autoregressive", "hindsight:budget=512"),
        *(pl.col(name) * 1000 for name in ("rounds", "drafted", "verified", "committed")),
        *(pl.col(name) * 10 for name in STAGE_COLUMNS),
    )
    assert max(map(len, summary_table(summarise(wide)).splitlines())) <= 120
    assert max(map(len, summary_notes(summarise(wide)).splitlines())) <= 110
    assert max(map(len, summary_notes(summarise(results())).splitlines())) <= 110
