"""The grid and the weight: array, kernel and plain Python give the same bits."""

import hashlib
import math
from decimal import Context, Decimal
from fractions import Fraction
from typing import SupportsFloat

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simlab.grid import grid_scalar, path_weight, to_grid, weight_scalar

STEP = Fraction(1, 65536)
log_probs = (
    st.floats(min_value=-300.0, max_value=0.0)
    | st.floats(min_value=-(2.0**-10), max_value=2.0**-10)
    | st.just(-math.inf)
)
halfway = st.integers(min_value=0, max_value=255 * 65536).map(lambda steps: -(steps + 0.5) / 65536)
scores = st.integers(min_value=0, max_value=(1 << 24) + 1000).map(lambda steps: -steps / 65536)
near_scores = st.integers(min_value=0, max_value=30 * 65536).map(lambda steps: -steps / 65536)


def bits(value: SupportsFloat) -> str:
    return float(value).hex()


def grid_in_fractions(log_prob: float) -> float:
    clamped = Fraction(-255) if log_prob == -math.inf else min(max(Fraction(log_prob), Fraction(-255)), Fraction(0))
    return float(round(clamped / STEP) * STEP) + 0.0


def weight_in_fractions(score: float) -> float:
    steps = round(-Fraction(score) / STEP)
    if steps >= 1 << 24:
        return 0.0
    product = 1.0
    for byte, unit in ((steps >> 16, 1), (steps >> 8 & 255, 256), (steps & 255, 65536)):
        product *= float(Context(prec=60).exp(Decimal(-byte) / unit))
    return float(Fraction(round(Fraction(product) * 2**40), 2**40))


@given(log_probs | halfway)
def test_grid_has_the_bits_of_exact_arithmetic(log_prob: float) -> None:
    expected = bits(grid_in_fractions(log_prob))
    assert bits(to_grid(log_prob)[()]) == bits(grid_scalar(log_prob)) == expected


@given(log_probs)
def test_a_float32_and_its_float64_copy_have_one_grid_value(log_prob: float) -> None:
    single = np.float32(log_prob)
    assert bits(to_grid(single)[()]) == bits(to_grid(np.float64(single))[()]) == bits(grid_scalar(float(single)))


@given(log_probs)
def test_the_grid_is_a_fixed_point_and_never_minus_zero(log_prob: float) -> None:
    once = to_grid(log_prob)
    assert bits(to_grid(once)[()]) == bits(once[()])
    assert not (once == 0 and np.signbit(once))


@given(st.lists(log_probs, max_size=40))
def test_sums_on_the_grid_do_not_depend_on_order(values: list[float]) -> None:
    on_grid = list(map(float, to_grid(values)))
    assert sum(on_grid) == sum(reversed(on_grid)) == float(sum(map(Fraction, on_grid)))


@given(scores | near_scores)
def test_weight_has_the_bits_of_the_rule(score: float) -> None:
    expected = bits(weight_in_fractions(score))
    assert bits(path_weight(score)[()]) == bits(weight_scalar(score)) == expected


@given(near_scores)
def test_weight_is_exp_within_half_a_unit(score: float) -> None:
    assert abs(weight_scalar(score) - math.exp(score)) <= 2.0**-41 * (1 + 1e-3)


@given(near_scores, near_scores)
def test_weight_never_rises_as_the_score_falls(value: float, other: float) -> None:
    assert weight_scalar(max(value, other)) >= weight_scalar(min(value, other))


def test_known_weights() -> None:
    assert path_weight([0.0, -28.0, -29.0, -255.0, -256.0, -1e300, -math.inf]).tolist() == [1.0, 2.0**-40] + [0.0] * 5
    assert path_weight(np.zeros((2, 3))).shape == (2, 3)
    weights = path_weight(-np.arange(0, 1 << 21, 7) / 65536)
    digest = "87ec9b7e5e67db80"
    assert hashlib.sha256(weights.astype("<f8").tobytes()).hexdigest()[:16] == digest


@pytest.mark.parametrize("bad", [math.nan, math.inf, 0.01, 5.0])
def test_what_is_no_log_probability_is_refused(bad: float) -> None:
    with pytest.raises(ValueError, match="at most 0"):
        to_grid([-1.0, bad])
    with pytest.raises(ValueError, match="at most 0"):
        grid_scalar(bad)
    with pytest.raises(ValueError, match="at most 0"):
        path_weight([-1.0, bad])
    with pytest.raises(ValueError, match="at most 0"):
        weight_scalar(bad)


def test_empty_arrays_pass() -> None:
    assert to_grid([]).shape == path_weight([]).shape == (0,)
