"""Trees on lattices against a plain heap: random lists, with equal costs, dead ends and empty lists."""

import lattice_oracle
import numpy as np
from depth import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from random_channels import VOCAB, as_nodes, below_lattice, random_lattice

from simlab.arrays import Doubles, Ints
from simlab.policies.kernels.take_lattice import (
    expand_lattice,
    insert_true_by_token,
    take_lattice,
    true_reach,
)
from simlab.policies.kernels.true_places import DEPTHS, PARENTS, RANKS, TOKENS
from simlab.policies.orders.node_order import NEVER, OrderedNodes

seeds = st.integers(0, 1 << 30)


def nodes_of(tree: Ints, scores: Doubles) -> OrderedNodes:
    return OrderedNodes(tree[TOKENS], tree[PARENTS], tree[DEPTHS], tree[RANKS], scores)


@settings(max_examples=examples(500, quick=40))
@given(seeds, st.integers(0, 60))
def test_it_is_the_plain_heap(seed: int, most: int) -> None:
    lattice = random_lattice(np.random.default_rng(seed))
    nodes = nodes_of(*take_lattice(lattice, 5, most))
    assert as_nodes(nodes) == lattice_oracle.best_first(below_lattice(lattice), most)
    assert (nodes.tokens[0], nodes.parents[0], nodes.scores[0]) == (5, -1, 0.0)


@settings(max_examples=examples(300, quick=40))
@given(seeds, st.integers(0, 60), st.integers(1, 6))
def test_only_the_first_nodes_of_a_depth_have_children(seed: int, most: int, width: int) -> None:
    lattice = random_lattice(np.random.default_rng(seed))
    found = as_nodes(nodes_of(*take_lattice(lattice, 5, most, width)))
    assert found == lattice_oracle.beam(below_lattice(lattice), most, width)


@settings(max_examples=examples(300, quick=40))
@given(seeds, st.integers(0, 60), st.integers(1, 6))
def test_whole_families_are_the_published_loop(seed: int, most: int, width: int) -> None:
    lattice = random_lattice(np.random.default_rng(seed))
    found = as_nodes(nodes_of(*expand_lattice(lattice, 5, most, width)))
    assert found == lattice_oracle.expand_parent(below_lattice(lattice), width, most)


@given(seeds, st.integers(0, 40), st.integers(0, 40))
def test_a_smaller_tree_is_the_beginning_of_a_larger_one(seed: int, one: int, other: int) -> None:
    lattice, (small, large) = random_lattice(np.random.default_rng(seed)), sorted((one, other))
    for few, many in (
        (take_lattice(lattice, 5, small), take_lattice(lattice, 5, large)),
        (expand_lattice(lattice, 5, small, 3), expand_lattice(lattice, 5, large, 3)),
    ):
        np.testing.assert_array_equal(few[0], many[0][:, : few[0].shape[1]])
        np.testing.assert_array_equal(few[1], many[1][: few[1].size])


@settings(max_examples=examples(300, quick=40))
@given(seeds, st.integers(0, 40), st.lists(st.integers(0, VOCAB - 1), max_size=6))
def test_the_true_path_by_its_tokens(seed: int, most: int, text: list[int]) -> None:
    generator = np.random.default_rng(seed)
    lattice = random_lattice(generator)
    below = below_lattice(lattice)
    # Tokens of some path first, so that it is often long.
    path: list[int] = []
    while below(tuple(path)) and generator.random() < 0.8:
        offered = below(tuple(path))
        path.append(offered[int(generator.integers(len(offered)))][0])
    true = np.array([*path, *text], np.int32)
    tree, _ = take_lattice(lattice, 5, most)
    places = np.full(5, NEVER, np.uint16)
    insert_true_by_token(tree, tree.shape[1] - 1, true, places)
    expected = lattice_oracle.true_places(lattice_oracle.best_first(below, most), true.tolist())[:5]
    assert places.tolist() == expected + [NEVER] * (5 - len(expected))
    assert true_reach(lattice, true) == lattice_oracle.reach(below, true.tolist())
