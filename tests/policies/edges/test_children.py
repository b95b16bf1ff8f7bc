"""The candidates below nodes, and what is said of a list of them."""

import math

import numpy as np
import oracle
import pytest
from hypothesis import given
from hypothesis import strategies as st
from order_checks import draft_of, rows_strategy

from simlab.policies.edges.children import SPINE, empty_children, entropy_at, fill_marginal


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
        found = entropy_at(children, SPINE, depth)
        assert found == pytest.approx(min(expected, math.log(len(values) + 1)), abs=1e-8)
