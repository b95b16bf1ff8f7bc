"""Channels in memory: what is refused, and that rows of many roots are those of each."""

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from random_channels import pool_rows, random_pool, random_transitions, transition_rows

from simlab.arrays import Scalar
from simlab.channels import ChannelRows, Pool, PoolRows, TransitionRows, Transitions, join_channels

seeds = st.integers(0, 1 << 30)


def transitions() -> Transitions:
    """Two depths: a row below the root, two below its first two tokens."""
    return Transitions(
        np.array([1, 2], np.int32),
        np.array([7, 8], np.int32),
        np.array([[7, 8, 9], [1, 2, 3], [4, 5, 6]], np.int32),
        np.array([[-0.5, -1.0, -1.0], [0.0, -2.0, -3.0], [-1.0, -1.0, -1.0]], np.float32),
    )


def pool() -> Pool:
    """Two children of the root, the second of them with two of its own."""
    return Pool(
        np.array([4, 5, 4, 6], np.int32),
        np.array([0, 0, 2, 2], np.int32),
        np.array([-0.5, -1.0, -0.25, -0.25], np.float32),
        np.array([False, True, False, False]),
    )


def assert_equal(one: object, other: object) -> None:
    assert type(one) is type(other)
    for field in fields(one):  # type: ignore[arg-type]
        np.testing.assert_array_equal(getattr(one, field.name), getattr(other, field.name), err_msg=field.name)


def changed(array: npt.NDArray[Scalar], place: int | tuple[int, int], value: float) -> npt.NDArray[Scalar]:
    other = array.copy()
    other[place] = value
    return other


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda t: {"ids": t.ids.astype(np.int64)}, "must be int32, int32, int32, float32; got int32, int32, int64"),
        (lambda t: {"ids": t.ids[:, :2]}, "do not fit"),
        (lambda t: {"ids": t.ids[0], "log_probs": t.log_probs[0]}, "do not fit"),
        (lambda t: {"ids": t.ids[:2], "log_probs": t.log_probs[:2]}, "promises 3 rows; got 2, below 2 tokens"),
        (lambda t: {"previous": t.previous[:1]}, "promises 3 rows; got 3, below 1 tokens"),
        (lambda t: {"num_rows": np.array([2, 1], np.int32)}, "the first depth has one row"),
        (lambda t: {"num_rows": np.array([1, 3, -1], np.int32)}, "none has fewer than 0"),
        (lambda t: {"num_rows": np.empty(0, np.int32)}, "the first depth has one row"),
        (lambda t: {"log_probs": changed(t.log_probs, (1, 1), -4.0)}, "must not rise"),
        (lambda t: {"log_probs": changed(t.log_probs, (0, 0), 2.0**-16)}, "at most 0"),
        (lambda t: {"log_probs": changed(t.log_probs, (2, 2), np.nan)}, "must not rise"),
    ],
)
def test_transitions_that_do_not_fit_are_refused(change: Callable[[Transitions], dict[str, Any]], said: str) -> None:
    one = transitions()
    with pytest.raises(ValueError, match=said):
        replace(one, **change(one))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda p: {"expanded": p.expanded.astype(np.uint8)}, "float32, bool; got int64, int32, int32, float32, uint8"),
        (lambda p: {"tokens": p.tokens[:3]}, "must be flat and of 3 nodes"),
        (lambda p: {"parents": p.parents[:3]}, "must be flat and of 4 nodes"),
        (lambda p: {"parents": changed(p.parents, 0, 1)}, "parents must come before children"),
        (lambda p: {"parents": changed(p.parents, 0, -1)}, "parents must come before children"),
        (lambda p: {"parents": changed(p.parents, 3, 4)}, "parents must come before children"),
        (lambda p: {"parents": changed(p.parents, 3, 1)}, "and be expanded"),
        (lambda p: {"parents": changed(p.parents, 3, 0)}, "children stand together"),
        (lambda p: {"expanded": changed(p.expanded, 1, False)}, "and be expanded"),
        (lambda p: {"log_probs": changed(p.log_probs, 3, -0.125)}, "not rise"),
        (lambda p: {"log_probs": changed(p.log_probs, 2, 0.5)}, "at most 0"),
        (lambda p: {"log_probs": changed(p.log_probs, 1, np.nan)}, "not rise"),
    ],
)
def test_pools_that_do_not_fit_are_refused(change: Callable[[Pool], dict[str, Any]], said: str) -> None:
    one = pool()
    with pytest.raises(ValueError, match=said):
        replace(one, **change(one))


def test_a_pool_begins_anew_at_each_root() -> None:
    """Node numbers, first scores and parents of one pool say nothing of the next."""
    one = pool()
    rows = pool_rows([one, one])
    assert_equal(rows.row(1, 4), one)
    # The same nodes as one pool would have parents that are no parents.
    with pytest.raises(ValueError, match="children stand together"):
        PoolRows(np.array([8], np.int64), rows.tokens, rows.parents, rows.log_probs, rows.expanded)


def test_the_first_of_transitions() -> None:
    one = transitions()
    assert one.depth == 2
    cut = one.first(1, 2)
    assert cut.num_rows.tolist() == [1, 1]
    assert cut.previous.tolist() == [7]
    assert cut.ids.tolist() == [[7, 8], [1, 2]]
    assert cut.log_probs.tolist() == [[-0.5, -1.0], [0.0, -2.0]]
    assert_equal(one.first(9, 9), one)


@given(seeds, st.integers(1, 6), st.integers(0, 6), st.integers(1, 6), st.integers(0, 6))
def test_cutting_twice_is_cutting_to_the_smaller(seed: int, one: int, few: int, other: int, many: int) -> None:
    whole = random_transitions(np.random.default_rng(seed), 3, 5)
    assert_equal(whole.first(one, few).first(other, many), whole.first(min(one, other), min(few, many)))


def parts_of(seed: int, kind: str) -> list[Transitions] | list[Pool]:
    generator = np.random.default_rng(seed)
    if kind == "transitions":
        return [random_transitions(generator, 3, 4) for _ in range(5)]
    return [random_pool(generator, 12) for _ in range(5)]


def together(parts: list[Transitions] | list[Pool]) -> ChannelRows:
    transitions = [part for part in parts if isinstance(part, Transitions)]
    return (
        transition_rows(transitions) if transitions else pool_rows([part for part in parts if isinstance(part, Pool)])
    )


@pytest.mark.parametrize("kind", ["transitions", "pool"])
@given(seeds, st.integers(0, 5), st.integers(0, 5))
def test_rows_of_many_roots_are_those_of_each(kind: str, seed: int, one: int, other: int) -> None:
    parts, (first, last) = parts_of(seed, kind), sorted((one, other))
    rows = together(parts)
    starts = rows.starts()
    assert len(rows) == 5
    assert starts.dtype == np.int64
    for t, found in enumerate(rows.rows()):
        assert_equal(found, parts[t])
        assert_equal(rows.row(t, int(starts[t])), parts[t])
    part = rows.part(first, last, starts)
    assert len(part) == last - first
    for found, expected in zip(part.rows(), parts[first:last], strict=True):
        assert_equal(found, expected)
    for field in fields(part):
        array = getattr(part, field.name)
        assert array.size == 0 or np.shares_memory(array, getattr(rows, field.name))


@pytest.mark.parametrize("kind", ["transitions", "pool"])
@given(seeds, st.integers(1, 4))
def test_joined_rows_are_those_of_all(kind: str, seed: int, at: int) -> None:
    rows = together(parts_of(seed, kind))
    starts = rows.starts()
    halves: list[ChannelRows] = [rows.part(0, at, starts), rows.part(at, 5, starts)]
    assert_equal(join_channels(halves), rows)
    assert join_channels([rows]) is rows


def test_what_cannot_be_joined_is_refused() -> None:
    rows = transition_rows([transitions()])
    mixed: list[list[ChannelRows]] = [[], [rows, pool_rows([pool()])]]
    for parts in mixed:
        with pytest.raises(ValueError, match="expected rows of one channel"):
            join_channels(parts)
    narrow = transition_rows([transitions().first(9, 2)])
    with pytest.raises(ValueError):  # noqa: PT011 - whatever says it first
        join_channels([rows, narrow])


def test_rows_are_checked_as_one_root_is() -> None:
    one = transitions()
    with pytest.raises(ValueError, match="must not rise"):
        TransitionRows(np.array([[1, 2]], np.int32), one.previous, one.ids, changed(one.log_probs, (1, 1), -4.0))
