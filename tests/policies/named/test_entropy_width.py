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

from simlab.grid import path_weight, to_grid
from simlab.policies.artefacts import NoArtefacts
from simlab.policies.composition import Composition
from simlab.policies.edges.children import SPINE, empty_children, entropy_at, fill_marginal
from simlab.policies.named.ddtree import DDTree
from simlab.policies.named.entropy_width import EntropyWidth, WidthCapped
from simlab.policies.orders.width_caps import WidthCaps, bin_caps, coverage_caps, least_prob_caps, proportional_caps
from simlab.policies.parsing.parse import parse_policies
from simlab.testing import check_policy

POLICIES = [
    EntropyWidth(),
    EntropyWidth(budget=1, top_k=1),
    EntropyWidth(budget=12, base_width=2, power=0.5),
    EntropyWidth(budget=20, most_width=3, power=2.0, top_k=8),
    EntropyWidth(budget=30, power=0.0),
    EntropyWidth(budget=30, caps="coverage"),
    EntropyWidth(budget=30, caps="coverage", coverage=0.5, top_k=5, most_width=4),
    EntropyWidth(budget=30, caps="probability", least_prob=0.1),
    EntropyWidth(budget=30, caps="bins"),
    EntropyWidth(budget=30, caps="bins", entropies="0.6163,2.0092", widths="1,3,9", top_k=6),
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
    check_nodes(
        WidthCapped(proportional_caps(budget, power, base, most_width), 64).nodes(draft_of(rows), budget),
        rows,
        expected,
    )


chosen_rows = st.one_of(
    rows_strategy(5, 6, fewest_ranks=1),
    st.integers(0, 2000).map(lambda seed: real_rows(seed, 1 + seed % 7, 2 + seed % 6)),
)


@settings(max_examples=200)
@given(chosen_rows, st.one_of(st.sampled_from([0.0, 0.5, 0.75, 0.8, 0.9, 1.0]), st.floats(0, 1)), st.integers(1, 60))
def test_it_is_best_first_below_a_coverage(rows: list[oracle.Row], coverage: float, most_width: int) -> None:
    widths = shape_oracles.covering_widths(rows, coverage, most_width)
    expected = oracle.best_paths_by_heap(cut(rows, widths), 50)
    check_nodes(WidthCapped(coverage_caps(coverage, most_width), 64).nodes(draft_of(rows), 50), rows, expected)


@settings(max_examples=200)
@given(chosen_rows, st.one_of(st.sampled_from([0.0, 0.05, 0.25, 0.5, 1.0]), st.floats(1e-9, 1)), st.integers(1, 60))
def test_it_is_best_first_above_a_probability(rows: list[oracle.Row], least_prob: float, most_width: int) -> None:
    widths = shape_oracles.likely_widths(rows, least_prob, most_width)
    expected = oracle.best_paths_by_heap(cut(rows, widths), 50)
    check_nodes(WidthCapped(least_prob_caps(least_prob, most_width), 64).nodes(draft_of(rows), 50), rows, expected)


@settings(max_examples=200)
@given(
    st.integers(0, 2000).map(lambda seed: real_rows(seed, 1 + seed % 7, 2 + seed % 6)),
    st.lists(st.tuples(st.floats(0, 2), st.integers(1, 7)), max_size=4, unique_by=lambda one: one[0]),
    st.integers(1, 7),
    st.integers(1, 60),
)
def test_it_is_best_first_in_bins_of_entropy(
    rows: list[oracle.Row], bins: list[tuple[float, int]], widest: int, most_width: int
) -> None:
    entropies = sorted(border for border, _ in bins)
    widths = [*(width for _, width in bins), widest]
    expected = oracle.best_paths_by_heap(
        cut(rows, shape_oracles.binned_widths(rows, entropies, widths, most_width)), 50
    )
    order = WidthCapped(bin_caps(tuple(entropies), tuple(widths), most_width), 64)
    check_nodes(order.nodes(draft_of(rows), 50), rows, expected)


def widths_of(caps: WidthCaps, rows: list[oracle.Row]) -> list[int]:
    """Children of the root, and of its first child, and so on down the spine."""
    nodes = WidthCapped(caps, 64).nodes(draft_of(rows), 9999)
    spine, found = 0, []
    for _ in rows:
        children = np.flatnonzero(nodes.parents == spine)
        found.append(len(children))
        spine = int(children[nodes.ranks[children] == 0][0])
    return found


def test_what_lies_on_a_border() -> None:
    """Three candidates of 1/2, 1/4 and 1/8, as near as the grid comes."""
    row = [(rank, float(to_grid(-(rank + 1) * math.log(2)))) for rank in range(3)]
    half, quarter, eighth = (float(path_weight(value)) for _, value in row)
    for coverage, width in ((0.0, 1), (half, 1), (half + 1e-9, 2), (half + quarter, 2), (half + quarter + eighth, 3)):
        assert widths_of(coverage_caps(coverage, 9), [row] * 2) == [width, width]
    assert widths_of(coverage_caps(1.0, 9), [row]) == [3]
    for least_prob, width in ((0.25, 2), (0.2501, 1), (0.9, 1), (0.125, 3), (0.0, 3)):
        assert widths_of(least_prob_caps(least_prob, 9), [row]) == [width]
    marginals = draft_of([row]).drafted()
    children = empty_children(1, 3)
    fill_marginal(children, marginals.ids, marginals.log_probs, np.diff(marginals.offsets), 0, 3)
    border = entropy_at(children, SPINE, 0)
    assert widths_of(bin_caps((border,), (1, 3), 9), [row]) == [1]
    assert widths_of(bin_caps((math.nextafter(border, 0),), (1, 3), 9), [row]) == [3]


def test_caps_as_they_are_typed() -> None:
    (one,) = parse_policies(['entropy-width:caps=bins,entropies="0.3,1.2,2.4",widths="1,4,12,32"'])
    assert one.settings["widths"] == "1,4,12,32"
    keys = {policy.compose(NoArtefacts()).order.key for policy in POLICIES}
    assert len(keys) == len(POLICIES)
    wide = EntropyWidth(budget=9, caps="probability", least_prob=0.0).compose(NoArtefacts())
    assert isinstance(wide.order, WidthCapped)
    assert wide.order.caps.most_width == 9


def test_equal_entropies_have_equal_whole_shares() -> None:
    rows = [[(rank, -3.0) for rank in range(12)]] * 5
    tree = EntropyWidth(budget=5 * 7).select(draft_of(rows))
    assert sum(tree.parents == 0) == 7
    sure = [[(rank, 0.0 if rank == 0 else -255.0) for rank in range(12)]] * 5
    assert sum(WidthCapped(proportional_caps(10, 1.0, 1, 10), 64).nodes(draft_of(sure), 999).parents == 0) == 2


def test_a_small_budget_leaves_the_base_width() -> None:
    rows = real_rows(3, 7, 9)
    nodes = WidthCapped(proportional_caps(6, 1.0, 1, 6), 64).nodes(draft_of(rows), 6)
    check_nodes(nodes, rows, shape_oracles.chain(rows)[:6])


@given(rows_strategy(4, 9, fewest_ranks=1), st.integers(1, 9))
def test_an_entropy_is_of_what_is_read_and_one_lump(rows: list[oracle.Row], top_k: int) -> None:
    marginals = draft_of(rows).drafted()
    children = empty_children(len(rows), top_k)
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
    check_nested(WidthCapped(proportional_caps(20, 1.0, 1, 20), 64), draft_of(rows), *sorted((one, other)))


def test_two_budgets_are_two_orders() -> None:
    rows = real_rows(3, 7, 9)
    small, large = (EntropyWidth(budget).select(draft_of(rows)) for budget in (12, 40))
    assert small.parents.tolist() != large.parents.tolist()[: len(small.parents)]
    keys = {EntropyWidth(budget, most_width=5).compose(NoArtefacts()).order.key for budget in (12, 40)}
    assert len(keys) == 2


@pytest.mark.parametrize("seed", range(4))
def test_a_layer_is_its_roots_and_the_engine_its_rounds(seed: int) -> None:
    compositions: list[Composition] = [policy.compose(NoArtefacts()) for policy in POLICIES]
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
        ({"caps": "widest"}, "caps must be one of proportional, coverage, probability, bins"),
        ({"coverage": 1.5}, "coverage must be from 0 to 1"),
        ({"least_prob": -0.1}, "least_prob must be from 0 to 1"),
        ({"entropies": "2,1"}, "entropies must be rising"),
        ({"entropies": "1,inf"}, "entropies must be rising"),
        ({"entropies": "1,x"}, "entropies must be rising"),
        ({"widths": "1,8"}, "widths one whole number more"),
        ({"widths": "1,0,2"}, "widths one whole number more"),
    ],
)
def test_settings_without_sense_are_refused(given: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        EntropyWidth(**given)  # type: ignore[arg-type]
