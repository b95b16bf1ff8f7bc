"""The convex view against solvers of other kinds, its optimality, and what it does to a policy that stops early."""

import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from made_up_costs import random_table

from simlab.arrays import Doubles
from simlab.cost import GRID_STAGES, PLAIN, CostTable
from simlab.errors import PolicyError
from simlab.policies.costs.curves import closest_convex, convex_view, cost_in_view, name_and_view
from simlab.studies.inputs.prices import cost_table_of
from simlab.traces.artefacts.cost import packaged_cost_files, read_cost_file

CURVES = st.integers(1, 7).flatmap(lambda size: arrays(np.float64, size, elements=st.integers(0, 20).map(float)))


def is_convex_and_rises(curve: Doubles) -> bool:
    slack, slopes = 1e-9 * max(1.0, float(curve.max())), np.diff(curve)
    return bool(np.all(slopes >= -slack) and np.all(np.diff(slopes) >= -slack) and np.all(curve >= -slack))


def by_trying_all(curve: Doubles) -> Doubles:
    """The closest of the least-squares fits with every choice of hinges, among those whose weights are not negative."""
    numbers = np.arange(len(curve))
    columns = [np.ones(len(curve)), *(np.maximum(numbers - at, 0.0) for at in range(len(curve) - 1))]
    best, least = np.zeros(len(curve)), float(curve @ curve)
    for size in range(1, len(columns) + 1):
        for chosen in itertools.combinations(columns, size):
            basis = np.stack(chosen, axis=1)
            weights = np.linalg.lstsq(basis, curve, rcond=None)[0]
            if np.all(weights >= -1e-9):
                fit = np.asarray(basis @ weights, np.float64)
                error = float(((fit - curve) ** 2).sum())
                if error < least - 1e-12:
                    best, least = fit, error
    return best


@given(CURVES)
def test_it_is_the_best_of_all_choices_of_hinges(curve: Doubles) -> None:
    found = closest_convex(curve)
    assert is_convex_and_rises(found)
    np.testing.assert_allclose(found, by_trying_all(curve), atol=1e-7)


def test_on_measured_prices_no_hinge_would_bring_it_closer() -> None:
    """Karush, Kuhn and Tucker: more of a hinge helps nowhere, and of a hinge that is used neither does less."""
    cost = cost_table_of(read_cost_file(packaged_cost_files()[0]))
    numbers = np.arange(cost.most_drafted + 1)
    for curve, found in zip(cost.seconds["verify"], convex_view(cost).seconds["verify"], strict=True):
        left = curve - found
        hinges = np.stack([np.maximum(numbers - at, 0) for at in range(len(numbers) - 1)])
        scale = np.linalg.norm(hinges, axis=1) * np.linalg.norm(curve)
        gains = hinges @ left / scale
        assert abs(left.sum()) < 1e-9 * curve.sum()
        assert gains.max() < 1e-9
        used = np.concatenate([[found[1] - found[0]], np.diff(found, n=2)]) > 1e-9 * curve.max()
        assert used.sum() >= 3
        assert np.abs(gains[used]).max() < 1e-9
        assert np.abs(left).max() < 0.2 * curve.max()


@given(arrays(np.float64, 12, elements=st.floats(0, 1)), st.floats(0, 5))
def test_what_is_convex_stays(bending: Doubles, base: float) -> None:
    curve = base + np.concatenate([[0.0], np.cumsum(np.cumsum(bending))])
    np.testing.assert_allclose(closest_convex(curve), curve, atol=1e-7 * max(1.0, curve.max()))


def test_a_staircase_and_a_fall_by_hand() -> None:
    assert closest_convex(np.array([3.0, 1.0])).tolist() == pytest.approx([2.0, 2.0])
    assert closest_convex(np.array([1.0, 2.0, 2.0])).tolist() == pytest.approx([7 / 6, 10 / 6, 13 / 6])
    assert closest_convex(np.zeros(3)).tolist() == [0.0, 0.0, 0.0]
    assert closest_convex(np.array([2.0])).tolist() == [2.0]


@given(st.integers(0, 10**6), st.data())
def test_a_table_is_convex_at_every_context(seed: int, data: st.DataObject) -> None:
    cost = random_table(np.random.default_rng(seed))
    view = convex_view(cost)
    context = data.draw(st.integers(0, cost.longest_context))
    rounds = np.sum([view.curve(stage, context) for stage in GRID_STAGES], axis=0)
    assert is_convex_and_rises(rounds)
    np.testing.assert_array_equal(view.seconds[PLAIN], cost.seconds[PLAIN])
    assert view.cost_id != cost.cost_id
    assert convex_view(cost) is view
    assert cost_in_view(cost, "raw") is cost
    assert cost_in_view(cost, "convex") is view


def test_ids_name_the_prices_and_the_view() -> None:
    first, second = (random_table(np.random.default_rng(seed)) for seed in (1, 2))
    other = CostTable("other", second.contexts, second.seconds)
    assert convex_view(first).cost_id == convex_view(second).cost_id != convex_view(other).cost_id


def test_names_and_views(tmp_path: Path) -> None:
    assert name_and_view("auto") == ("auto", "raw")
    assert name_and_view("auto:convex") == ("auto", "convex")
    assert name_and_view("runs/a.json:raw") == ("runs/a.json", "raw")
    odd = tmp_path / "a:convex"
    odd.touch()
    assert name_and_view(str(odd)) == (str(odd), "raw")
    with pytest.raises(PolicyError, match=r"'roofline' is no view .*cost_model=roofline"):
        name_and_view("auto:roofline")
