"""Intervals of what depends on prices, from the same figure at prices drawn again."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simlab.analysis.statistics.intervals import UNKNOWN
from simlab.analysis.statistics.price_intervals import PriceSpread, price_interval
from simlab.policies.costs.cell_prices import NUM_DRAWS

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
    deviation = math.sqrt(sum((one - mean) ** 2 for one in logs) / (NUM_DRAWS - 1))
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
