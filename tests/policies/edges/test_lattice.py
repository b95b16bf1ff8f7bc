"""Lists of candidates from transitions and pools, list by list, against what their rows say."""

import math

import lattice_oracle
import numpy as np
import oracle
import pytest
from depth import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from order_checks import draft_of, rows_strategy
from random_channels import pool_rows, random_pool, random_transitions, transition_rows

from simlab.channels import PoolRows, TransitionRows
from simlab.policies.edges.children import SPINE, empty_children, entropy_of, fill_marginal
from simlab.policies.edges.lattice import (
    LEAF,
    Lattice,
    PoolLists,
    TransitionLists,
    deepest_node,
    empty_pool_lattice,
    empty_transition_lattice,
    fill_pool,
    fill_transitions,
    find_token,
    lattice_of,
)

EVERY = 1 << 30
seeds = st.integers(0, 1 << 30)


def transition_lists(rows: TransitionRows, most_rows: int, top_k: int) -> TransitionLists:
    return TransitionLists(rows.num_rows, rows.previous, rows.ids, rows.log_probs, rows.starts(), most_rows, top_k)


def pool_lists(rows: PoolRows, deepest: int = EVERY, price: float = 0.0) -> PoolLists:
    return PoolLists(rows.tokens, rows.parents, rows.log_probs, rows.starts(), deepest, price)


def check_same(lattice: Lattice, below: lattice_oracle.Below, most_depths: int) -> int:
    """Every path has the same candidates in both; the length of the longest."""
    longest = 0
    waiting: list[tuple[lattice_oracle.Tokens, int]] = [((), 0)]
    while waiting:
        path, number = waiting.pop()
        longest = max(longest, len(path))
        offered = below(path)
        start, end = (lattice.starts[number], lattice.ends[number]) if number != LEAF else (0, 0)
        assert list(zip(lattice.tokens[start:end], lattice.costs[start:end], strict=True)) == offered
        assert lattice.ranks[start:end].tolist() == list(range(len(offered)))
        assert len(path) < most_depths or not offered
        waiting += [((*path, token), int(lattice.below[start + rank])) for rank, (token, _) in enumerate(offered)]
    return longest


@settings(max_examples=examples(200, quick=40))
@given(seeds, st.integers(1, 4), st.integers(0, 5), st.integers(1, 6), st.integers(1, 6))
def test_transitions_of_many_roots(seed: int, num_depths: int, width: int, most_rows: int, top_k: int) -> None:
    generator = np.random.default_rng(seed)
    parts = [random_transitions(generator, num_depths, width) for _ in range(3)]
    lists = transition_lists(transition_rows(parts), most_rows, top_k)
    lattice = empty_transition_lattice(lists)
    for root, part in enumerate(parts):
        num_lists = fill_transitions(lattice, lists, root)
        assert num_lists == 1 + np.minimum(part.num_rows[1:], most_rows).sum()
        columns = part.num_rows.tolist(), part.previous.tolist(), part.ids.tolist(), part.log_probs.tolist()
        check_same(lattice, lattice_oracle.below_transitions(*columns, most_rows, top_k), num_depths)


@settings(max_examples=examples(200, quick=40))
@given(seeds, st.sampled_from([0.0, 0.002, 0.5]), st.sampled_from([1, 2, EVERY]))
def test_pools_of_many_roots(seed: int, price: float, deepest: int) -> None:
    generator = np.random.default_rng(seed)
    parts = [random_pool(generator, 20) for _ in range(3)]
    lists = pool_lists(pool_rows(parts), deepest, price)
    lattice, longest = empty_pool_lattice(lists), 0
    for root, part in enumerate(parts):
        fill_pool(lattice, lists, root)
        columns = part.tokens.tolist(), part.parents.tolist(), part.log_probs.tolist()
        longest = max(longest, check_same(lattice, lattice_oracle.below_pool(*columns, price, deepest), deepest))
    assert deepest_node(lists) == longest


def test_a_priced_path_costs_its_edges_and_the_price_of_its_depth() -> None:
    values = np.array([-0.5, -0.25, -1.0], np.float32)
    rows = PoolRows(
        np.array([3], np.int64),
        np.array([4, 5, 6], np.int32),
        np.array([0, 1, 2], np.int32),
        values,
        np.array([True, True, False]),
    )
    lists = pool_lists(rows, price=0.002)
    lattice = empty_pool_lattice(lists)
    assert fill_pool(lattice, lists, 0) == 3
    for depth in (1, 2, 3):
        expected = -65536 * float(values[:depth].sum()) + round(65536 * np.log(1 + 0.002 * depth))
        assert lattice.costs[:depth].sum() == expected
    # Without it TAPS's utility is the product alone.
    fill_pool(lattice, lists._replace(price=0.0), 0)
    assert lattice.costs.tolist() == (-65536 * values).tolist()


def test_a_root_without_candidates_has_one_empty_list() -> None:
    lists = pool_lists(pool_rows([random_pool(np.random.default_rng(0), 0)]))
    lattice = empty_pool_lattice(lists)
    assert fill_pool(lattice, lists, 0) == 1
    assert lattice.starts[0] == lattice.ends[0]
    assert deepest_node(lists) == 0


def test_the_first_of_two_rows_below_one_token_is_read() -> None:
    rows = TransitionRows(
        np.array([[1, 2]], np.int32),
        np.array([7, 7], np.int32),
        np.array([[7, 8], [1, 2], [3, 4]], np.int32),
        np.full((3, 2), -1.0, np.float32),
    )
    lists = transition_lists(rows, 16, 16)
    lattice = empty_transition_lattice(lists)
    fill_transitions(lattice, lists, 0)
    assert lattice.below[:2].tolist() == [1, LEAF]
    assert find_token(lattice, 1, 2) == 3
    assert find_token(lattice, 1, 3) == -1


@pytest.mark.parametrize("counts", [[], [0], [2, 3], [2, 0, 3]])
def test_candidates_by_depth_have_two_lists_each(counts: list[int]) -> None:
    num_depths, num = len(counts), sum(counts)
    children = empty_children(num_depths, max([*counts, 0]))
    fill_marginal(children, np.arange(num, dtype=np.int32), np.zeros(num, np.float32), np.array(counts, np.int32), 0, 9)
    lattice = lattice_of(children)
    number = 0
    for depth, count in enumerate(counts):
        start = lattice.starts[number]
        assert lattice.ends[number] - start == count
        after = depth + 1 < num_depths
        expected = [depth + 1 if after else LEAF, *[num_depths + depth + 1 if after else LEAF] * (count - 1)]
        assert lattice.below[start : start + count].tolist() == expected[:count]
        number = depth + 1
    if not counts:
        assert (lattice.starts.tolist(), lattice.ends.tolist()) == ([0], [0])


# The candidates below nodes, and what is said of a list of them


@given(rows_strategy(4, 9, fewest_ranks=1), st.integers(1, 9))
def test_a_lump_of_entropy_is_of_what_is_read_and_one_more(rows: list[oracle.Row], top_k: int) -> None:
    marginals = draft_of(rows).drafted()
    children = empty_children(len(rows), top_k)
    counts = np.diff(marginals.offsets)
    fill_marginal(children, marginals.ids, marginals.log_probs, counts, 0, top_k)
    for depth, row in enumerate(rows):
        values = [value for _, value in row[:top_k]]
        rest = 1 - sum(map(math.exp, values))
        expected = -sum(math.exp(value) * value for value in values) - (rest * math.log(rest) if rest > 0 else 0)
        found = entropy_of(children.costs, children.starts[SPINE, depth], children.ends[SPINE, depth])
        assert found == pytest.approx(min(expected, math.log(len(values) + 1)), abs=1e-8)
