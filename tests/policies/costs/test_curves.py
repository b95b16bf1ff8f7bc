"""From samples to a table: lower quartiles, and straight lines between what was measured."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracle import seconds_at

from simlab.cost import PLAIN, STAGES
from simlab.policies.costs.curves import CostSamples, cells_s, cost_table, undisturbed_s


def random_samples(seed: int) -> tuple[list[int], list[int], dict[tuple[str, int, int], tuple[float, ...]]]:
    """Contexts, node counts from 0, and one to five samples in each cell."""
    generator = np.random.default_rng(seed)
    contexts = sorted(generator.choice(np.arange(1, 100), int(generator.integers(1, 5)), replace=False).tolist())
    counts = [0, *sorted(generator.choice(np.arange(1, 40), int(generator.integers(0, 5)), replace=False).tolist())]
    cells = [(stage, n, context) for stage in STAGES for n in counts for context in contexts]
    cells += [(PLAIN, 0, context) for context in contexts]
    return contexts, counts, {cell: tuple(generator.random(int(generator.integers(1, 6)))) for cell in cells}


@given(st.integers(0, 10**6))
def test_measured_cells_keep_their_price(seed: int) -> None:
    contexts, counts, samples = random_samples(seed)
    cost = cost_table("made-up", contexts, counts, samples)
    assert cost.cost_id == "made-up"
    assert cost.most_drafted == counts[-1]
    for (stage, n, context), seconds in samples.items():
        assert cost.curve(stage, context)[n] == pytest.approx(undisturbed_s(seconds), rel=1e-12)


@given(st.integers(0, 10**6), st.data())
def test_between_cells_it_is_straight_both_ways(seed: int, data: st.DataObject) -> None:
    contexts, counts, samples = random_samples(seed)
    cost = cost_table("made-up", contexts, counts, samples)
    n = data.draw(st.integers(0, counts[-1]))
    context = data.draw(st.integers(0, contexts[-1]))
    for stage in STAGES:
        grid = {cell[1:]: undisturbed_s(seconds) for cell, seconds in samples.items() if cell[0] == stage}
        assert cost.curve(stage, context)[n] == pytest.approx(float(seconds_at(grid, n, context)), rel=1e-9)
    plain = {cell[1:]: undisturbed_s(seconds) for cell, seconds in samples.items() if cell[0] == PLAIN}
    assert cost.curve(PLAIN, context)[0] == pytest.approx(float(seconds_at(plain, 0, context)), rel=1e-9)


def test_a_busy_machine_does_not_move_a_price() -> None:
    samples: CostSamples = {("verify", 0, 10): (1.0, 100.0, 1.1, 1.2, 100.0)}
    assert cells_s("verify", (10,), (0,), samples).tolist() == [[1.1]]


@given(st.lists(st.floats(1e-6, 1e3), min_size=1, max_size=9))
def test_a_price_is_a_lower_quartile(seconds: list[float]) -> None:
    price, rising = undisturbed_s(seconds), sorted(seconds)
    place = (len(seconds) - 1) / 4
    assert rising[int(place)] <= price * (1 + 1e-12)
    assert price <= rising[math.ceil(place)] * (1 + 1e-12)


@pytest.mark.parametrize("counts", [[], [1, 2], [0, 2, 2], [0, 3, 1]])
def test_node_counts_must_rise_from_nothing(counts: list[int]) -> None:
    with pytest.raises(ValueError, match="must rise from 0"):
        cost_table("made-up", [10], counts, {})


@pytest.mark.parametrize("gone", [("commit", 0, 10), (PLAIN, 0, 10)])
def test_a_cell_without_samples_is_named(gone: tuple[str, int, int]) -> None:
    samples = {(stage, 0, 10): (1.0,) for stage in (*STAGES, PLAIN)}
    for damaged in ({cell: seconds for cell, seconds in samples.items() if cell != gone}, {**samples, gone: ()}):
        with pytest.raises(ValueError, match=rf"{gone[0]} has no samples .*\(0, 10\)"):
            cost_table("made-up", [10], [0], damaged)
