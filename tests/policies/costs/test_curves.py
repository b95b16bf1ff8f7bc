"""From samples to a table: measured cells keep their prices, with straight lines between; and tables drawn again."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracle import seconds_at

from simlab.cost import GRID_STAGES, PLAIN, Visits
from simlab.policies.costs.cell_prices import NUM_DRAWS, cell_prices, drawn_prices
from simlab.policies.costs.curves import cost_table


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
    for number, one in enumerate(cost.draws):
        assert (one.cost_id, one.draws) == ("made-up", ())
        for (stage, n, context), prices in drawn.items():
            place = 0 if stage == PLAIN else n
            assert one.curve(stage, context)[place] == pytest.approx(prices[number], rel=1e-12)


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
