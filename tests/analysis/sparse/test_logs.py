"""What a log of one policy's rounds predicts: against lists and loops, and where it must be exact."""

import numpy as np
import pytest
from depth import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from one_depth import of_one_depth
from oracle import Path as Ranks
from oracle import best_paths_by_heap, slow_walk

from simlab.analysis.sparse.logs import (
    ESTIMATORS,
    MEAN,
    NEAREST,
    at_every_root,
    borrowed_rows,
    depends_on_root_alone,
    estimated,
    nearest_rows,
)
from simlab.columns import TextRounds
from simlab.policies.engine.replay import Replay
from simlab.policies.parsing.parse import parse_policies
from simlab.recorded import RecordedSequence, texts_of

TYPED = (
    "chain",
    "chain:length=1/3",
    "ddtree:budget=1/4/9",
    "survival:threshold=0.05",
    "expand-parent:budget=6",
    "spine-gap:budget=5",
)
POLICIES = parse_policies(TYPED)
LOOSE = parse_policies(["ar"])[0].policy


def same_rounds(one: TextRounds, other: TextRounds) -> bool:
    names = ("roots", "num_drafted", "num_accepted", "ends")
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in names)


# --- the oracle: lists of lists, one text at a time


def rows_of(recorded: RecordedSequence, root: int) -> list[list[tuple[int, float]]]:
    assert recorded.rows is not None
    found, place = [], int(recorded.rows.counts[:root].sum())
    for count in recorded.rows.counts[root].tolist():
        ids, log_probs = recorded.rows.ids[place : place + count], recorded.rows.log_probs[place : place + count]
        found.append(list(zip(ids.tolist(), log_probs.tolist(), strict=True)))
        place += count
    return found


def tree_at(recorded: RecordedSequence, root: int, budget: int | None) -> set[tuple[int, ...]]:
    """Token paths of the best tree of a budget; None: those of the chain."""
    rows = rows_of(recorded, root)
    if budget is None:
        whole = next((depth for depth, row in enumerate(rows) if not row), len(rows))
        paths: list[Ranks] = [(0,) * depth for depth in range(1, whole + 1)]
    else:
        paths = best_paths_by_heap(rows, budget)
    return {tuple(rows[depth][rank][0] for depth, rank in enumerate(path)) for path in paths}


def by_hand(
    recorded: RecordedSequence, logged: int | None, wanted: int | None
) -> dict[str, list[tuple[int, int, int]]]:
    """By estimator the rounds as (root, drafted, accepted)."""
    text = recorded.text.tolist()
    last = len(text) - 1
    rows = [start for start, _, _ in slow_walk([tree_at(recorded, t, logged) for t in range(last)], text)]
    trees = [tree_at(recorded, t, wanted) for t in range(last)]

    def accepted(root: int) -> int:
        end = root + 1
        while end <= last and tuple(text[root + 1 : end + 1]) in trees[root]:
            end += 1
        return end - root - 1

    walked, root = [], 0
    while root < last:
        read = min(rows, key=lambda row: (abs(row - root), row))
        taken = min(accepted(read), last - root)
        walked.append((root, len(trees[read]), taken))
        root += taken + 1
    return {MEAN: [(row, len(trees[row]), accepted(row)) for row in rows], NEAREST: walked}


@settings(max_examples=examples(40))
@given(seed=st.integers(0, 2**32), logged=st.sampled_from([None, 1, 4]), wanted=st.sampled_from([None, 1, 3, 40]))
def test_both_estimates_are_those_by_hand(seed: int, logged: int | None, wanted: int | None) -> None:
    sequences = of_one_depth(seed, 3)
    texts = texts_of(sequences)
    typed = ["chain" if one is None else f"ddtree:budget={one}" for one in (logged, wanted)]
    first, second = (parse_policies([one])[0].policy for one in typed)
    recorded = Replay([(first, None)]).rounds(texts)[0]
    (every,) = at_every_root([second], texts)
    firsts = texts.roots.firsts
    for name in ESTIMATORS:
        found, start = estimated(name, every, recorded, firsts), 0
        for place, one in enumerate(sequences):
            part = slice(start, int(found.ends[place]))
            mine = (found.roots[part] - firsts[place], found.num_drafted[part], found.num_accepted[part])
            assert list(zip(*(column.tolist() for column in mine), strict=True)) == by_hand(one, logged, wanted)[name]
            start = int(found.ends[place])


# --- what must hold


@settings(max_examples=examples(40))
@given(seed=st.integers(0, 2**32), number=st.integers(1, 4))
def test_a_log_is_exact_for_its_own_policy(seed: int, number: int) -> None:
    """At its own starts nothing is missing: both estimates are the dense replay, round by round."""
    texts = texts_of(of_one_depth(seed, number))
    policies = [one.policy for one in POLICIES]
    dense = Replay([(one, None) for one in policies]).rounds(texts)
    for every, own in zip(at_every_root(policies, texts), dense, strict=True):
        for name in ESTIMATORS:
            assert same_rounds(estimated(name, every, own, texts.roots.firsts), own)


@settings(max_examples=examples(40))
@given(seed=st.integers(0, 2**32), number=st.integers(1, 4))
def test_a_log_of_every_root_is_exact_for_every_policy(seed: int, number: int) -> None:
    """Plain decoding begins a round at each root, so its log is a dense trace."""
    texts = texts_of(of_one_depth(seed, number))
    policies = [one.policy for one in POLICIES]
    everywhere = Replay([(LOOSE, None)]).rounds(texts)[0]
    dense = Replay([(one, None) for one in policies]).rounds(texts)
    for every, own in zip(at_every_root(policies, texts), dense, strict=True):
        assert same_rounds(estimated(NEAREST, every, everywhere, texts.roots.firsts), own)


@settings(max_examples=examples(40))
@given(seed=st.integers(0, 2**32))
def test_a_walk_commits_each_token_once(seed: int) -> None:
    texts = texts_of(of_one_depth(seed, 3))
    policies = [one.policy for one in POLICIES]
    recorded = Replay([(policies[0], None)]).rounds(texts)[0]
    for every in at_every_root(policies, texts):
        for one in estimated(NEAREST, every, recorded, texts.roots.firsts).columns(texts):
            lasts = (one.positions + one.num_committed).tolist()
            assert one.positions.tolist() == [0, *lasts[:-1]][: len(lasts)]
        sums = [
            part.totals().committed for part in estimated(NEAREST, every, recorded, texts.roots.firsts).columns(texts)
        ]
        assert sums == [len(one.text) - 1 for one in texts.sequences]


@settings(max_examples=examples(40))
@given(seed=st.integers(0, 2**32), logged=st.sampled_from([None, 4]), wanted=st.sampled_from([None, 1, 9]))
def test_borrowed_rows_are_those_by_hand(seed: int, logged: int | None, wanted: int | None) -> None:
    sequences = of_one_depth(seed, 3)
    texts = texts_of(sequences)
    typed = ["chain" if one is None else f"ddtree:budget={one}" for one in (logged, wanted)]
    first, second = (parse_policies([one])[0].policy for one in typed)
    recorded, own = Replay([(first, None), (second, None)]).rounds(texts)
    (every,) = at_every_root([second], texts)
    expected = [[0, 0, 0], [0, 0, 0]]
    for one in sequences:
        text = one.text.tolist()
        last = len(text) - 1
        rows = [start for start, _, _ in slow_walk([tree_at(one, t, logged) for t in range(last)], text)]
        trees = [tree_at(one, t, wanted) for t in range(last)]
        for root, _, committed in slow_walk(trees, text):
            read = min(rows, key=lambda row: (abs(row - root), row))
            end = read + 1
            while end <= last and tuple(text[read + 1 : end + 1]) in trees[read]:
                end += 1
            if read != root:
                sums = expected[read > root]
                for place, value in enumerate((1, min(end - read, last - root), committed)):
                    sums[place] += value
    assert borrowed_rows(every, own, recorded, texts.roots.firsts).tolist() == expected


def test_of_two_rows_as_near_the_earlier_is_read() -> None:
    rounds = TextRounds(np.array([0, 4, 6, 9]), np.zeros(4, np.int64), np.zeros(4, np.int64), np.array([2, 2, 4]))
    found = nearest_rows(rounds, np.array([0, 6, 6, 10]))
    assert found.tolist() == [0, 0, 0, 4, 4, 4, 6, 6, 9, 9]


def test_a_policy_that_remembers_is_refused() -> None:
    assert not depends_on_root_alone(LOOSE)
    with pytest.raises(ValueError, match="earlier rounds"):
        at_every_root([LOOSE], texts_of(of_one_depth(0, 1)))
