"""From samples to prices: quartiles, ratios to plain decoding within visits, and what noise does to both."""

import math
import statistics
from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simlab.cost import GRID_STAGES, PLAIN, Visits
from simlab.policies.costs.cell_prices import (
    NUM_DRAWS,
    Cell,
    cell_prices,
    drawn_prices,
    half_width,
    ratio_half_widths,
)

APART, PAIRED = Visits(3, 3), Visits(3, 3, paired=True)


def quartile(seconds: Sequence[float]) -> float:
    """The lower quartile, straight between the two nearest samples."""
    rising, place = sorted(seconds), (len(seconds) - 1) / 4
    low = math.floor(place)
    share = place - low
    return rising[low] * (1 - share) + rising[min(low + 1, len(rising) - 1)] * share


def plain_oracle(samples: Mapping[Cell, Sequence[float]], context: int) -> float:
    return quartile(
        [one for (stage, _, where), some in samples.items() for one in some if (stage, where) == (PLAIN, context)]
    )


def paired_oracle(samples: Mapping[Cell, Sequence[float]], cell: Cell, visits: Visits) -> float:
    """Plain decoding's price times the median of visits' ratios of the fastest round to the fastest step."""
    stage, n, context = cell
    rounds = list(zip(*(samples[one, n, context] for one in GRID_STAGES), strict=True))
    steps = samples[PLAIN, n, context]
    ratios = []
    for visit in range(len(rounds) // visits.rounds):
        fastest = min(rounds[visit * visits.rounds : (visit + 1) * visits.rounds], key=sum)
        beside = steps[visit * visits.steps : (visit + 1) * visits.steps]
        ratios.append(fastest[GRID_STAGES.index(stage)] / min(beside))
    return float(plain_oracle(samples, context) * statistics.median(ratios))


def made_up(seed: int, num_visits: int, visits: Visits = PAIRED, noise: float = 0.2) -> dict[Cell, tuple[float, ...]]:
    """Samples of two contexts and three numbers of drafted tokens; each visit is slowed, and each round besides."""
    generator = np.random.default_rng(seed)
    samples: dict[Cell, tuple[float, ...]] = {}
    for context in (10, 20):
        for n in (0, 4, 9):
            slowed = np.exp(generator.normal(0, 0.5, num_visits))[:, None]
            rounds = np.exp(generator.normal(0, noise, (num_visits, visits.rounds)))
            for stage in GRID_STAGES:
                seconds = (n + 2) * slowed * rounds * np.exp(generator.normal(0, noise / 100, rounds.shape))
                samples[stage, n, context] = tuple(seconds.ravel().tolist())
            if visits.paired or n == 0:
                seconds = slowed * np.exp(generator.normal(0, noise, (num_visits, visits.steps)))
                samples[PLAIN, n, context] = tuple(seconds.ravel().tolist())
    return samples


@given(st.integers(0, 10**6), st.integers(1, 7))
def test_paired_prices_are_ratios_within_visits(seed: int, num_visits: int) -> None:
    samples = made_up(seed, num_visits)
    prices = cell_prices(samples, PAIRED)
    assert set(prices) == set(samples)
    for cell in samples:
        oracle = plain_oracle(samples, cell[2]) if cell[0] == PLAIN else paired_oracle(samples, cell, PAIRED)
        assert prices[cell] == pytest.approx(oracle, rel=1e-12)


@given(st.integers(0, 10**6), st.integers(1, 7))
def test_prices_of_cells_timed_apart_are_lower_quartiles(seed: int, num_visits: int) -> None:
    samples = made_up(seed, num_visits, APART)
    for cell, price in cell_prices(samples, APART).items():
        assert price == pytest.approx(quartile(samples[cell]), rel=1e-12)


@given(st.integers(0, 10**6), st.integers(0, 10**6))
def test_what_slows_whole_visits_leaves_paired_ratios_alone(seed: int, other: int) -> None:
    samples, generator = made_up(seed, 5), np.random.default_rng(other)
    slowed = dict(samples)
    for context in (10, 20):
        for n in (0, 4, 9):
            factors = np.exp(generator.normal(0, 1, 5))
            for stage in (*GRID_STAGES, PLAIN):
                at_once = PAIRED.steps if stage == PLAIN else PAIRED.rounds
                seconds = np.array(samples[stage, n, context]).reshape(5, at_once) * factors[:, None]
                slowed[stage, n, context] = tuple(seconds.ravel().tolist())
    before, after = cell_prices(samples, PAIRED), cell_prices(slowed, PAIRED)
    for stage, n, context in before:
        was, now = (one[stage, n, context] / one[PLAIN, 0, context] for one in (before, after))
        assert now == pytest.approx(was, rel=1e-9)


def test_a_disturbed_visit_moves_no_price() -> None:
    samples = made_up(3, 7, noise=0.0)
    before = cell_prices(samples, PAIRED)
    disturbed = {**samples, ("verify", 4, 10): (500.0, 500.0, 500.0, *samples["verify", 4, 10][3:])}
    assert cell_prices(disturbed, PAIRED) == pytest.approx(before)
    alone: dict[Cell, tuple[float, ...]] = {("verify", 0, 10): (1.0, 100.0, 1.1, 1.2, 100.0)}
    assert cell_prices(alone, APART) == {("verify", 0, 10): pytest.approx(1.1)}


def test_equal_samples_have_no_noise() -> None:
    samples = {cell: (float(cell[1] + 1),) * len(some) for cell, some in made_up(0, 4).items()}
    for cell, drawn in drawn_prices(samples, PAIRED).items():
        assert drawn == pytest.approx(np.full(NUM_DRAWS, cell_prices(samples, PAIRED)[cell]))
    assert set(ratio_half_widths(samples, PAIRED).values()) == {0.0}


@pytest.mark.parametrize("visits", [APART, PAIRED])
def test_one_visit_tells_nothing_of_noise(visits: Visits) -> None:
    assert drawn_prices(made_up(0, 1, visits), visits) == {}
    assert drawn_prices({}, visits) == {}
    assert ratio_half_widths(made_up(0, 1, visits), visits) == {}


def test_cells_of_a_sweep_are_drawn_together() -> None:
    """A sweep in which every ratio is half as large again: the prices of all cells rise in the same draws."""
    samples = {cell: (1.0,) * len(some) for cell, some in made_up(0, 6).items()}
    for cell in samples:
        if cell[0] != PLAIN:
            samples[cell] = (*samples[cell][:9], *(1.5 for _ in samples[cell][9:]))
    drawn = drawn_prices(samples, PAIRED)
    rounds = np.array([drawn[cell] for cell in drawn if cell[0] != PLAIN])
    assert len(np.unique(rounds[0])) > 1
    assert np.ptp(rounds, axis=0) == pytest.approx(np.zeros(NUM_DRAWS))


@pytest.mark.parametrize("num_visits", [3, 6, 12])
def test_intervals_of_ratios_hold_the_truth(num_visits: int) -> None:
    """A round takes so many times as long as a token of plain decoding; visits are slowed by up to half."""
    inside = []
    for seed in range(60):
        samples = made_up(seed, num_visits, noise=0.05)
        prices, widths = cell_prices(samples, PAIRED), ratio_half_widths(samples, PAIRED)
        for (n, context), width in widths.items():
            ratio = sum(prices[stage, n, context] for stage in GRID_STAGES) / prices[PLAIN, n, context]
            inside.append(abs(math.log(ratio / (4 * (n + 2)))) <= width)
    assert 0.9 <= np.mean(inside) <= 0.995


def test_half_the_width_is_students() -> None:
    drawn = np.random.default_rng(0).normal(0, 2.0, (NUM_DRAWS, 400))
    assert half_width(drawn).shape == (400,)
    assert float(half_width(drawn).mean()) == pytest.approx(2.0395 * 2.0, rel=0.03)
