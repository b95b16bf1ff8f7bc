"""Ratios of sums over prompts: against the statistics that they are made of, and by hand."""

import numpy as np
import polars as pl
import pytest

from simlab.analysis.statistics.intervals import Interval, ratio_interval, speedup_interval
from simlab.analysis.table.estimates import (
    Estimate,
    mean_over_datasets,
    prompt_ratio,
    prompt_share,
    ratio_of_dataset_means,
)
from simlab.arrays import Doubles


def made_up_turns() -> pl.DataFrame:
    """Two datasets, ten prompts each, two turns a prompt."""
    rng = np.random.default_rng(5)
    prompts = np.repeat(np.arange(20), 2)
    numbers = {name: rng.integers(1, 50, 40) for name in ("above", "below", "base_above", "base_below")}
    names = pl.Series(["first"] * 20 + ["second"] * 20)
    return pl.DataFrame({"dataset": names, "prompt": prompts % 10, "part": rng.integers(0, 2, 40), "one": 1, **numbers})


def by_prompt(turns: pl.DataFrame, name: str) -> Doubles:
    return np.asarray(turns[name].to_numpy().reshape(20, 2).sum(axis=1), np.float64)


def test_turns_of_a_prompt_stay_together() -> None:
    turns = made_up_turns()
    above, below, *base = (by_prompt(turns, name) for name in ("above", "below", "base_above", "base_below"))
    estimate = prompt_ratio(turns, above=1, below=-1)
    assert estimate.value == pytest.approx(above.sum() / below.sum())
    alone = ratio_interval(above, below)
    assert (estimate.interval.low, estimate.interval.high) == pytest.approx((alone.low, alone.high))
    assert estimate.prompts == 20
    both = prompt_ratio(turns, above=1, below=-1, base_above=-1, base_below=1)
    expected = speedup_interval(above, below, *base)
    assert (both.interval.low, both.interval.high) == pytest.approx((expected.low, expected.high))
    assert (both.side_of() != 0) == (both.p_value < 0.05)
    equal = prompt_ratio(turns.with_columns(pl.col("above").alias("again")), above=1, again=-1)
    assert (equal.value, equal.p_value, equal.side_of()) == (1.0, 1.0, 0)


def test_shares_stay_between_0_and_1() -> None:
    turns = made_up_turns()
    found = prompt_share(turns, "part", "one")
    assert found.value == pytest.approx(turns["part"].to_numpy().mean())
    assert 0 <= found.interval.low < found.value < found.interval.high <= 1
    none = prompt_share(turns.with_columns(pl.lit(0).alias("part")), "part", "one")
    assert (none.value, none.interval.low, none.interval.high) == (0.0, 0.0, 0.0)


def test_datasets_have_equal_weight() -> None:
    turns = made_up_turns().slice(6)
    halves = [turns.filter(pl.col("dataset") == name) for name in ("first", "second")]
    sums = [half["above"].to_numpy().sum() / half["below"].to_numpy().sum() for half in halves]
    found = mean_over_datasets(turns, "above", "below")
    assert found.value == pytest.approx(sum(sums) / 2)
    assert found.interval.low < found.value < found.interval.high
    assert found.row("length") == {
        "length": round(found.value, 5),
        "length_ci_low": round(found.interval.low, 5),
        "length_ci_high": round(found.interval.high, 5),
    }


def test_ratios_of_dataset_means() -> None:
    """Against the two means, and on one dataset against the ratio of sums, whose interval is the same."""
    turns = made_up_turns()
    found = ratio_of_dataset_means(turns, ("above", "below"), ("base_above", "base_below"))
    first, second = (mean_over_datasets(turns, *one) for one in (("above", "below"), ("base_above", "base_below")))
    assert found.value == pytest.approx(first.value / second.value)
    assert (found.side_of() != 0) == (found.p_value < 0.05)
    other = pl.when(pl.col("dataset") == "first").then(10).otherwise(0)
    one_dataset = turns.with_columns(pl.col("prompt") + other, pl.lit("one").alias("dataset"))
    alone = ratio_of_dataset_means(one_dataset, ("above", "below"), ("base_above", "base_below"))
    plain = prompt_ratio(one_dataset, above=1, below=-1, base_above=-1, base_below=1)
    assert alone.value == pytest.approx(plain.value)
    assert (alone.interval.low, alone.interval.high) == pytest.approx(
        (plain.interval.low, plain.interval.high), rel=0.02
    )
    same = ratio_of_dataset_means(turns, ("above", "below"), ("above", "below"))
    assert (same.value, same.p_value, same.side_of()) == (1.0, 1.0, 0)


def test_an_estimate_as_text_and_as_a_row() -> None:
    estimate, alone, unknown = Estimate(0.5, Interval(0.4, 0.61)), Estimate(0.5), Estimate(float("nan"))
    assert [f"{estimate:1%}", f"{estimate:v1%}", f"{estimate:i1%}"] == ["50.0 [40.0, 61.0]", "50.0", "[40.0, 61.0]"]
    assert [f"{estimate}", f"{estimate:0k}", f"{estimate:3}"] == [
        "0.50 [0.40, 0.61]",
        "500 [400, 610]",
        "0.500 [0.400, 0.610]",
    ]
    assert [f"{alone:3}", f"{alone:i}", f"{unknown}", f"{unknown:v3}"] == ["0.500", "", "-", "-"]
    assert estimate.row("a", factor=1000) == {"a": 500.0, "a_ci_low": 400.0, "a_ci_high": 610.0}
    assert unknown.row("a") == unknown.row("a", digits=None) == {"a": None, "a_ci_low": None, "a_ci_high": None}
    sides = [Estimate(0, Interval(*ends)).side_of(1) for ends in ((1.1, 2), (0.2, 0.9), (0.9, 1.1))]
    assert [*sides, alone.side_of(1)] == [1, -1, 0, 0]
