"""From result rows to summaries, and to the table that a person reads."""

import math

import polars as pl
import pytest

from simlab.analysis.table_text import blocks, notes, table
from simlab.analysis.tables import summaries

SUMS = ("rounds", "drafted", "verified", "accepted", "committed", "clipped")


def results() -> pl.DataFrame:
    """Two policies on three prompts of two datasets; prompt c-0 has two turns, and m-1 no round."""
    rows = []
    for policy, factor in (("chain", 1), ("ddtree:budget=4", 2)):
        for dataset, prompt_id, turn, rounds, committed in (
            ("maths", "m-0", 0, 10, 20 * factor),
            ("maths", "m-1", 0, 0, 0),
            ("chat", "c-0", 0, 5, 20 * factor),
            ("chat", "c-0", 1, 5, 10 * factor),
        ):
            rows.append(
                {
                    "policy": policy,
                    "policy_id": policy,
                    "name": policy.partition(":")[0],
                    "settings": "{}",
                    "dataset": dataset,
                    "prompt_id": prompt_id,
                    "turn": turn,
                    "rounds": rounds,
                    "drafted": 7 * rounds,
                    "verified": 8 * rounds,
                    "accepted": committed - rounds,
                    "committed": committed,
                    "clipped": 0,
                }
            )
    return pl.DataFrame(rows)


def test_a_summary_pools_and_averages() -> None:
    chain, tree = summaries(results())
    assert (chain.policy, tree.policy) == ("chain", "ddtree:budget=4")
    assert (chain.prompts, chain.sequences, chain.totals.rounds) == (3, 4, 20)
    assert chain.totals.acceptance_length == 2.5
    assert chain.acceptance_length_macro == pytest.approx((2 + 4 + 2) / 3)
    assert chain.interval.low <= 2.5 <= chain.interval.high


@pytest.mark.parametrize("by", ["dataset", "turn"])
def test_slices_add_up_to_the_whole(by: str) -> None:
    whole, slices = summaries(results()), summaries(results(), by)
    for one in whole:
        parts = [part for part in slices if part.policy == one.policy]
        assert sum((part.totals for part in parts[1:]), parts[0].totals) == one.totals
        assert sum(part.sequences for part in parts) == one.sequences
    with pytest.raises(ValueError, match="by must be one of"):
        summaries(results(), "prompt_id")


def test_a_row_is_flat_and_holds_no_nan() -> None:
    nothing = summaries(results().filter(pl.col("prompt_id") == "m-1"))[0]
    assert math.isnan(nothing.totals.acceptance_length)
    row = nothing.row()
    assert all(value is None or isinstance(value, str | int | float) for value in row.values())
    assert all(not isinstance(value, float) or math.isfinite(value) for value in row.values())
    assert row["acceptance_length"] is None
    assert row["speedup"] is None
    assert "slice" not in row
    assert summaries(results(), "dataset")[-1].row()["slice"] == "chat"


def test_a_table_shows_both_means_and_aligns() -> None:
    lines = table(summaries(results())).splitlines()
    assert len(lines) == 4
    assert lines[2].split()[:2] == ["chain", "2.50"]
    assert "2.67" in lines[2]
    assert len({len(line) for line in lines[2:]}) == 1


def test_blocks_end_with_the_whole() -> None:
    whole, slices = summaries(results()), summaries(results(), "dataset")
    titles = [block.splitlines()[0] for block in blocks(slices, whole, "dataset").split("\n\n")]
    assert titles == [
        "dataset maths: 2 prompts, 2 sequences",
        "dataset chat: 1 prompts, 2 sequences",
        "all: 3 prompts, 4 sequences",
    ]
    assert "bonus token included" in notes(whole)
    assert "Fewer than 20 prompts" in notes(whole)
