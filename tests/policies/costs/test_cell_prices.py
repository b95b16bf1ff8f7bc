"""From samples to prices: quartiles, ratios to plain decoding within visits, and what noise does to both."""

import math
import statistics
from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracle import seconds_at

from simlab.cost import GRID_STAGES, PLAIN, CostTable, Visits
from simlab.policies.costs.cell_prices import (
    NUM_DRAWS,
    Cell,
    CostSamples,
    cell_prices,
    drawn_prices,
    fewest_samples,
    half_samples,
    half_width,
    neighbour_half_widths,
    num_visits,
    ratio_half_widths,
    samples_needed,
)
from simlab.policies.costs.curves import cost_table
from simlab.policies.costs.roofline import FAR, RIDGES, UNKNOWN_RIDGE, flatness, flatness_warning

APART, PAIRED = Visits(3, 3), Visits(3, 3, paired=True)


def quartile(seconds: Sequence[float]) -> float:
    """The lower quartile, straight between the two nearest samples."""
    rising, value = sorted(seconds), (len(seconds) - 1) / 4
    low = math.floor(value)
    share = value - low
    return rising[low] * (1 - share) + rising[min(low + 1, len(rising) - 1)] * share


def plain_oracle(samples: Mapping[Cell, Sequence[float]], context: int) -> float:
    return quartile(
        [value for (stage, _, where), some in samples.items() for value in some if (stage, where) == (PLAIN, context)]
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


def test_where_a_cell_has_fewer_samples_than_a_visit_brings_each_stands_alone() -> None:
    samples: dict[Cell, tuple[float, ...]] = {("verify", 0, 10): (1.0, 3.0), (PLAIN, 0, 10): (2.0, 2.0, 2.0, 2.0)}
    assert [num_visits(stage, seconds, APART) for (stage, _, _), seconds in samples.items()] == [2, 1]
    assert cell_prices(samples, APART)["verify", 0, 10] == pytest.approx(1.5)
    drawn = drawn_prices({("verify", 0, 10): (1.0, 3.0)}, APART)["verify", 0, 10]
    assert set(drawn.tolist()) == {1.0, 3.0}


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


# Where prices look launch-bound: by the stated rule, on a roofline with and without a floor of launches


def table(verify: list[float] | np.ndarray) -> CostTable:
    """A table with one context and these passes."""
    seconds = {stage: np.zeros((1, len(verify))) for stage in GRID_STAGES}
    seconds |= {"verify": np.array([verify], np.float64), PLAIN: np.ones((1, 1))}
    return CostTable("made-up", np.array([100]), seconds)


def roofline(ridge: float, tokens: int, launches: float) -> CostTable:
    """Weights take 1 second to move; arithmetic overtakes at the ridge; nothing takes less than its launches."""
    sizes = np.arange(1, tokens + 1)
    return table(np.maximum(np.maximum(1.0, sizes / ridge), launches))


@pytest.mark.parametrize("device", [*RIDGES, "made-up"])
def test_a_roofline_is_not_launch_bound_and_is_under_a_high_floor(device: str) -> None:
    ridge = RIDGES.get(device, UNKNOWN_RIDGE)
    tokens = int(2 * ridge)
    assert flatness(roofline(ridge, tokens, 0.0), f"NVIDIA {device}")["looks_launch_bound"] is False
    slow = flatness(roofline(ridge, tokens, 8.0), f"NVIDIA {device}")
    assert slow["looks_launch_bound"] is True
    assert (slow["ratio"], slow["tokens"], slow["context"]) == (1.0, tokens, 100)
    assert flatness_warning(slow).startswith("looks launch-bound: with 100 tokens before it")


@given(st.floats(1.0, 4.0), st.integers(1, 900))
def test_the_rule(ratio: float, tokens: int) -> None:
    found = flatness(table(np.linspace(1.0, ratio, tokens)), "a device that nobody knows")
    if tokens < FAR * UNKNOWN_RIDGE:
        assert found["looks_launch_bound"] is None
    else:
        assert found["looks_launch_bound"] == (found["ratio"] < 0.75 * tokens / UNKNOWN_RIDGE)
    assert bool(flatness_warning(found)) == (found["looks_launch_bound"] is True)


def test_prices_that_end_early_tell_nothing() -> None:
    assert flatness(table([1.0] * 200), "A100")["looks_launch_bound"] is None
    assert flatness(table([1.0] * 242), "A100")["looks_launch_bound"] is True
    assert flatness(table([0.0] * 600), "A100")["looks_launch_bound"] is False


# From samples to a table: measured cells keep their prices, with straight lines between; and tables drawn again


def random_samples(seed: int) -> tuple[list[int], list[int], dict[tuple[str, int, int], tuple[float, ...]]]:
    """Contexts, node counts from 0, and one to five samples in each cell."""
    generator = np.random.default_rng(seed)
    contexts = sorted(generator.choice(np.arange(1, 100), int(generator.integers(1, 5)), replace=False).tolist())
    counts = [0, *sorted(generator.choice(np.arange(1, 40), int(generator.integers(0, 5)), replace=False).tolist())]
    cells = [(stage, n, context) for stage in GRID_STAGES for n in counts for context in contexts]
    cells += [(PLAIN, 0, context) for context in contexts]
    return contexts, counts, {cell: tuple(generator.random(int(generator.integers(1, 6)))) for cell in cells}


@given(st.integers(0, 10**6))
def test_measured_cells_keep_their_price(seed: int) -> None:
    contexts, counts, samples = random_samples(seed)
    cost = cost_table("made-up", contexts, counts, samples)
    assert cost.cost_id == "made-up"
    assert cost.most_drafted == counts[-1]
    for (stage, n, context), price in cell_prices(samples, Visits()).items():
        assert cost.curve(stage, context)[n] == pytest.approx(price, rel=1e-12)


@given(st.integers(0, 10**6), st.booleans())
def test_tables_drawn_again_are_of_prices_drawn_again(seed: int, paired: bool) -> None:
    contexts, counts, samples = random_samples(seed)
    visits = Visits(2, 2, paired)
    if paired:
        samples = {cell: (4 * seconds)[:4] for cell, seconds in samples.items() if cell[0] != PLAIN}
        samples |= {(PLAIN, n, context): (1.0, 2.0, 3.0, 4.0) for n in counts for context in contexts}
    cost, drawn = cost_table("made-up", contexts, counts, samples, visits), drawn_prices(samples, visits)
    assert len(cost.draws) == (NUM_DRAWS if drawn else 0)
    for number, draw in enumerate(cost.draws):
        assert (draw.cost_id, draw.draws) == ("made-up", ())
        for (stage, n, context), prices in drawn.items():
            index = 0 if stage == PLAIN else n
            assert draw.curve(stage, context)[index] == pytest.approx(prices[number], rel=1e-12)


@given(st.integers(0, 10**6), st.data())
def test_between_cells_it_is_straight_both_ways(seed: int, data: st.DataObject) -> None:
    contexts, counts, samples = random_samples(seed)
    cost, prices = cost_table("made-up", contexts, counts, samples), cell_prices(samples, Visits())
    n = data.draw(st.integers(0, counts[-1]))
    context = data.draw(st.integers(0, contexts[-1]))
    for stage in GRID_STAGES:
        grid = {cell[1:]: price for cell, price in prices.items() if cell[0] == stage}
        assert cost.curve(stage, context)[n] == pytest.approx(float(seconds_at(grid, n, context)), rel=1e-9)
    plain = {cell[1:]: price for cell, price in prices.items() if cell[0] == PLAIN}
    assert cost.curve(PLAIN, context)[0] == pytest.approx(float(seconds_at(plain, 0, context)), rel=1e-9)


@pytest.mark.parametrize("counts", [[], [1, 2], [0, 2, 2], [0, 3, 1]])
def test_node_counts_must_rise_from_nothing(counts: list[int]) -> None:
    with pytest.raises(ValueError, match="must rise from 0"):
        cost_table("made-up", [10], counts, {})


@pytest.mark.parametrize("gone", [("commit", 0, 10), (PLAIN, 0, 10)])
def test_a_cell_without_samples_is_named(gone: tuple[str, int, int]) -> None:
    samples = {(stage, 0, 10): (1.0,) for stage in (*GRID_STAGES, PLAIN)}
    for damaged in ({cell: seconds for cell, seconds in samples.items() if cell != gone}, {**samples, gone: ()}):
        with pytest.raises(ValueError, match=rf"{gone[0]} has no samples .*\(0, 10\)"):
            cost_table("made-up", [10], [0], damaged)


def test_paired_visits_need_plain_decoding_beside_every_number() -> None:
    samples = {(stage, n, 10): (1.0, 1.0) for stage in (*GRID_STAGES, PLAIN) for n in (0, 3)}
    assert cost_table("made-up", [10], [0, 3], samples, Visits(1, 1, paired=True)).most_drafted == 3
    del samples[PLAIN, 3, 10]
    with pytest.raises(ValueError, match=r"plain has no samples .*\(3, 10\)"):
        cost_table("made-up", [10], [0, 3], samples, Visits(1, 1, paired=True))


# Halves of samples, how well neighbouring sizes are told apart, and how many samples it would take


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
    for number in (40, 640):
        found = [
            list(neighbour_half_widths(noisy_samples(np.random.default_rng(seed), number, 0.1), Visits()).values())
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
