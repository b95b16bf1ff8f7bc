"""Candidates and ranks against sorting in plain Python."""

import math
from fractions import Fraction

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simlab.sampling.candidates import lowest_keys, ranks_of, top_candidates

Row = list[float]

few_levels = st.sampled_from([0.0, -0.5, -0.5 - 2**-18, -0.5 - 2**-16, -3.0, -254.99999, -255.0, -400.0, -math.inf])
any_level = st.floats(min_value=-300, max_value=0, width=32)
close_levels = st.integers(min_value=0, max_value=300).map(lambda quarter_steps: -8.0 - quarter_steps / 2**17)
rows = (
    st.lists(few_levels, min_size=1, max_size=60)
    | st.lists(any_level, min_size=1, max_size=60)
    | st.lists(close_levels, min_size=1, max_size=60)
)


def grid_steps(log_prob: float) -> int:
    return 255 << 16 if log_prob < -255 else round(-Fraction(log_prob) * 65536)


def order_by_sorting(row: Row) -> list[int]:
    return sorted(range(len(row)), key=lambda token: (grid_steps(row[token]), token))


def as_rows(*values: Row) -> npt.NDArray[np.float32]:
    return np.array(values, np.float32)


@given(rows, st.integers(min_value=0, max_value=70))
def test_candidates_are_the_first_of_the_sorted_vocabulary(row: Row, num_kept: int) -> None:
    table = as_rows(row)
    row = [float(value) for value in table[0]]
    expected = order_by_sorting(row)[:num_kept]
    ids, grid = top_candidates(table, num_kept)
    assert (ids.dtype.name, grid.dtype.name) == ("int32", "float32")
    assert ids.tolist() == [expected]
    assert grid.tolist() == [[-grid_steps(row[token]) / 65536 for token in expected]]
    assert not np.signbit(grid[grid == 0]).any()


@given(rows, st.data())
def test_rank_is_the_place_in_the_sorted_vocabulary(row: Row, data: st.DataObject) -> None:
    table = as_rows(row)
    token = data.draw(st.integers(min_value=0, max_value=len(row) - 1))
    assert ranks_of(table, np.array([token], np.int32)) == order_by_sorting([float(value) for value in table[0]]).index(
        token
    )


@given(
    st.lists(st.integers(min_value=0, max_value=3) | st.integers(min_value=0, max_value=2**32 - 1), min_size=1),
    st.data(),
)
def test_lowest_keys_of_32_bits(values: list[int], data: st.DataObject) -> None:
    wanted = data.draw(st.integers(min_value=0, max_value=len(values)))
    expected = sorted((key, index) for index, key in enumerate(values))[:wanted]
    found = lowest_keys(np.array(values, np.uint32), wanted, 32).tolist()
    assert [(item >> 31, item & 0x7FFFFFFF) for item in found] == expected


def large_rows() -> npt.NDArray[np.float32]:
    rng = np.random.default_rng(5)
    smooth = rng.normal(-12, 3, 5000)
    flat = np.full(5000, -8.5)
    coarse = np.round(rng.normal(-12, 2, 5000), 1)
    masked = np.where(rng.random(5000) < 0.97, -np.inf, smooth)
    return np.minimum([smooth, flat, coarse, masked], 0).astype(np.float32)


@pytest.mark.parametrize("num_kept", [1, 64, 512, 4999, 5000, 6000])
def test_large_vocabularies(num_kept: int) -> None:
    table = large_rows()
    ids, _ = top_candidates(table, num_kept)
    assert ids.tolist() == [order_by_sorting(row)[:num_kept] for row in table.tolist()]


def test_every_candidate_has_its_own_rank() -> None:
    table = large_rows()
    ids, _ = top_candidates(table, 40)
    for rank in range(40):
        assert (ranks_of(table, np.ascontiguousarray(ids[:, rank])) == rank).all()


def test_rows_do_not_touch_each_other_and_need_not_be_contiguous() -> None:
    table = large_rows()
    together, alone = top_candidates(table, 64)[0], [top_candidates(row[np.newaxis], 64)[0][0] for row in table]
    assert (together == np.array(alone)).all()
    assert (top_candidates(np.asfortranarray(table), 64)[0] == together).all()
    assert (top_candidates(table[:, ::2], 64)[0] == top_candidates(table[:, ::2].copy(), 64)[0]).all()


def test_a_token_outside_the_vocabulary_keeps_its_mark() -> None:
    table = as_rows([-1.0, -2.0], [-2.0, -1.0], [-1.0, -1.0])
    assert ranks_of(table, np.array([-1, 0, 1], np.int32)).tolist() == [-1, 1, 1]


@pytest.mark.parametrize("bad", [math.nan, math.inf, 3.0])
def test_what_is_no_log_probability_is_refused(bad: float) -> None:
    table = as_rows([-1.0, -1.0], [-1.0, bad])
    with pytest.raises(ValueError, match="log-softmax"):
        top_candidates(table, 1)
    with pytest.raises(ValueError, match="log-softmax"):
        ranks_of(table, np.array([0, 0], np.int32))


def test_wrong_arguments_are_refused() -> None:
    table = as_rows([-1.0, -2.0])
    with pytest.raises(ValueError, match="float32"):
        top_candidates(table.astype(np.float64), 1)
    with pytest.raises(ValueError, match="negative"):
        top_candidates(table, -1)
    for token in (-2, 2):
        with pytest.raises(ValueError, match="must lie in"):
            ranks_of(table, np.array([token], np.int32))
    with pytest.raises(ValueError, match="int32"):
        ranks_of(table, np.array([0, 1], np.int32))
