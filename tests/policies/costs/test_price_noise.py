"""Halves of samples, how well neighbouring sizes are told apart, and how many samples it would take."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simlab.cost import GRID_STAGES, PLAIN, Visits
from simlab.policies.costs.cell_prices import (
    CostSamples,
    drawn_prices,
    fewest_samples,
    half_samples,
    neighbour_half_widths,
    samples_needed,
)

COUNTS, CONTEXTS = (0, 2, 8), (16, 64)


def noisy_samples(
    generator: np.random.Generator, num_visits: int, noise: float
) -> dict[tuple[str, int, int], tuple[float, ...]]:
    """Two rounds a visit; a visit's four stages are slow together, each cell's on its own."""
    found = {}
    for context in CONTEXTS:
        found[PLAIN, 0, context] = (0.01,) * (8 * num_visits)
        for n in COUNTS:
            slow = np.repeat(np.exp(noise * generator.standard_normal(num_visits)), 2)
            found |= {(stage, n, context): tuple((0.005 * (1 + n / 10) * slow).tolist()) for stage in GRID_STAGES}
    return found


def test_halves_are_visits_in_turn() -> None:
    samples = {("draft", 0, 16): (1.0, 2.0, 3.0, 4.0, 5.0, 6.0), (PLAIN, 0, 16): tuple(map(float, range(6)))}
    assert half_samples(samples, Visits(2, 3), 0) == {("draft", 0, 16): (1, 2, 5, 6), (PLAIN, 0, 16): (0, 1, 2)}
    assert half_samples(samples, Visits(2, 3), 1) == {("draft", 0, 16): (3, 4), (PLAIN, 0, 16): (3, 4, 5)}
    assert half_samples({("draft", 0, 16): (1.0,)}, Visits(2, 3), 1) == {}


@given(st.integers(0, 1000), st.integers(1, 9), st.integers(1, 3))
def test_halves_are_all_samples_once(seed: int, num: int, at_once: int) -> None:
    values = np.random.default_rng(seed).random(num).tolist()
    samples: CostSamples = {("draft", 0, 16): values}
    parts = [half_samples(samples, Visits(at_once, 8), half).get(("draft", 0, 16), ()) for half in (0, 1)]
    assert sorted([*parts[0], *parts[1]]) == sorted(values)


def test_equal_samples_are_known_exactly_and_one_visit_tells_nothing() -> None:
    generator = np.random.default_rng(1)
    exact = neighbour_half_widths(noisy_samples(generator, 4, 0.0), Visits())
    assert exact == {(n, context): pytest.approx(0, abs=1e-12) for context in CONTEXTS for n in COUNTS[1:]}
    assert neighbour_half_widths(noisy_samples(generator, 1, 0.1), Visits()) == {}


def test_where_one_cell_was_visited_once_no_noise_is_claimed() -> None:
    samples = noisy_samples(np.random.default_rng(1), 4, 0.1)
    assert len(drawn_prices(samples, Visits())) == len(samples)
    assert drawn_prices({**samples, ("verify", 2, 64): (0.01, 0.01)}, Visits()) == {}


def test_noise_of_a_ratio_is_that_of_both_prices_and_falls_with_the_root_of_visits() -> None:
    """The lower quartile of normal noise is 1.36 times as noisy as a mean."""
    widths = []
    for num_visits in (40, 640):
        found = [
            list(neighbour_half_widths(noisy_samples(np.random.default_rng(seed), num_visits, 0.1), Visits()).values())
            for seed in range(5)
        ]
        widths.append(float(np.mean(found)))
    assert widths[0] == pytest.approx(2.04 * math.sqrt(2) * 1.36 * 0.1 / math.sqrt(40), rel=0.25)
    assert widths[0] / widths[1] == pytest.approx(4, rel=0.25)


@pytest.mark.parametrize(("now", "samples", "expected"), [(0.02, 6, 24), (0.01, 6, 6), (0.005, 6, 2), (0.0, 6, 2)])
def test_samples_grow_with_the_square_of_what_is_asked(now: float, samples: int, expected: int) -> None:
    assert samples_needed(now, samples, 0.01, Visits(2, 8)) == expected
    assert samples_needed(now, samples, 0.01, Visits(5, 8)) == 5 * math.ceil(expected / 5)


def test_the_cell_with_the_fewest_samples_counts() -> None:
    assert fewest_samples({("draft", 0, 16): (1.0, 2.0), ("draft", 1, 16): (1.0,), (PLAIN, 0, 16): ()}) == 1
    assert fewest_samples({}) == 0
