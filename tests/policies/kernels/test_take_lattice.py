"""Trees on lattices against a plain heap: random lists, with equal costs, dead ends and empty lists."""

import itertools

import lattice_oracle
import numpy as np
import pytest
from depth import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from random_channels import VOCAB, as_nodes, below_lattice, random_lattice

from simlab.arrays import Doubles, Ints
from simlab.grid import LOWEST, STEPS_PER_NAT
from simlab.jit import kernel
from simlab.policies.edges.children import ELSEWHERE, SPINE, Children, empty_children
from simlab.policies.edges.lattice import Lattice
from simlab.policies.kernels.gather import gather_paths
from simlab.policies.kernels.take_lattice import (
    EVERY_NODE,
    built_tree,
    expand_into,
    insert_true_by_count,
    insert_true_by_token,
    take_into,
    tree_buffers_for,
    true_reach,
    walk_buffers_for,
)
from simlab.policies.kernels.true_places import grown_limit
from simlab.policies.orders.node_order import NEVER, ordered_nodes

seeds = st.integers(0, 1 << 30)


def take_lattice(lattice: Lattice, most: int, width: int = EVERY_NODE) -> tuple[Ints, Doubles]:
    buffers = tree_buffers_for(most)
    return built_tree(buffers, take_into(lattice, 5, width, buffers))


def expand_lattice(lattice: Lattice, most: int, width: int) -> tuple[Ints, Doubles]:
    buffers = tree_buffers_for(most)
    return built_tree(buffers, expand_into(lattice, 5, width, buffers))


@settings(max_examples=examples(500, quick=40))
@given(seeds, st.integers(0, 60), st.integers(1, 6))
def test_trees_are_those_of_plain_heaps(seed: int, most: int, width: int) -> None:
    """Of all nodes, of children of the first nodes of a depth alone, and of whole families as published."""
    lattice = random_lattice(np.random.default_rng(seed))
    below, nodes = below_lattice(lattice), ordered_nodes(*take_lattice(lattice, most))
    assert as_nodes(nodes) == lattice_oracle.best_first(below, most)
    assert (nodes.tokens[0], nodes.parents[0], nodes.scores[0]) == (5, -1, 0.0)
    beam, families = take_lattice(lattice, most, width), expand_lattice(lattice, most, width)
    assert as_nodes(ordered_nodes(*beam)) == lattice_oracle.beam(below, most, width)
    assert as_nodes(ordered_nodes(*families)) == lattice_oracle.expand_parent(below, width, most)


@given(seeds, st.integers(0, 40), st.integers(0, 40))
def test_a_smaller_tree_is_the_beginning_of_a_larger_one(seed: int, one: int, other: int) -> None:
    lattice, (small, large) = random_lattice(np.random.default_rng(seed)), sorted((one, other))
    for few, many in (
        (take_lattice(lattice, small), take_lattice(lattice, large)),
        (expand_lattice(lattice, small, 3), expand_lattice(lattice, large, 3)),
    ):
        np.testing.assert_array_equal(few[0], many[0][:, : few[0].shape[1]])
        np.testing.assert_array_equal(few[1], many[1][: few[1].size])


@settings(max_examples=examples(500, quick=40))
@given(seeds, st.integers(0, 40), st.lists(st.integers(0, VOCAB - 1), max_size=6))
def test_the_true_path_stands_where_the_plain_heap_has_it(seed: int, most: int, text: list[int]) -> None:
    generator = np.random.default_rng(seed)
    lattice = random_lattice(generator)
    below, path = below_lattice(lattice), list[int]()
    # Tokens of some path first, so that it is often long.
    while below(tuple(path)) and generator.random() < 0.8:
        offered = below(tuple(path))
        path.append(offered[int(generator.integers(len(offered)))][0])
    true, nodes = np.array([*path, *text], np.int32), lattice_oracle.best_first(below, most)
    tree, _ = take_lattice(lattice, most)
    by_token, by_count = np.full((2, 5), NEVER, np.uint16)
    insert_true_by_token(tree, tree.shape[1] - 1, true, by_token)
    assert insert_true_by_count(lattice, true, most, walk_buffers_for(lattice), by_count) == len(nodes)
    expected = lattice_oracle.true_places(nodes, true.tolist())[:5]
    assert by_token.tolist() == by_count.tolist() == expected + [NEVER] * (5 - len(expected))
    assert true_reach(lattice, true) == lattice_oracle.reach(below, true.tolist())


# Paths within a limit of cost, against listing every path there is


compiled = kernel(gather_paths.py_func)  # type: ignore[attr-defined]


def drawn(generator: np.random.Generator, num_depths: int, with_spine: bool) -> Children:
    """Lists of few distinct costs, some of them empty; below the spine they are others, and ranks are in disorder."""
    children = empty_children(num_depths, 6)
    index = 0
    for kind in (SPINE, ELSEWHERE):
        for depth in range(num_depths):
            num = int(generator.integers(0, 6))
            if kind == ELSEWHERE and not with_spine:
                children.starts[kind, depth], children.ends[kind, depth] = (
                    children.starts[SPINE, depth],
                    children.ends[SPINE, depth],
                )
                continue
            children.starts[kind, depth], children.ends[kind, depth] = index, index + num
            children.costs[index : index + num] = np.sort(generator.integers(0, 5, num))
            children.ranks[index : index + num] = generator.permutation(num)
            index += num
    return children


def listed(children: Children, kind: int, first: int, last: int, limit: int) -> list[tuple[tuple[int, ...], int, bool]]:
    """Every path within the limit: its places, its cost, and whether it is on the spine."""
    found = []
    for depth in range(first + 1, last + 1):
        for places in itertools.product(range(6), repeat=depth - first):
            now, cost, exists = kind, 0, True
            for level, index in enumerate(places, first):
                start, end = int(children.starts[now, level]), int(children.ends[now, level])
                exists = exists and start + index < end
                if exists:
                    cost += int(children.costs[start + index])
                    now = now if children.ranks[start + index] == 0 else ELSEWHERE
            if exists and cost <= limit:
                found.append((places, cost, now == SPINE))
    return found


@settings(max_examples=examples(200))
@given(st.integers(0, 10**6), st.integers(1, 4), st.booleans(), st.data())
def test_all_paths_within_the_limit_are_there(
    seed: int, num_depths: int, with_spine: bool, data: st.DataObject
) -> None:
    children = drawn(np.random.default_rng(seed), num_depths, with_spine)
    first = data.draw(st.integers(0, num_depths - 1))
    last = data.draw(st.integers(first + 1, num_depths))
    kind, limit = data.draw(st.sampled_from([SPINE, ELSEWHERE])), data.draw(st.integers(-1, 12))
    expected = listed(children, kind, first, last, limit)
    found = np.empty(data.draw(st.integers(0, 60)), np.int32)
    number, begin, spine = compiled(children, kind, first, last, limit, found)
    if len(expected) > len(found):
        assert number == len(found) + 1
        assert np.all(found <= limit)
        return
    assert number == len(expected)
    assert sorted(found[:number].tolist()) == sorted(cost for _, cost, _ in expected)
    deepest = [(cost, on_spine) for places, cost, on_spine in expected if len(places) == last - first]
    assert sorted(found[begin:number].tolist() if deepest else []) == sorted(cost for cost, _ in deepest)
    on_spine = [cost for cost, is_there in deepest if is_there]
    assert [int(found[spine])] == on_spine if spine >= 0 else not on_spine


# The limit of costs within which the true path is looked for


HIGHEST = int(-LOWEST) * STEPS_PER_NAT * 32


@pytest.mark.parametrize("first", [0, 1, STEPS_PER_NAT // 2, 4 * STEPS_PER_NAT, HIGHEST - 1])
def test_the_dearest_path_is_within_reach_of_a_few_limits(first: int) -> None:
    """As many searches are made as there are limits, so each limit must be well above the one before."""
    limit, tried = first, 0
    while limit < HIGHEST:
        grown = grown_limit(limit, HIGHEST)
        assert limit < grown <= HIGHEST
        limit, tried = grown, tried + 1
    assert tried <= 50


def test_a_limit_is_not_overshot() -> None:
    """Candidates are sent through a map up to the limit, which takes long."""
    assert grown_limit(100 * STEPS_PER_NAT, HIGHEST) <= 126 * STEPS_PER_NAT
    assert grown_limit(HIGHEST, HIGHEST) == HIGHEST
