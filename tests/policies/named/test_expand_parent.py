"""Trees that take all children of a node at once, against the published loop in plain Python."""

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
)

from simlab.policies.named.expand_parent import ExpandParentTree
from simlab.policies.orders.expand_parent import ExpandParent


@settings(max_examples=examples(300, quick=40))
@given(rows_strategy(4, 6), st.integers(1, 7), st.integers(0, 60))
def test_it_is_the_published_loop(rows: list[oracle.Row], width: int, budget: int) -> None:
    expected = shape_oracles.expand_parent(rows, [width] * len(rows), budget)
    check_nodes(ExpandParent(width).nodes(draft_of(rows), budget), rows, expected)


@settings(max_examples=examples(100, quick=40))
@given(rows_strategy(5, 6), st.lists(st.integers(1, 9), min_size=1, max_size=6), st.integers(0, 60))
def test_caps_by_depth(rows: list[oracle.Row], caps: list[int], budget: int) -> None:
    every = [min(cap, 4) for cap in [*caps, *[caps[-1]] * len(rows)]]
    expected = shape_oracles.expand_parent(rows, every, budget)
    check_nodes(ExpandParent(4, tuple(caps)).nodes(draft_of(rows), budget), rows, expected)


@settings(max_examples=examples(100, quick=40))
@given(
    st.one_of(rows_strategy(5, 6), st.integers(0, 999).map(lambda seed: real_rows(seed, 6, 8))),
    st.sampled_from([(1.0, 1.0), (2.0, 1.0), (0.0, 0.0), (-1.0, 0.5), (900.0, 0.25)]),
    st.integers(1, 9),
)
def test_caps_by_gap(rows: list[oracle.Row], gap: tuple[float, float], width: int) -> None:
    expected = shape_oracles.expand_parent(rows, shape_oracles.gap_caps(rows, width, *gap), 40)
    check_nodes(ExpandParent(width, gap=gap).nodes(draft_of(rows), 40), rows, expected)


def test_half_a_candidate_is_rounded_to_even() -> None:
    rows = [[(rank, -1.0 - (rank > 0) - rank / 8) for rank in range(8)]] * 2
    gap = rows[0][0][1] - rows[0][1][1]
    for width, cap in ((7, 4), (5, 2), (3, 2), (1, 1)):
        nodes = ExpandParent(width, gap=(1.0, gap)).nodes(draft_of(rows), 40)
        assert sum(nodes.parents == 0) == cap


@given(rows_strategy(5, 6), st.integers(0, 30), st.integers(0, 30))
def test_a_smaller_tree_is_the_beginning_of_a_larger_one(rows: list[oracle.Row], one: int, other: int) -> None:
    check_nested(ExpandParent(3, gap=(1.0, 1.0)), draft_of(rows), *sorted((one, other)))


def test_caps_as_they_are_typed() -> None:
    assert ExpandParentTree(width=7, caps="7,7,1")._listed() == (7, 7, 1, 7)
    assert ExpandParentTree(width=7, caps="9,2,1..")._listed() == (7, 2, 1)
    assert ExpandParentTree(width=7, caps="3")._listed() == (3, 7)
    assert ExpandParentTree(width=7, caps="1..")._listed() == (1,)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"budget": 0}, "budget must be at least 1"),
        ({"width": 0}, "width must be at least 1"),
        ({"caps": "3,x"}, "caps must be none, top2gap"),
        ({"caps": "3,0"}, "caps must be none, top2gap"),
        ({"caps": ""}, "caps must be none, top2gap"),
        ({"gap_slope": float("inf")}, "must be numbers"),
    ],
)
def test_settings_without_sense_are_refused(given: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        ExpandParentTree(**given)  # type: ignore[arg-type]
