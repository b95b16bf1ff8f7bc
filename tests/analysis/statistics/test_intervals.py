"""Intervals over prompts: coverage, determinism, speed, and what too few prompts give."""

import math

import numpy as np
import pytest
from depth import some
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from uneven_prompts import MEASURES, MadeUpPrompts, no_prices

from simlab.analysis.compare.comparisons import compare_pairs
from simlab.analysis.statistics import intervals
from simlab.analysis.statistics.intervals import (
    LEVEL,
    UNKNOWN,
    Spread,
    intervals_of,
    log_products,
    ratio_interval,
    speedup_interval,
)
from simlab.analysis.statistics.significance import CORRECTIONS, PriceSpread, benjamini_hochberg, holm, price_interval
from simlab.analysis.table.prompt_sums import COLUMNS, PromptSums
from simlab.arrays import Doubles
from simlab.policies.costs.cell_prices import NUM_DRAWS


def draw_prompts(rng: np.random.Generator, shape: tuple[int, int], kind: str) -> tuple[Doubles, Doubles]:
    """Committed tokens and rounds of prompts that differ in length and in how well they are drafted."""
    if kind == "even":
        tokens, agree = rng.integers(64, 257, shape), rng.beta(8, 8, shape)
    else:
        tokens, agree = np.clip(rng.lognormal(4.5, 0.7, shape), 8, 512).astype(int), rng.beta(3, 4, shape)
    mean = (1 - agree**8) / (1 - agree)
    noise = rng.normal(size=shape) * np.sqrt(0.7 * tokens * (mean - 1) / mean**2)
    return tokens.astype(np.float64), np.maximum(1, np.rint(tokens / mean + noise))


@pytest.mark.parametrize("kind", ["even", "skewed"])
@pytest.mark.parametrize("num_prompts", some([5, 10, 20, 40, 80], quick=3))
def test_an_interval_covers_the_truth_as_often_as_it_says(kind: str, num_prompts: int) -> None:
    """Many simulated sets of prompts at once: their ratios are products of the sums of one wide table."""
    assert abs(covered_share(kind, num_prompts, 8000) - LEVEL) <= 0.015


@pytest.mark.parametrize("measure", some(list(MEASURES)))
@pytest.mark.parametrize(
    ("sigma", "rho", "least"), some([(0.3, 0.0, 0.94), (0.7, 0.0, 0.94), (0.7, -0.6, 0.92), (1, 0, 0.94)], quick=2)
)
def test_with_forty_skewed_prompts_coverage_is_near_the_level(
    measure: str, sigma: float, rho: float, least: float
) -> None:
    """A percentile bootstrap has up to 3 points less; docs/measurements/interval_coverage.md has the whole table."""
    made_up, rng = MadeUpPrompts(sigma, rho), np.random.default_rng(40)
    truth, at_once, num_batches = float(np.log(made_up.totals()) @ MEASURES[measure]), 50, 120
    covered = 0
    powers = np.kron(np.eye(at_once), MEASURES[measure]).astype(np.float64)
    for _ in range(num_batches):
        spread = log_products(made_up.draw(rng, (40, at_once)).reshape(40, -1), powers)
        covered += sum(interval.low <= truth <= interval.high for interval in intervals_of(spread))
    assert least <= covered / (num_batches * at_once) <= LEVEL + 0.015


def covered_share(kind: str, num_prompts: int, repeats: int, at_once: int = 50) -> float:
    """Of simulated sets of prompts, those whose interval holds the truth."""
    rng = np.random.default_rng([7, num_prompts])
    tokens, rounds = draw_prompts(rng, (3, 300_000), kind)
    truth = np.log(tokens.sum() / rounds.sum())
    powers = np.concatenate([np.eye(at_once), -np.eye(at_once)], axis=1)
    covered = 0
    for _ in range(repeats // at_once):
        sums = np.concatenate(draw_prompts(rng, (num_prompts, at_once), kind), axis=1)
        covered += sum(interval.low <= truth <= interval.high for interval in intervals_of(log_products(sums, powers)))
    return covered / (repeats // at_once * at_once)


def test_too_few_prompts_give_no_interval() -> None:
    for committed, rounds in [([], []), ([4], [2]), ([0, 0], [0, 0])]:
        found = ratio_interval(np.array(committed, np.int64), np.array(rounds, np.int64))
        assert math.isnan(found.low)
        assert math.isnan(found.high)


@pytest.mark.parametrize("num_prompts", [2, 50])
def test_a_prompt_that_carries_everything_alone_gives_no_interval(num_prompts: int) -> None:
    tokens = np.zeros(num_prompts)
    tokens[-1] = 6
    assert math.isnan(ratio_interval(tokens, tokens / 2).low)
    assert math.isnan(speedup_interval(tokens, tokens / 2, tokens, tokens).low)


def test_prompts_without_rounds_change_nothing() -> None:
    tokens = np.zeros(60)
    tokens[:2] = 6, 12
    found = ratio_interval(tokens, tokens / 2)
    assert (found.low, found.high) == pytest.approx((2.0, 2.0))
    with np.errstate(invalid="raise"):
        log_products(np.zeros((2, 1)), np.ones((1, 1)))


def test_one_wide_table_gives_what_its_parts_give() -> None:
    sums = np.random.default_rng(2).integers(1, 200, (60, 6)).astype(np.float64)
    powers = np.concatenate([np.eye(3), -np.eye(3)], axis=1)
    for index, found in enumerate(intervals_of(log_products(sums, powers))):
        alone = ratio_interval(sums[:, index], sums[:, 3 + index])
        assert (alone.low, alone.high) == pytest.approx((math.exp(found.low), math.exp(found.high)))


def test_degrees_of_freedom_by_hand() -> None:
    """Normal prompts of equal weight have one less than there are; unequal ones, and a few that stand out, fewer."""
    moved = np.random.default_rng(4).normal(size=(4000, 1))

    def degrees(moved: Doubles, num_effective: float) -> float:
        (found,) = Spread(np.zeros(1), moved, np.array([num_effective])).degrees_of_freedom()
        return float(found)

    assert degrees(moved, 4000) == pytest.approx(3999, rel=0.1)
    assert degrees(moved, 12.5) == 11.5
    assert degrees(moved, 1.2) == 1.0
    alike = np.array([[-1.0], [-1.0], [1.0], [1.0]])
    assert degrees(alike, 4) == 3.0  # never more than one less than the prompts
    one_stands_out = np.array([[-1.0], [-1.0], [-1.0], [-1.0], [-1.0], [5.0]])
    # Squares 1 (5 times) and 25: mean 5, of their squares 105; kurtosis 4.2, and 2 * 6 / (4.2 - 3 / 5).
    assert degrees(one_stands_out, 6) == pytest.approx(12 / 3.6)
    assert degrees(np.zeros((6, 1)), 6) == 5.0


def test_an_interval_and_a_p_value_decide_alike() -> None:
    """Both are Student's, so 1 is outside the interval where p is below 5 %."""
    sums = PromptSums(tuple(("made-up", str(one)) for one in range(60)), uneven_sums(60, 80), *no_prices(80))
    pairs = [(2 * index, 2 * index + 1) for index in range(40)]
    found = compare_pairs(sums, [str(index) for index in range(80)], pairs, "tokens_per_s")
    outside = [not comparison.ratio_interval.low <= 1 <= comparison.ratio_interval.high for comparison in found]
    assert outside == [comparison.p_value < 1 - LEVEL for comparison in found]
    assert 0 < sum(outside) < 40


def uneven_sums(num_prompts: int, num_runs: int) -> Doubles:
    """Result sums of runs that differ by chance."""
    rng = np.random.default_rng(8)
    sums = np.full((num_prompts, num_runs, len(COLUMNS)), np.nan)
    sums[..., COLUMNS.index("committed")] = rng.lognormal(4, 1, (num_prompts, 1))
    slowness = rng.lognormal(0, 0.3, (num_prompts, num_runs)) * rng.lognormal(0, 0.1, num_runs)
    sums[..., COLUMNS.index("seconds")] = sums[..., COLUMNS.index("committed")] * slowness
    return sums


def test_a_speedup_interval_covers_the_truth_as_often_as_it_says() -> None:
    rng, num_prompts, repeats = np.random.default_rng(5), 40, 1500
    tokens, rounds = draw_prompts(rng, (3, 300_000), "skewed")
    truth = (tokens.sum() / (2.1 * rounds).sum()) / (tokens.sum() / (1.3 * tokens).sum())
    covered = 0
    for _ in range(repeats):
        tokens, rounds = draw_prompts(rng, (1, num_prompts), "skewed")
        machine = rng.lognormal(0.0, 0.05, (2, num_prompts))
        found = speedup_interval(tokens[0], 2.1 * rounds[0] * machine[0], tokens[0], 1.3 * tokens[0] * machine[1])
        covered += found.low <= truth <= found.high
    assert abs(covered / repeats - intervals.LEVEL) <= 0.02


def test_what_slows_both_does_not_widen_a_paired_interval() -> None:
    rng = np.random.default_rng(3)
    tokens, slowness = rng.integers(20, 200, 30), rng.lognormal(0, 1, 30)
    paired = speedup_interval(tokens, tokens * slowness, tokens, 2 * tokens * slowness)
    assert (paired.low, paired.high) == pytest.approx((2.0, 2.0))
    alone = ratio_interval(tokens, tokens * slowness)
    assert alone.high > 1.3 * alone.low


def test_a_speedup_interval_needs_two_prompts_and_the_same_ones() -> None:
    array, two = np.array([4.0]), np.array([4.0, 5.0])
    for tokens, seconds, base_tokens, base_seconds in [(array, array, array, array), (two, 0 * two, two, two)]:
        assert math.isnan(speedup_interval(tokens, seconds, base_tokens, base_seconds).low)
    with pytest.raises(ValueError, match="the same prompts"):
        speedup_interval(two, two, array, array)


# Intervals of what depends on prices, from the same figure at prices drawn again


STUDENT_31 = 2.0395134463964077
"""Of 95 % with 31 degrees of freedom, from a printed table (2.040)."""


@given(st.floats(0.01, 100), st.floats(-20, 20))
def test_draws_that_are_all_equal_give_a_point(value: float, log: float) -> None:
    found = price_interval(value, np.full(NUM_DRAWS, log))
    assert (found.low, found.high) == pytest.approx((value, value))


@given(st.floats(0.01, 100), st.integers(0, 1000))
def test_the_interval_is_student_s_around_the_figure_as_a_share_of_it(value: float, seed: int) -> None:
    logs = np.random.default_rng(seed).normal(5, 0.02, NUM_DRAWS)
    mean = sum(logs) / NUM_DRAWS
    deviation = math.sqrt(sum((log - mean) ** 2 for log in logs) / (NUM_DRAWS - 1))
    found = price_interval(value, logs)
    assert math.log(found.high / value) == pytest.approx(STUDENT_31 * deviation)
    assert math.log(value / found.low) == pytest.approx(STUDENT_31 * deviation)


def test_what_is_not_known_of_one_draw_or_of_the_figure_is_not_known() -> None:
    logs = np.zeros(NUM_DRAWS)
    assert price_interval(math.nan, logs) is UNKNOWN
    logs[3] = math.nan
    assert price_interval(1.0, logs) is UNKNOWN


def test_what_two_runs_share_does_not_widen_the_interval_of_their_ratio() -> None:
    rng = np.random.default_rng(1)
    shared, own = rng.normal(0, 0.2, NUM_DRAWS), rng.normal(0, 0.001, NUM_DRAWS)
    spread = PriceSpread(np.stack([shared, shared + own, shared + 1]), ("a", "a", "b"))
    alone, paired = price_interval(2.0, spread.logs[0]), spread.ratio_interval(0, 1, 2.0)
    assert paired.high - paired.low < 0.02 * (alone.high - alone.low)
    assert paired == price_interval(2.0, -own)
    # Draws of two profiles have nothing to do with each other, though they bear the same numbers.
    assert spread.ratio_interval(0, 2, 2.0) is UNKNOWN


# Corrections for many comparisons: worked by hand, against their definitions, and in simulation


P_VALUES = st.lists(st.sampled_from([0.0, 1e-9, 0.001, 0.01, 0.02, 0.04, 0.05, 0.3, 0.9, 1.0]), max_size=8)


def test_holm_by_hand() -> None:
    """In order .005 .01 .03 .04, times 4 3 2 1: .02 .03 .06 .04, and none below an earlier one."""
    assert holm(np.array([0.01, 0.04, 0.03, 0.005])) == pytest.approx([0.03, 0.06, 0.06, 0.02])


def test_benjamini_and_hochberg_by_hand() -> None:
    """The first example of their paper: of 15 p-values four are findings at 5 %, and three by Holm."""
    listed = [0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344, 0.0459, 0.3240]
    p_values = np.array([*listed, 0.4262, 0.5719, 0.6528, 0.7590, 1.0])
    assert (benjamini_hochberg(p_values) <= 0.05).sum() == 4
    assert (holm(p_values) <= 0.05).sum() == 3
    assert benjamini_hochberg(p_values)[:4] == pytest.approx([0.0015, 0.003, 0.0095, 0.035625])


@given(P_VALUES, st.sampled_from([0.01, 0.05, 0.2]))
def test_adjusted_values_decide_as_the_procedures_do(listed: list[float], level: float) -> None:
    p_values = np.array(listed)
    order, num = np.argsort(p_values, kind="stable"), len(listed)
    found = set()
    for index, which in enumerate(order):  # Holm steps down until the first that fails
        if p_values[which] * (num - index) > level:
            break
        found.add(int(which))
    assert set(np.flatnonzero(holm(p_values) <= level)) == found
    # Benjamini and Hochberg step up: all to the last that passes
    passing = [index for index, which in enumerate(order) if p_values[which] * num / (index + 1) <= level]
    expected = {int(which) for which in order[: passing[-1] + 1]} if passing else set()
    assert set(np.flatnonzero(benjamini_hochberg(p_values) <= level)) == expected


@pytest.mark.parametrize("name", CORRECTIONS)
def test_what_was_not_tested_does_not_count(name: str) -> None:
    correct = CORRECTIONS[name]
    with_gap = correct(np.array([0.01, np.nan, 0.03]))
    assert with_gap[[0, 2]] == pytest.approx(correct(np.array([0.01, 0.03])))
    assert np.isnan(with_gap[1])
    assert len(correct(np.array([]))) == 0
    assert np.isnan(correct(np.array([np.nan]))).all()


def families(num_true: int, repeats: int = 4000, size: int = 12) -> np.ndarray:
    """p-values of comparisons with one shared rival, ``[repeats, size]``; the first ones are of true differences."""
    rng = np.random.default_rng([3, num_true])
    distance = (rng.normal(size=(repeats, size)) - rng.normal(size=(repeats, 1))) / np.sqrt(2)
    distance[:, :num_true] += 3.5
    return np.asarray(2 * stats.norm.sf(np.abs(distance)))


@pytest.mark.parametrize("num_true", [0, 4])
def test_holm_rarely_finds_anything_false(num_true: int) -> None:
    found = [holm(family) < 0.05 for family in families(num_true)]
    assert np.mean([array[num_true:].any() for array in found]) <= 0.055
    assert num_true == 0 or np.mean([array[:num_true].mean() for array in found]) > 0.5


@pytest.mark.parametrize("num_true", [0, 4, 8])
def test_few_findings_of_benjamini_and_hochberg_are_false(num_true: int) -> None:
    found = [benjamini_hochberg(family) < 0.05 for family in families(num_true)]
    assert np.mean([array[num_true:].sum() / max(1, array.sum()) for array in found]) <= 0.055
