"""Features of roots: any finite numbers on the grid, the same for one root and for many."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simlab.channels import FEATURES, FeatureRows, Features, TargetLawRows, join_channels, kind_of
from simlab.channels.branches import features_to_grid

NUMBERS = st.floats(-1e6, 1e6, width=32)


@given(NUMBERS)
def test_the_grid_is_the_nearest_multiple(number: float) -> None:
    on_grid = float(features_to_grid([number])[0])
    assert (on_grid * 65536).is_integer()
    assert abs(on_grid - number) <= 2.0**-17
    assert features_to_grid([on_grid]).tolist() == [on_grid]


@given(st.lists(st.integers(0, 4), min_size=1, max_size=4), st.integers(1, 64), st.integers(0, 99))
def test_rows_taken_apart_and_joined_are_the_same(lengths: list[int], size: int, seed: int) -> None:
    values = features_to_grid(np.random.default_rng(seed).normal(size=(sum(lengths), size)))
    rows, ends = FeatureRows(values), np.cumsum([0, *lengths]).tolist()
    parts = [rows.part(first, last, rows.starts()) for first, last in pairwise(ends)]
    joined = join_channels(parts)
    assert isinstance(joined, FeatureRows)
    assert np.array_equal(joined.values, values)
    assert [one.values.tolist() for one in rows.rows()] == values.tolist()
    assert kind_of(rows) == FEATURES
    assert all(kind_of(one) == FEATURES for one in rows.rows())


@pytest.mark.parametrize(
    ("values", "says"),
    [
        (np.zeros(2), "float32"),
        (np.zeros((1, 2), np.float32), "as many at each root"),
        (np.array([np.nan], np.float32), "finite"),
        (np.array([2.0**-17], np.float32), "grid"),
    ],
)
def test_what_are_no_features(values: np.ndarray, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Features(values)


def test_what_cannot_be_joined() -> None:
    narrow, wide = (FeatureRows(np.zeros((2, size), np.float32)) for size in (1, 2))
    with pytest.raises(ValueError, match="of one size"):
        join_channels([narrow, wide])
    with pytest.raises(ValueError, match="of one channel"):
        join_channels([narrow, TargetLawRows(np.zeros(2, np.float32))])
