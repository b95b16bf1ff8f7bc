"""Intervals over prompts: coverage, determinism, speed, and what too few prompts give."""

import math
import time

import numpy as np
import pytest

from simlab.analysis import intervals
from simlab.analysis.intervals import ratio_interval, speedup_interval
from simlab.arrays import Doubles


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
@pytest.mark.parametrize("num_prompts", [40, 80])
def test_an_interval_covers_the_truth_as_often_as_it_says(kind: str, num_prompts: int) -> None:
    rng = np.random.default_rng(7)
    tokens, rounds = draw_prompts(rng, (3, 300_000), kind)
    truth = tokens.sum() / rounds.sum()
    repeats = 2000
    tokens, rounds = draw_prompts(rng, (repeats, num_prompts), kind)
    covered = 0
    for committed, num_rounds in zip(tokens, rounds, strict=True):
        found = ratio_interval(committed, num_rounds)
        covered += found.low <= truth <= found.high
    assert abs(covered / repeats - intervals.LEVEL) <= 0.015


@pytest.mark.parametrize("num_prompts", [5, 10, 20])
def test_with_few_prompts_it_stays_near_its_level(num_prompts: int) -> None:
    rng = np.random.default_rng(11)
    truth = np.divide(*(part.sum() for part in draw_prompts(rng, (3, 300_000), "even")))
    draws = zip(*draw_prompts(rng, (1000, num_prompts), "even"), strict=True)
    found = [ratio_interval(committed, num_rounds) for committed, num_rounds in draws]
    assert np.mean([one.low <= truth <= one.high for one in found]) > 0.88


def test_the_same_numbers_give_the_same_interval() -> None:
    committed, rounds = np.array([10, 20, 30, 44]), np.array([5, 6, 7, 20])
    assert ratio_interval(committed, rounds) == ratio_interval(committed.copy(), rounds.copy())


def test_too_few_prompts_give_no_interval() -> None:
    for committed, rounds in [([], []), ([4], [2]), ([0, 0], [0, 0])]:
        found = ratio_interval(np.array(committed, np.int64), np.array(rounds, np.int64))
        assert math.isnan(found.low)
        assert math.isnan(found.high)


def test_a_resample_without_rounds_is_left_out() -> None:
    found = ratio_interval(np.array([0, 6]), np.array([0, 3]))
    assert (found.low, found.high) == (2.0, 2.0)


def test_hundreds_of_prompts_take_a_moment() -> None:
    committed, rounds = np.random.default_rng(0).integers(1, 200, (2, 322))
    intervals._weights.cache_clear()
    start = time.process_time()
    for _ in range(4):
        ratio_interval(committed, rounds)
    assert time.process_time() - start < 0.6


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


def test_a_speedup_over_itself_is_one() -> None:
    tokens, seconds = np.random.default_rng(1).random((2, 25)) + 0.1
    assert speedup_interval(tokens, seconds, tokens, seconds) == intervals.Interval(1.0, 1.0)


def test_a_speedup_interval_needs_two_prompts_and_the_same_ones() -> None:
    one, two = np.array([4.0]), np.array([4.0, 5.0])
    for tokens, seconds, base_tokens, base_seconds in [(one, one, one, one), (two, 0 * two, two, two)]:
        assert math.isnan(speedup_interval(tokens, seconds, base_tokens, base_seconds).low)
    with pytest.raises(ValueError, match="the same prompts"):
        speedup_interval(two, two, one, one)


def test_a_resample_without_seconds_is_left_out() -> None:
    tokens, seconds = np.array([0, 6]), np.array([0.0, 3.0])
    found = speedup_interval(tokens, seconds, tokens, 2 * seconds)
    assert (found.low, found.high) == (2.0, 2.0)
