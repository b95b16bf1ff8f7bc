"""Transitions and pools: cut to less, put together, and how far a pool's trees are those of the whole."""

import itertools
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from depth import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from simlab.channels import (
    FEATURES,
    Branches,
    BranchRows,
    Channel,
    ChannelRows,
    FeatureRows,
    Features,
    Pool,
    TargetLawRows,
    TransitionRows,
    join_channels,
)
from simlab.channels.features import features_to_grid
from simlab.channels.rows import MOST_EXACT, node_depths
from simlab.recorded import RecordedSequence
from simlab.testing.random_texts import random_sequence, synthetic_branches, synthetic_pools, synthetic_transitions

SEEDS = st.integers(0, 10_000)
VOCAB = 14


def random_text(seed: int) -> RecordedSequence:
    return random_sequence(np.random.default_rng(seed), VOCAB - 2)


def arrays_of(one: Channel | ChannelRows) -> list[np.ndarray]:
    return [getattr(one, name) for name in type(one).__slots__]


def assert_same(one: Channel | ChannelRows, other: Channel | ChannelRows) -> None:
    assert type(one) is type(other)
    for ours, theirs in zip(arrays_of(one), arrays_of(other), strict=True):
        np.testing.assert_array_equal(ours, theirs)


@settings(max_examples=examples(40))
@given(seed=SEEDS, previous=st.integers(1, 6), top_k=st.integers(1, 9), tied=st.booleans())
def test_transitions_cut_to_less_are_those_made_with_less(seed: int, previous: int, top_k: int, tied: bool) -> None:
    text = random_text(seed)
    wide, narrow = (synthetic_transitions(text, *size, VOCAB, tied)[0] for size in ((6, 9), (previous, top_k)))
    for row, other in zip(wide.rows(), narrow.rows(), strict=True):
        assert_same(row.first(previous, top_k), other)


@settings(max_examples=examples(40))
@given(seed=SEEDS, depth=st.integers(1, 5), tied=st.booleans())
def test_a_pool_cut_to_fewer_depths_is_that_of_fewer(seed: int, depth: int, tied: bool) -> None:
    text = random_text(seed)
    deep, flat = (synthetic_pools(text, each, 3, VOCAB, 2, 0, tied) for each in (5, depth))
    for row, other in zip(deep.rows(), flat.rows(), strict=True):
        assert_same(row.first(depth), other)


def test_a_pool_in_any_order_is_cut() -> None:
    """The first child's children come before its sister's: nodes that go leave gaps in the numbers."""
    pool = Pool(
        np.array([5, 6, 7, 8, 9], np.int32),
        np.array([0, 0, 1, 3, 2], np.int32),
        np.array([-1, -2, -1, -1, -1], np.float32),
        np.array([True, True, True, False, False]),
    )
    cut = pool.first(2)
    assert (cut.tokens.tolist(), cut.parents.tolist()) == ([5, 6, 7, 9], [0, 0, 1, 2])
    assert cut.expanded.tolist() == [True, True, False, False]


@settings(max_examples=examples(30))
@given(seeds=st.lists(SEEDS, min_size=1, max_size=3))
def test_parts_of_what_was_joined_are_what_was_joined(seeds: list[int]) -> None:
    texts = [random_text(seed) for seed in seeds]
    depths = {text.rows.counts.shape[1] for text in texts if text.rows is not None}
    pools: list[ChannelRows] = [synthetic_pools(text, 3, 2, VOCAB, 2) for text in texts]
    transitions: list[ChannelRows] = [synthetic_transitions(text, 2, 3, VOCAB)[0] for text in texts]
    both = [pools, transitions] if len(depths) == 1 else [pools]
    for parts in both:
        joined = join_channels(parts)
        starts, firsts = joined.starts(), np.cumsum([0, *map(len, parts)]).tolist()
        for part, (first, last) in zip(parts, itertools.pairwise(firsts), strict=True):
            assert_same(joined.part(first, last, starts), part)
        assert len(list(joined.rows())) == len(joined) == firsts[-1]


def test_only_channels_of_one_kind_are_joined() -> None:
    text = random_text(1)
    pools, transitions = synthetic_pools(text, 2, 2, VOCAB, 2), synthetic_transitions(text, 2, 3, VOCAB)[0]
    narrower = synthetic_transitions(text, 2, 2, VOCAB)[0]
    wrong: list[list[ChannelRows]] = [[], [pools, transitions], [transitions, narrower]]
    for parts in wrong:
        with pytest.raises(ValueError, match="expected"):
            join_channels(parts)
    assert (pools.kind, transitions.kind) == ("pool", "transitions")


def exact_by_listing(pool: Pool, depth: int) -> int:
    """Any tree may hang below a node that is not expanded, so what is as probable as such a node is not known."""
    depths, scores = node_depths(pool.parents).tolist(), [0.0]
    for parent, log_prob in zip(pool.parents.tolist(), pool.log_probs.tolist(), strict=True):
        scores.append(scores[parent] + log_prob)
    nodes = zip(scores[1:], depths, pool.expanded.tolist(), strict=True)
    open_ones = [score for score, at, done in nodes if at < depth and not done]
    return MOST_EXACT if not open_ones else 1 + sum(score > max(open_ones) for score in scores[1:])


@settings(max_examples=examples(60))
@given(seed=SEEDS, depth=st.integers(1, 4), beam=st.integers(1, 3), more=st.integers(0, 1), tied=st.booleans())
def test_exact_nodes_is_the_smallest_of_the_roots(seed: int, depth: int, beam: int, more: int, tied: bool) -> None:
    pools = synthetic_pools(random_text(seed), depth, 2, VOCAB, beam, 0, tied)
    expected = min((exact_by_listing(row, depth + more) for row in pools.rows()), default=MOST_EXACT)
    assert pools.exact_nodes(depth + more) == expected


@settings(max_examples=examples(40))
@given(seed=SEEDS, budget=st.integers(1, 12), tied=st.booleans())
def test_up_to_exact_nodes_the_best_nodes_are_those_of_a_larger_pool(seed: int, budget: int, tied: bool) -> None:
    text = random_text(seed)
    small, large = (synthetic_pools(text, 3, 3, VOCAB, None, number, tied) for number in (budget, 100))
    assert small.exact_nodes(3) >= budget
    for row, other in zip(small.rows(), large.rows(), strict=True):
        assert best_paths(row, budget) == best_paths(other, budget)


def best_paths(pool: Pool, budget: int) -> list[tuple[float, tuple[int, ...]]]:
    """The most probable paths, of equal ones by their ranks, beginnings first."""
    paths: list[tuple[float, tuple[int, ...]]] = [(0.0, ())]
    children: dict[int, int] = {}
    for parent, log_prob in zip(pool.parents.tolist(), pool.log_probs.tolist(), strict=True):
        rank = children.get(parent, 0)
        children[parent] = rank + 1
        score, ranks = paths[parent]
        paths.append((score - log_prob, (*ranks, rank)))
    return sorted(paths[1:])[:budget]


def test_what_is_no_channel_is_refused() -> None:
    array = np.ones((1, 1), np.int32)
    with pytest.raises(ValueError, match="first depth has one row"):
        TransitionRows(array * 2, np.zeros(1, np.int32), np.zeros((2, 3), np.int32), np.zeros((2, 3), np.float32))
    with pytest.raises(ValueError, match="promises 1 rows"):
        TransitionRows(array, np.zeros(1, np.int32), np.zeros((2, 3), np.int32), np.zeros((2, 3), np.float32))
    rising = np.array([[-2, -1, 0]], np.float32)
    with pytest.raises(ValueError, match="must not rise"):
        TransitionRows(array, np.zeros(0, np.int32), np.zeros((1, 3), np.int32), rising)
    pools = synthetic_pools(random_text(3), 2, 2, VOCAB, 1)
    with pytest.raises(ValueError, match="must be int64, int32"):
        replace(pools, tokens=pools.tokens.astype(np.int64))
    with pytest.raises(ValueError, match="parents must come before children"):
        replace(pools, parents=pools.parents + np.int32(len(pools.parents)))


@settings(max_examples=examples(60))
@given(seed=SEEDS, deeper=st.integers(-2, 2), top_k=st.integers(1, 9), narrow=st.integers(1, 9), tied=st.booleans())
def test_branches_cut_to_less_are_those_made_with_less(
    seed: int, deeper: int, top_k: int, narrow: int, tied: bool
) -> None:
    text = random_text(seed)
    assert text.rows is not None
    depth = max(1, text.rows.counts.shape[1] + deeper)
    wide, less = (synthetic_branches(text, depth, size, VOCAB, tied)[0] for size in (top_k, min(top_k, narrow)))
    for row, other in zip(wide.rows(), less.rows(), strict=True):
        assert_same(row.first(narrow), other)


@settings(max_examples=examples(60))
@given(seed=SEEDS, deeper=st.integers(0, 2), data=st.data())
def test_some_branches_are_their_own_rows(seed: int, deeper: int, data: st.DataObject) -> None:
    text = random_text(seed)
    assert text.rows is not None
    rows = synthetic_branches(text, text.rows.counts.shape[1] + deeper, 3, VOCAB)[0]
    for one in rows.rows():
        lengths = data.draw(st.lists(st.sampled_from([*one.lengths.tolist(), one.depth])))
        found, starts = one.only(lengths), np.concatenate([[0], np.cumsum(one.depth - one.lengths)])
        wanted = sorted({length for length in lengths if length < one.depth})
        assert found.lengths.tolist() == wanted
        places = [row for length in wanted for row in range(starts[length], starts[length + 1])]
        assert np.array_equal(found.ids, one.ids[places])
        assert np.array_equal(found.log_probs, one.log_probs[places])
        if len(one.lengths) > 1:
            with pytest.raises(ValueError, match="there is no branch behind 0 tokens"):
                one.only([1]).only([0])


@settings(max_examples=examples(40))
@given(seed=SEEDS, cut=st.integers(0, 11))
def test_branches_joined_are_those_of_each(seed: int, cut: int) -> None:
    text = random_text(seed)
    assert text.rows is not None
    rows = synthetic_branches(text, text.rows.counts.shape[1] + 1, 3, VOCAB)[0]
    starts, middle = rows.starts(), min(cut, len(rows))
    parts = [rows.part(0, middle, starts), rows.part(middle, len(rows), starts)]
    assert_same(join_channels(parts), rows)
    few = [row.only([0]) for row in rows.rows()]
    mixed = [
        BranchRows(branches.lengths[None], branches.depth, branches.ids, branches.log_probs) for branches in few
    ] + [rows]
    joined = join_channels(mixed)
    assert isinstance(joined, BranchRows)
    for row, other in zip(joined.rows(), [*few, *rows.rows()], strict=True):
        assert_same(row, other)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"lengths": np.array([1, 0], np.int32)}, "must rise from 0 to below their depth 3"),
        ({"lengths": np.array([0, 3], np.int32)}, "must rise from 0 to below their depth 3"),
        ({"lengths": np.array([0, 2, 1], np.int32)}, "must rise from 0 to below their depth 3"),
        ({"lengths": np.array([0, -1], np.int32)}, "have 3 rows; got 5"),
        ({"lengths": np.array([0, 1])}, "must be int32, int32, float32"),
        ({"ids": np.zeros((4, 2), np.int32)}, "do not fit"),
        ({"log_probs": np.tile(np.array([-2, -1], np.float32), (5, 1))}, "must not rise"),
        ({"log_probs": np.full((5, 2), np.nan, np.float32)}, "must be at most 0"),
    ],
)
def test_branches_that_cannot_be_are_refused(change: dict[str, np.ndarray], words: str) -> None:
    whole = Branches(
        np.array([0, 1], np.int32), 3, np.zeros((5, 2), np.int32), np.tile(np.array([-1, -2], np.float32), (5, 1))
    )
    with pytest.raises(ValueError, match=words):
        replace(whole, **change)  # type: ignore[arg-type]


# Features of roots: any finite numbers on the grid, the same for one root and for many


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
    assert [row.values.tolist() for row in rows.rows()] == values.tolist()
    assert rows.kind == FEATURES
    assert all(row.kind == FEATURES for row in rows.rows())


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
