"""Best-first trees against a listing of every path, and what follows from being the best."""

import numpy as np
import oracle
import pytest
from depth import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from marginals import marginals_of, paths_of, rows_strategy

from simlab import Marginals
from simlab.grid import path_weight, to_grid
from simlab.policies.named.ddtree import DDTree
from simlab.policies.orders.best_first import best_first, ranks_used
from simlab.policies.orders.node_order import OrderedNodes


def as_lists(nodes: OrderedNodes) -> list[list[float]]:
    integers = (nodes.tokens, nodes.parents, nodes.depths, nodes.ranks)
    return [*(values.tolist() for values in integers), nodes.scores.tolist()]


@settings(max_examples=examples(300, quick=40))
@given(rows_strategy(3, 4), st.integers(0, 90))
def test_it_is_the_listing_of_every_path(rows: list[oracle.Row], budget: int) -> None:
    reachable = rows[: next((depth for depth, row in enumerate(rows) if not row), len(rows))]
    nodes = best_first(5, marginals_of(rows), budget)
    paths = paths_of(nodes)
    assert paths == oracle.best_paths_by_listing(reachable, budget)
    assert nodes.depths.tolist() == [0, *map(len, paths)]
    assert nodes.tokens.tolist() == [5, *(rows[len(path) - 1][path[-1]][0] for path in paths)]
    assert nodes.scores.tolist() == [0.0, *(float(oracle.score(rows, path)) for path in paths)]


@settings(max_examples=examples(60, quick=40))
@given(rows_strategy(31, 40), st.integers(1, 512))
def test_it_is_the_plain_heap(rows: list[oracle.Row], budget: int) -> None:
    assert paths_of(best_first(5, marginals_of(rows), budget)) == oracle.best_paths_by_heap(rows, budget)


@pytest.mark.parametrize("value", [0.0, -1.0])
def test_it_is_the_plain_heap_when_everything_ties(value: float) -> None:
    rows = [[(rank, value) for rank in range(20)] for _ in range(31)]
    assert paths_of(best_first(5, marginals_of(rows), 600)) == oracle.best_paths_by_heap(rows, 600)


@settings(max_examples=examples(60, quick=40))
@given(rows_strategy(3, 3, fewest_ranks=1), st.integers(1, 5))
def test_no_other_tree_of_the_size_has_a_larger_sum(rows: list[oracle.Row], size: int) -> None:
    nodes = best_first(5, marginals_of(rows), size)
    best = path_weight(nodes.scores[1:]).sum()
    for tree in oracle.prefix_closed_sets(rows, len(nodes.scores) - 1):
        scores = [float(oracle.score(rows, path)) for path in tree]
        assert path_weight(np.array(scores)).sum() <= best


@given(rows_strategy(6, 8), st.integers(0, 40), st.integers(0, 40))
def test_a_smaller_tree_is_the_beginning_of_a_larger_one(rows: list[oracle.Row], one: int, other: int) -> None:
    small, large = (best_first(5, marginals_of(rows), budget) for budget in sorted((one, other)))
    assert as_lists(small) == [values[: len(small.tokens)] for values in as_lists(large)]


def kept_rows(whole: Marginals, min_width: int, exact_budget: int) -> Marginals:
    """What a recorder keeps: at each depth the ranks used, and ``min_width`` at least."""
    counts = np.maximum(ranks_used(whole, exact_budget), min_width)
    kept = [whole.at(depth + 1) for depth in range(whole.depth)]
    ids = [ids[:count] for (ids, _), count in zip(kept, counts, strict=True)]
    values = [values[:count] for (_, values), count in zip(kept, counts, strict=True)]
    return Marginals(np.concatenate(ids), np.concatenate(values), np.cumsum([0, *map(len, ids)]).astype(np.int32))


@given(rows_strategy(6, 40, fewest_ranks=1), st.integers(0, 8), st.integers(1, 60), st.data())
def test_kept_candidates_give_the_trees_of_the_whole_vocabulary(
    rows: list[oracle.Row], min_width: int, exact_budget: int, data: st.DataObject
) -> None:
    whole = marginals_of(rows)
    kept = kept_rows(whole, min_width, exact_budget)
    budget = data.draw(st.integers(1, exact_budget))
    assert as_lists(best_first(5, kept, budget)) == as_lists(best_first(5, whole, budget))


def test_kept_candidates_are_exact_at_512() -> None:
    generator = np.random.default_rng(3)
    for spread in (0.3, 1.0, 3.0):
        values = np.sort(generator.normal(size=(7, 2000)) * spread, axis=1)[:, ::-1]
        log_probs = to_grid(values - np.log(np.exp(values).sum(axis=1, keepdims=True)))
        ids = np.concatenate([generator.permutation(2000) for _ in range(7)]).astype(np.int32)
        whole = Marginals(ids, log_probs.ravel(), np.arange(0, 7 * 2000 + 1, 2000, dtype=np.int32))
        kept = kept_rows(whole, 64, 512)
        assert len(kept.ids) <= 7 * 64 + 512
        assert as_lists(best_first(5, kept, 512)) == as_lists(best_first(5, whole, 512))


@given(rows_strategy(5, 9), st.integers(1, 60))
def test_ranks_used_are_those_of_the_tree(rows: list[oracle.Row], budget: int) -> None:
    paths = oracle.best_paths_by_heap(rows, budget)
    expected = [max((p[-1] + 1 for p in paths if len(p) == depth + 1), default=0) for depth in range(len(rows))]
    assert ranks_used(marginals_of(rows), budget).tolist() == expected


def test_the_order_of_a_small_case() -> None:
    half, quarter = -1.0, -2.0
    nodes = best_first(9, marginals_of([[(1, half), (2, quarter)], [(3, half), (4, half)]]), 6)
    assert paths_of(nodes) == [(0,), (0, 0), (0, 1), (1,), (1, 0), (1, 1)]
    assert nodes.parents.tolist() == [-1, 0, 1, 1, 0, 4, 4]


def test_a_budget_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        DDTree(budget=0)
