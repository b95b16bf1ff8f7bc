"""Acceptance rates, counted by hand; and choices over batch sizes."""

from collections import Counter
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simlab.analysis.export.batch_choices import batch_ranges
from simlab.analysis.table.summaries import LengthCounts, acceptance_of
from simlab.columns import RoundColumns
from simlab.draft import Prompt
from simlab.errors import SimlabError

ROUNDS = st.lists(st.tuples(st.integers(0, 6), st.booleans()), max_size=12)


def columns(listed: list[tuple[int, bool]]) -> RoundColumns:
    """Rounds by accepted tokens and whether the text ended at one, which needs one."""
    accepted = np.array([accepted for accepted, _ in listed], np.int64)
    clipped = np.array([ended and accepted > 0 for accepted, ended in listed], np.bool_)
    committed = accepted + 1 - clipped
    starts = np.concatenate([[0], np.cumsum(committed)])[:-1].astype(np.int64)
    return RoundColumns(starts, np.full(len(listed), 6), accepted, committed, clipped)


def prompt(name: int) -> Prompt:
    return Prompt(f"p{name}", "ab"[name % 2], 0, 0, np.array([1, 2], np.int32))


@given(st.lists(ROUNDS, min_size=1, max_size=6), st.integers(6, 9))
def test_rates_are_shares_of_rounds(texts: list[list[tuple[int, bool]]], positions: int) -> None:
    listed = [columns(text) for text in texts]
    lengths = [int(length) for one in listed for length in one.num_committed]
    if not lengths:
        with pytest.raises(SimlabError, match="no rounds"):
            acceptance_of((prompt(index), one) for index, one in enumerate(listed))
        return
    found = acceptance_of((prompt(index), one) for index, one in enumerate(listed))
    assert found.pooled.counts == tuple(Counter(lengths)[n] for n in range(max(lengths) + 1))
    marginal, conditional = found.pooled.marginal_rates(positions), found.pooled.conditional_rates(positions)
    shares = [Fraction(sum(length >= n + 2 for length in lengths), len(lengths)) for n in range(positions)]
    assert marginal == tuple(float(share) for share in shares)
    assert 1 + sum(shares) == Fraction(sum(lengths), len(lengths))
    assert found.pooled.acceptance_length == float(1 + sum(shares))
    assert 1 + sum(marginal) == pytest.approx(found.pooled.acceptance_length, rel=1e-14)
    assert np.cumprod(conditional) == pytest.approx(marginal)
    assert found.clipped == sum(int(one.clipped.sum()) for one in listed)
    assert sum(counts.rounds for counts in found.by_dataset.values()) == found.pooled.rounds == len(lengths)
    means = [float(one.num_committed.mean()) for one in listed if one.num_rounds]
    assert found.acceptance_length_macro == pytest.approx(sum(means) / len(means))


def test_rates_are_not_cut_off_and_counts_are_checked() -> None:
    counts = LengthCounts((0, 2, 0, 1))
    assert counts.marginal_rates(2) == (1 / 3, 1 / 3)
    assert counts.conditional_rates(3) == (1 / 3, 1.0, 0.0)
    with pytest.raises(ValueError, match="cut off"):
        counts.marginal_rates(1)
    for bad in ((), (0,), (1, 2), (0, 1, 0)):
        with pytest.raises(ValueError, match="at least one token"):
            LengthCounts(bad)


@given(st.dictionaries(st.integers(1, 60), st.integers(0, 3), min_size=1, max_size=8))
def test_ranges_take_the_choice_of_the_batch_size_below(best: dict[int, int]) -> None:
    ranges = batch_ranges(best)
    assert ranges[0][0] == 1
    assert ranges[-1][1] == max(best)
    assert all(one[1] + 1 == other[0] and one[2] != other[2] for one, other in pairwise(ranges))
    for batch in range(1, max(best) + 1):
        (length,) = [length for first, last, length in ranges if first <= batch <= last]
        below = [priced for priced in best if priced <= batch] or [min(best)]
        assert length == best[max(below)]


def test_ranges_need_a_batch_size() -> None:
    with pytest.raises(ValueError, match="at least one batch size"):
        batch_ranges({})
