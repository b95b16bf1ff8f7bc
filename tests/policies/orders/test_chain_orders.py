"""Chains, whole, cut and with branches beside them, against plain Python."""

import itertools
import math
from fractions import Fraction

import numpy as np
import oracle
import pytest
import shape_oracles
from depth import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from order_checks import (
    check_nested,
    check_nodes,
    draft_of,
    paths_of,
    real_rows,
    rows_strategy,
    texts,
)

from simlab.arrays import Doubles
from simlab.grid import path_weight, to_grid
from simlab.policies.named.adaflash import AdaFlash
from simlab.policies.named.chain import Chain
from simlab.policies.named.d2sd_boundary import D2SDBoundary
from simlab.policies.named.spine_gap import SpineGap
from simlab.policies.orders.chain_orders import GAP, MISS, BranchedChain, GreedyPathOrder
from simlab.policies.orders.node_order import NodeOrder, StaticOrder
from simlab.recorded import texts_of

ORDERS: list[NodeOrder] = [
    GreedyPathOrder(),
    BranchedChain(MISS, num_branches=4, below=99),
    BranchedChain(MISS, num_branches=2, below=1),
    BranchedChain(GAP),
]


def misses(rows: list[oracle.Row]) -> list[Fraction]:
    """r(i): the first i tokens are right and the next is not, i from 0."""
    spine = shape_oracles.chain(rows)
    weights = [Fraction(1), *(Fraction(float(path_weight(float(oracle.score(rows, path))))) for path in spine)]
    return [fraction - other for fraction, other in itertools.pairwise(weights)]


def closeness(rows: list[oracle.Row]) -> list[Fraction]:
    """The gap between the first two, turned round, so that the most urgent is the largest."""
    return [Fraction(row[1][1]) - Fraction(row[0][1]) if len(row) > 1 else Fraction(0) for row in rows]


@given(rows_strategy(6, 3), st.integers(0, 9))
def test_a_chain_is_the_first_candidates(rows: list[oracle.Row], budget: int) -> None:
    check_nodes(GreedyPathOrder().nodes(draft_of(rows), budget), rows, shape_oracles.chain(rows)[:budget])


@settings(max_examples=examples(200, quick=40))
@given(
    st.one_of(rows_strategy(6, 3), st.integers(0, 999).map(lambda seed: real_rows(seed, 9, 3))),
    st.integers(0, 6),
    st.integers(0, 6),
    st.integers(0, 40),
)
def test_branches_go_where_they_are_most_urgent(
    rows: list[oracle.Row], num_branches: int, below: int, budget: int
) -> None:
    for measure, urgent in ((MISS, misses(rows)), (GAP, closeness(rows))):
        nodes = BranchedChain(measure, num_branches=num_branches, below=below).nodes(draft_of(rows), budget)
        check_nodes(nodes, rows, shape_oracles.branched(rows, urgent, num_branches, below)[:budget])


def test_of_two_equal_places_the_more_probable_path_goes_first_then_the_deeper() -> None:
    falling = [[(1, -0.5), (2, -1.0)]] * 3
    sure = [[(1, 0.0), (2, -1.0)]] * 3
    assert SpineGap(6).select(draft_of(falling)).parents.tolist()[4:] == [0, 1, 2]
    assert SpineGap(6).select(draft_of(sure)).parents.tolist()[4:] == [2, 1, 0]


def test_the_boundaries_of_a_small_case() -> None:
    rows = [[(1, math.log2(0.5)), (2, -4.0)], [(3, -0.25), (4, -5.0)], [(5, -2.0), (6, -6.0)]]
    tree = D2SDBoundary(boundaries=2).select(draft_of(rows))
    # It breaks at once with 1 - e^-1, behind two with e^-1.25 (1 - e^-2), behind one with e^-1 (1 - e^-0.25).
    assert tree.tokens.tolist() == [5, 1, 3, 5, 2, 3, 5, 6]
    assert tree.parents.tolist() == [-1, 0, 1, 2, 0, 4, 5, 2]


def test_the_default_budget_holds_a_block_of_16() -> None:
    draft = draft_of(real_rows(2, 15, 2))
    assert D2SDBoundary(budget=999).select(draft).num_drafted <= D2SDBoundary().budget == 5 * 15


@given(rows_strategy(5, 3), st.integers(0, 20), st.integers(0, 20), st.sampled_from(ORDERS))
def test_a_smaller_tree_is_the_beginning_of_a_larger_one(
    rows: list[oracle.Row], one: int, other: int, order: NodeOrder
) -> None:
    check_nested(order, draft_of(rows), *sorted((one, other)))


def test_the_scores_of_a_chain_have_no_room_for_more_than_the_block() -> None:
    recorded = next(text for text in texts(0, 9) if len(text.text) > 2)
    assert recorded.rows is not None
    scores = GreedyPathOrder().layer(texts_of([recorded]), Chain().budget, True).scores
    assert scores is not None
    assert scores.shape[1] == recorded.rows.counts.shape[1] + 1


@pytest.mark.parametrize(
    ("make", "given", "said"),
    [
        (Chain, {"length": 0}, "length must be at least 1, or left out"),
        (AdaFlash, {"budget": 0}, "budget must be"),
        (AdaFlash, {"threshold": 1.5}, "threshold must be"),
        (D2SDBoundary, {"budget": 0}, "budget must be"),
        (D2SDBoundary, {"boundaries": -1}, "boundaries must not"),
        (D2SDBoundary, {"below": -1}, "below must not"),
        (SpineGap, {"budget": 0}, "budget must be"),
    ],
)
def test_settings_without_sense_are_refused(make: type, given: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        make(**given)


def test_a_chain_reads_the_first_candidate_alone() -> None:
    assert Chain().needs.top_k == AdaFlash().needs.top_k == 1
    assert D2SDBoundary().needs.top_k == SpineGap().needs.top_k == 2
    assert np.isclose(float(Chain().budget), 2**15)


# One tree for all rounds, against a listing of every tuple of ranks


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
def test_a_smaller_tree_is_the_beginning_of_a_larger_static_one(seed: int, one: int, other: int) -> None:
    check_nested(ORDER, draft_of(real_rows(seed, 5, 4)), *sorted((one, other)))


@pytest.mark.parametrize(
    "table", [np.zeros(3), np.zeros((0, 3)), np.array([[1.5]]), np.array([[-0.1]]), np.array([[np.nan]])]
)
def test_what_are_no_frequencies_is_refused(table: Doubles) -> None:
    with pytest.raises(ValueError, match="frequencies must be"):
        StaticOrder(table, "t")
