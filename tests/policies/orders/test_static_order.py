"""One tree for all rounds, against a listing of every tuple of ranks."""

import numpy as np
import oracle
import pytest
import shape_oracles
from depth import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from order_checks import check_nested, draft_of, paths_of, real_rows

from simlab.arrays import Doubles
from simlab.grid import to_grid
from simlab.policies.orders.node_order import StaticOrder

TABLE = np.array([[0.5, 0.25, 0.1], [0.25, 0.5, 0.0], [0.5, 0.125, 0.125], [1.0, 0.0, 0.0]])
ORDER = StaticOrder(TABLE, "made-up")

frequencies = st.lists(
    st.lists(st.sampled_from([0.0, 0.125, 0.25, 0.5, 1.0, 0.3]), min_size=3, max_size=3), min_size=1, max_size=4
)


@settings(max_examples=examples(200, quick=40))
@given(frequencies, st.lists(st.integers(0, 5), min_size=1, max_size=5), st.integers(0, 150))
def test_it_is_the_listing_of_every_tuple(table: list[list[float]], counts: list[int], budget: int) -> None:
    rows: list[oracle.Row] = [[(7 * rank, -0.5) for rank in range(count)] for count in counts]
    nodes = StaticOrder(np.array(table), "t").nodes(draft_of(rows), budget)
    expected = shape_oracles.by_frequency(table, counts, budget)
    assert paths_of(nodes) == expected
    assert nodes.tokens.tolist() == [5, *(7 * path[-1] for path in expected)]
    with np.errstate(divide="ignore"):
        logs = to_grid(np.log(np.array(table))).astype(np.float64)
    scores = [sum(float(logs[depth, rank]) for depth, rank in enumerate(path)) for path in expected]
    assert nodes.scores.tolist() == [0.0, *scores]


@given(frequencies, st.integers(0, 150))
def test_its_scores_are_those_of_a_root_with_every_candidate(table: list[list[float]], most: int) -> None:
    order = StaticOrder(np.array(table), "t")
    rows: list[oracle.Row] = [[(rank, -0.5) for rank in range(3)]] * len(table)
    assert order.scores(most).tolist() == order.nodes(draft_of(rows), most).scores.tolist()


def test_it_is_the_same_tree_whatever_the_drafter_says() -> None:
    trees = {tuple(ORDER.nodes(draft_of(real_rows(seed, 5, 4)), 20).parents.tolist()) for seed in range(9)}
    assert len(trees) == 1
    assert ORDER.nodes(draft_of(real_rows(0, 5, 4)), 999).depths.max() == 4


@given(st.integers(0, 50), st.integers(0, 30), st.integers(0, 30))
def test_a_smaller_tree_is_the_beginning_of_a_larger_one(seed: int, one: int, other: int) -> None:
    check_nested(ORDER, draft_of(real_rows(seed, 5, 4)), *sorted((one, other)))


@pytest.mark.parametrize(
    "table", [np.zeros(3), np.zeros((0, 3)), np.array([[1.5]]), np.array([[-0.1]]), np.array([[np.nan]])]
)
def test_what_are_no_frequencies_is_refused(table: Doubles) -> None:
    with pytest.raises(ValueError, match="frequencies must be"):
        StaticOrder(table, "t")
