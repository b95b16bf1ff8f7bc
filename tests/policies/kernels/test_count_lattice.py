"""Places of true paths without trees, against a plain heap: random lists, equal costs, dead ends and empty lists."""

import lattice_oracle
import numpy as np
from depth import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from random_channels import VOCAB, below_lattice, random_lattice

from simlab.policies.kernels.take_lattice import insert_true_by_count, walk_buffers_for
from simlab.policies.orders.node_order import NEVER


@settings(max_examples=examples(500, quick=40))
@given(st.integers(0, 1 << 30), st.integers(0, 40), st.lists(st.integers(0, VOCAB - 1), max_size=6))
def test_the_true_path_stands_where_the_plain_heap_has_it(seed: int, most: int, text: list[int]) -> None:
    generator = np.random.default_rng(seed)
    lattice = random_lattice(generator)
    below, path = below_lattice(lattice), list[int]()
    # Tokens of some path first, so that it is often long.
    while below(tuple(path)) and generator.random() < 0.8:
        offered = below(tuple(path))
        path.append(offered[int(generator.integers(len(offered)))][0])
    places, true = np.full(5, NEVER, np.uint16), np.array([*path, *text], np.int32)
    nodes = lattice_oracle.best_first(below, most)
    assert insert_true_by_count(lattice, true, most, walk_buffers_for(lattice), places) == len(nodes)
    expected = lattice_oracle.true_places(nodes, true.tolist())[:5]
    assert places.tolist() == expected + [NEVER] * (5 - len(expected))
