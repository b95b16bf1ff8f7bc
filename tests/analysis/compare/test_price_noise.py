"""A winner must be ahead by more than prompts and prices vary: planted noise of the latency profile."""

import math

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simlab.analysis.compare.comparisons import Comparison, compare_runs
from simlab.analysis.compare.verdicts import (
    comparison_notes,
    comparison_table,
    standing_sentence,
    verdict_sentence,
    verdicts_text,
)
from simlab.analysis.statistics.intervals import UNKNOWN
from simlab.analysis.table.prompt_sums import PolicyRun
from simlab.arrays import Doubles
from simlab.policies.costs.cell_prices import NUM_DRAWS

STAGES = ("draft_s", "channel_s", "select_s", "verify_s", "commit_s")
ONES = np.ones(NUM_DRAWS)


def rows(seconds_per_token: float, factors: Doubles | None, profile: str | None = "a", seed: int = 0) -> pl.DataFrame:
    """60 prompts, a little uneven; at each draw the seconds times a factor."""
    rng = np.random.default_rng(seed)
    committed = np.random.default_rng(9).integers(50, 200, 60)
    seconds = committed * seconds_per_token * rng.lognormal(0, 0.01, 60)
    lists = [None] * 60 if factors is None else np.outer(seconds, factors).tolist()
    return pl.DataFrame(
        {
            "dataset": ["d"] * 60,
            "prompt_id": [f"p{index}" for index in range(60)],
            "turn": [0] * 60,
            "sample": [0] * 60,
            "committed": committed,
            "rounds": committed // 2,
            **{name: [0.0] * 60 for name in STAGES},
            "cost_id": pl.Series([profile] * 60, dtype=pl.String),
            "draws_s": pl.Series(lists, dtype=pl.List(pl.Float32)),
        }
    ).with_columns(verify_s=pl.Series(seconds))


def run(
    name: str, seconds_per_token: float, factors: Doubles | None, profile: str | None = "a", seed: int = 0
) -> PolicyRun:
    return PolicyRun(name, rows(seconds_per_token, factors, profile, seed), rows(3.0, factors, profile, 7))


def timed(*runs: PolicyRun) -> list[Comparison]:
    found = compare_runs(runs, [(0, index) for index in range(1, len(runs))])
    return [comparison for comparison in found if comparison.measure == "tokens_per_s"]


def noise(size: float, seed: int = 3) -> Doubles:
    return np.random.default_rng(seed).lognormal(0, size, NUM_DRAWS)


def test_a_difference_within_the_noise_of_prices_has_no_winner() -> None:
    (found,) = timed(run("A", 1.0, noise(0.05)), run("B", 1.03, ONES, seed=1))
    # The prompts alone would tell: this is what was claimed before.
    assert found.ratio_interval.low > 1
    assert found.p_adjusted < 0.001
    assert found.price_interval.low < 1 < found.price_interval.high
    assert not found.differs
    low, high = 100 * (found.price_interval.low - 1), 100 * (found.price_interval.high - 1)
    assert verdict_sentence(found) == (
        "no winner between A and B: their difference is within the noise of the latency profile "
        f"(prices [{low:.1f}, +{high:.1f}] %)"
    )
    row = found.row()
    assert (row["ratio_price_low"], row["ratio_price_high"]) == (found.price_interval.low, found.price_interval.high)
    assert row["differs"] is False


def test_a_difference_beyond_the_noise_of_prices_is_told_with_it() -> None:
    runs = run("A", 1.0, noise(0.01)), run("B", 1.3, ONES, seed=1)
    (found,) = timed(*runs)
    assert found.differs
    low, high = found.price_interval.low, found.price_interval.high
    assert 1.2 < low < found.ratio < high < 1.4
    ends = f"(prices [{100 * (low - 1):.1f}, {100 * (high - 1):.1f}])"
    assert verdict_sentence(found).endswith(f"], {ends}, on 60 prompts".replace("], (", "] ("))
    (turned,) = timed(*reversed(runs))
    assert verdict_sentence(turned) == verdict_sentence(found)
    assert ends in standing_sentence(timed(runs[0], runs[1], run("C", 1.5, ONES, seed=2)))


@given(st.integers(0, 50), st.floats(0.001, 0.3))
def test_the_interval_is_of_the_ratio_paired_by_draw(seed: int, size: float) -> None:
    shared, own = noise(0.5, seed), noise(size, seed + 1000)
    (found,) = timed(run("A", 1.0, shared), run("B", 1.5, shared * own, seed=1))
    half = 2.0395134 * np.std(np.log(own), ddof=1)
    assert math.log(found.price_interval.high / found.ratio) == pytest.approx(half, rel=1e-2)
    assert found.differs == (math.log(found.ratio) > half)


def test_speedups_have_the_same_interval_and_acceptance_lengths_none() -> None:
    runs = run("A", 1.0, noise(0.05)), run("B", 1.03, ONES, seed=1)
    found = {one.measure: one for one in compare_runs(runs, [(0, 1)])}
    assert found["acceptance_length"].price_interval is UNKNOWN
    assert found["acceptance_length"].row()["ratio_price_low"] is None
    # Of a speedup the plain decoding at the very draw is in it; here it has the run's own noise.
    assert found["speedup"].price_interval.high == pytest.approx(found["speedup"].ratio, rel=1e-6)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (run("A", 1.0, noise(0.05), "a"), run("B", 1.03, ONES, "b", seed=1)),
        (run("A", 1.0, None), run("B", 1.03, ONES, seed=1)),
        (run("A", 1.0, None, None), run("B", 1.03, None, None, seed=1)),
    ],
)
def test_other_profiles_and_measured_rows_have_no_price_interval(first: PolicyRun, second: PolicyRun) -> None:
    (found,) = timed(first, second)
    assert found.price_interval is UNKNOWN
    assert found.differs
    assert "prices" not in verdict_sentence(found) + comparison_table([found]) + comparison_notes([found], "holm")


def test_a_run_stands_among_others_only_beyond_the_noise_of_prices() -> None:
    noisy, wide = run("A", 1.0, noise(0.05)), run("C", 2.0, ONES, seed=2)
    within = run("B", 1.03, ONES, seed=1)
    found = timed(noisy, within, wide)
    assert [comparison.differs for comparison in found] == [False, True]
    assert standing_sentence(found) == (
        "no winner among A and B: their difference is within the noise of the latency profile"
    )
    # Some cannot be told by prompts, others not by prices.
    close = run("D", 1.0003, noise(0.05), seed=3)
    said = standing_sentence(timed(noisy, within, close))
    assert said.startswith("no winner among A, B and D: not significant; minimum detectable difference ")
    assert said.endswith("; the difference from B is within the noise of the latency profile")
    assert verdicts_text(timed(noisy, within)).startswith("no winner between A and B: their difference is within")
