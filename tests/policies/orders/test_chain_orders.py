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
    real_rows,
    rows_strategy,
    texts,
)

from simlab.grid import path_weight
from simlab.policies.named.adaflash import AdaFlash
from simlab.policies.named.chain import Chain, SpineOrder
from simlab.policies.named.d2sd_boundary import D2SDBoundary
from simlab.policies.named.spine_gap import SpineGap
from simlab.policies.orders.chain_orders import GAP, MISS, BranchedChain
from simlab.policies.orders.node_order import NodeOrder
from simlab.recorded import texts_of

ORDERS: list[NodeOrder] = [
    SpineOrder(),
    BranchedChain(MISS, num_branches=4, below=99),
    BranchedChain(MISS, num_branches=2, below=1),
    BranchedChain(GAP),
]


def misses(rows: list[oracle.Row]) -> list[Fraction]:
    """r(i): the first i tokens are right and the next is not, i from 0."""
    spine = shape_oracles.chain(rows)
    weights = [Fraction(1), *(Fraction(float(path_weight(float(oracle.score(rows, path))))) for path in spine)]
    return [one - other for one, other in itertools.pairwise(weights)]


def closeness(rows: list[oracle.Row]) -> list[Fraction]:
    """The gap between the first two, turned round, so that the most urgent is the largest."""
    return [Fraction(row[1][1]) - Fraction(row[0][1]) if len(row) > 1 else Fraction(0) for row in rows]


@given(rows_strategy(6, 3), st.integers(0, 9))
def test_a_chain_is_the_first_candidates(rows: list[oracle.Row], budget: int) -> None:
    check_nodes(SpineOrder().nodes(draft_of(rows), budget), rows, shape_oracles.chain(rows)[:budget])


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
    recorded = next(one for one in texts(0, 9) if len(one.text) > 2)
    assert recorded.rows is not None
    scores = SpineOrder().layer(texts_of([recorded]), Chain().budget, True).scores
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
