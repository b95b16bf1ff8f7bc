"""Width caps by entropy, against the shares in plain Python and best-first trees of the rows they cut."""

import math

import numpy as np
import oracle
import pytest
import shape_oracles
from hypothesis import given, settings
from hypothesis import strategies as st
from order_checks import (
    as_rows,
    check_columns,
    check_layer,
    check_nested,
    check_nodes,
    draft_of,
    real_rows,
    rows_strategy,
    texts,
)

from simlab.policies.best_first import DDTree
from simlab.policies.children import SPINE, entropy_at, fill_marginal, room_for_children
from simlab.policies.composition import Composition
from simlab.policies.entropy_width import EntropyCapped, EntropyWidth
from simlab.policies.shelf import EmptyShelf
from simlab.testing import check_policy

POLICIES = [
    EntropyWidth(),
    EntropyWidth(budget=1, top_k=1),
    EntropyWidth(budget=12, base_width=2, power=0.5),
    EntropyWidth(budget=20, most_width=3, power=2.0, top_k=8),
    EntropyWidth(budget=30, power=0.0),
]


def cut(rows: list[oracle.Row], widths: list[int]) -> list[oracle.Row]:
    return [row[:width] for row, width in zip(rows, widths, strict=True)]


@settings(max_examples=200)
@given(
    st.integers(0, 2000).map(lambda seed: real_rows(seed, 1 + seed % 7, 2 + seed % 6)),
    st.integers(1, 60),
    st.sampled_from([0.0, 0.5, 1.0, 2.0]),
    st.integers(1, 3),
    st.integers(1, 60),
)
def test_it_is_best_first_below_the_shares(
    rows: list[oracle.Row], budget: int, power: float, base: int, most_width: int
) -> None:
    widths = shape_oracles.entropy_widths(rows, budget, power, base, most_width)
    expected = oracle.best_paths_by_heap(cut(rows, widths), budget)
    check_nodes(EntropyCapped(budget, power, base, most_width, 64).nodes(draft_of(rows), budget), rows, expected)


def test_equal_entropies_have_equal_whole_shares() -> None:
    rows = [[(rank, -3.0) for rank in range(12)]] * 5
    tree = EntropyWidth(budget=5 * 7).select(draft_of(rows))
    assert sum(tree.parents == 0) == 7
    sure = [[(rank, 0.0 if rank == 0 else -255.0) for rank in range(12)]] * 5
    assert sum(EntropyCapped(10, 1.0, 1, 10, 64).nodes(draft_of(sure), 999).parents == 0) == 2


def test_a_small_budget_leaves_the_base_width() -> None:
    rows = real_rows(3, 7, 9)
    nodes = EntropyCapped(6, 1.0, 1, 6, 64).nodes(draft_of(rows), 6)
    check_nodes(nodes, rows, shape_oracles.chain(rows)[:6])


@given(rows_strategy(4, 9, fewest_ranks=1), st.integers(1, 9))
def test_an_entropy_is_of_what_is_read_and_one_lump(rows: list[oracle.Row], top_k: int) -> None:
    marginals = draft_of(rows).drafted()
    children = room_for_children(len(rows), top_k)
    counts = np.diff(marginals.offsets)
    fill_marginal(children, marginals.ids, marginals.log_probs, counts, 0, top_k)
    for depth, row in enumerate(rows):
        values = [value for _, value in row[:top_k]]
        rest = 1 - sum(map(math.exp, values))
        expected = -sum(math.exp(value) * value for value in values) - (rest * math.log(rest) if rest > 0 else 0)
        found = entropy_at(children, SPINE, depth)
        assert found == pytest.approx(min(expected, math.log(len(values) + 1)), abs=1e-8)


@given(rows_strategy(5, 6), st.integers(0, 30), st.integers(0, 30))
def test_one_order_is_nested(rows: list[oracle.Row], one: int, other: int) -> None:
    check_nested(EntropyCapped(20, 1.0, 1, 20, 64), draft_of(rows), *sorted((one, other)))


def test_two_budgets_are_two_orders() -> None:
    rows = real_rows(3, 7, 9)
    small, large = (EntropyWidth(budget).select(draft_of(rows)) for budget in (12, 40))
    assert small.parents.tolist() != large.parents.tolist()[: len(small.parents)]
    keys = {EntropyWidth(budget, most_width=5).compose(EmptyShelf()).order.key for budget in (12, 40)}
    assert len(keys) == 2


@pytest.mark.parametrize("seed", range(4))
def test_a_layer_is_its_roots_and_the_engine_its_rounds(seed: int) -> None:
    compositions: list[Composition] = [policy.compose(EmptyShelf()) for policy in POLICIES]
    for recorded in texts(seed, 12):
        for one in compositions:
            for most in (1, 7, 40):
                check_layer(one.order, recorded, most)
        check_columns([*POLICIES, *(EntropyWidth(budget, most_width=4) for budget in (9, 13, 25)), DDTree(8)], recorded)


@pytest.mark.parametrize("policy", POLICIES, ids=repr)
def test_it_keeps_the_contract(policy: EntropyWidth) -> None:
    check_policy(policy, draws=15)
    draft = draft_of(real_rows(1, 3, 3))
    assert len(as_rows(draft)) == 3


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"budget": 0}, "budget must be"),
        ({"base_width": 0}, "base_width must be"),
        ({"top_k": 0}, "top_k must be"),
        ({"most_width": 0}, "most_width must be"),
        ({"power": -1.0}, "power must be"),
        ({"power": 17.0}, "power must be"),
    ],
)
def test_settings_without_sense_are_refused(given: dict[str, float], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        EntropyWidth(**given)  # type: ignore[arg-type]
