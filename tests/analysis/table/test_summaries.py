"""From result rows to summaries, and to the table that a person reads."""

import math
import re
from html import unescape

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from summary_rows import priced, results

from simlab.analysis.table.summaries import STAGE_COLUMNS, Summary, summarise
from simlab.analysis.table.text import (
    WIDTH,
    Cells,
    cells_html,
    sentences_html,
    summaries_html,
    summary_cells,
    summary_notes,
    within_width,
)
from simlab.cost import StageSeconds


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
    for summary in whole:
        parts = [part for part in slices if part.policy == summary.policy]
        assert sum((part.totals for part in parts[1:]), parts[0].totals) == summary.totals
        assert sum(part.sequences for part in parts) == summary.sequences
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
    found = {summary.policy: summary.speed for summary in summarise(rows)}
    assert found[policy].seconds == StageSeconds()
    assert math.isnan(found[policy].tokens_per_s)
    assert math.isnan(found[policy].speedup)
    assert math.isnan(found["chain"].speedup)
    assert found["ddtree:budget=4"].tokens_per_s == pytest.approx(100 / (20 * 1.6))


def test_seconds_of_slices_add_up_and_each_has_its_own_baseline() -> None:
    whole, slices = summarise(priced()), summarise(priced(), "dataset")
    for summary in whole:
        parts = [part.speed.seconds for part in slices if part.policy == summary.policy]
        total = sum((part for part in parts if part is not None), start=StageSeconds())
        assert summary.speed.seconds is not None
        assert total.total_s == pytest.approx(summary.speed.seconds.total_s)
    by_slice = {(one.slice, one.policy): one.speed.speedup for one in slices}
    assert by_slice["maths", "chain"] == pytest.approx(20 / (10 * 1.6))
    assert by_slice["chat", "chain"] == pytest.approx(30 / (10 * 1.6))
    assert by_slice["chat", "autoregressive"] == 1.0


def test_a_speedup_is_paired_prompt_by_prompt_whatever_the_order_of_the_rows() -> None:
    rng = np.random.default_rng(2)
    frame = priced().filter((pl.col("policy") == "chain") & (pl.col("prompt_id") == "m-0"))
    verify_s = rng.lognormal(0, 2, 300).tolist()
    prompts = [
        frame.with_columns(pl.lit(f"p-{index}").alias("prompt_id"), pl.lit(seconds).alias("verify_s"))
        for index, seconds in enumerate(verify_s)
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
    assert all(summary.speed.seconds is None and math.isnan(summary.speed.tokens_per_s) for summary in unpriced)
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


# The HTML of a notebook shows the cells of the text table, no others, and escapes them


def rows_of(page: str, kind: str) -> list[list[str]]:
    """The cells of each line of headings (``th``) or of each row (``td``)."""
    lines = re.findall(r"<tr>(.*?)</tr>", page, re.DOTALL)
    cells = [[unescape(one) for one in re.findall(rf"<{kind} [^>]*>(.*?)</{kind}>", line)] for line in lines]
    return [row for row in cells if row]


def assert_shows(page: str, found: list[Summary]) -> None:
    cells = summary_cells(found)
    assert rows_of(page, "th") == [list(line) for line in cells.headings]
    assert rows_of(page, "td") == [[cell.strip() for cell in row] for row in cells.rows]


def test_headings_cells_and_notes_are_those_of_the_text() -> None:
    for rows in (results(), priced()):
        found = summarise(rows)
        page = summaries_html(found)
        assert_shows(page, found)
        paragraphs = [unescape(one) for one in re.findall(r"<p [^>]*>(.*?)</p>", page)]
        assert paragraphs == [" ".join(summary_notes(found).splitlines())]
        assert "<script" not in page
        assert "class=" not in page


def test_everything_is_escaped() -> None:
    page = cells_html(Cells([["<a>"]], [["b & c"], ["  <script>  "]], [True]))
    assert rows_of(page, "td") == [["b & c"], ["<script>"]]
    assert "<script>" not in page
    assert "<a>" not in page
    assert sentences_html("a < b\n\nc") == sentences_html("a < b\nc")
    assert "a &lt; b" in sentences_html("a < b\n\nc")


# Lines of text around tables: they fit, and nothing of them is lost


@given(st.lists(st.text("ab-/,", min_size=1, max_size=30), min_size=1, max_size=40))
def test_lines_fit_and_keep_their_words(words: list[str]) -> None:
    lines = within_width(f"latency  {' '.join(words)}").split("\n")
    assert all(len(line) <= WIDTH for line in lines)
    assert " ".join(lines).split() == ["latency", *words]
    assert all(line.startswith(" " * 9) for line in lines[1:])


@pytest.mark.parametrize("line", ["", "short", "a  b" * 20, f"trace    /{'x' * 120}"])
def test_what_fits_and_what_cannot_be_broken_stays(line: str) -> None:
    assert within_width(line) == line
