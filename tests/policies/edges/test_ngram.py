"""The 3-gram: Witten and Bell's probabilities, as a dictionary and fractions give them."""

import itertools
import math

import numpy as np
import pytest
from counted_texts import counts_of, probability
from depth import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from ngram_oracle import PlainNGram

from simlab.arrays import Ints
from simlab.policies.edges.ngram import (
    MOST_TOKENS,
    UNSEEN,
    NGramCounts,
    add_token,
    counts_from_rows,
    empty_counts,
    key_of,
    log_after,
    region_of,
)
from simlab.policies.edges.ngram_counting import count_texts, counts_of_text

VOCAB = 5
texts_strategy = st.lists(st.lists(st.integers(0, VOCAB - 1), max_size=30), max_size=4)


def ints(values: list[int]) -> Ints:
    return np.array(values, np.int32)


def after(counts: NGramCounts, context: tuple[int, ...], token: int) -> float:
    first, second = (-1, -1, *context)[-2:]
    return probability(counts, first, second, token)


def assert_same(counts: NGramCounts, plain: PlainNGram, tokens: range = range(VOCAB)) -> None:
    for length in range(3):
        for context in itertools.product(tokens, repeat=length):
            for token in tokens:
                expected = float(plain.probability(context, token))
                assert after(counts, context, token) == pytest.approx(expected, rel=1e-13, abs=0)


@settings(max_examples=examples(60, quick=40))
@given(texts_strategy)
def test_it_is_witten_and_bell(texts: list[list[int]]) -> None:
    assert_same(counts_of([ints(text) for text in texts], VOCAB), PlainNGram([((), text) for text in texts], VOCAB))


@settings(max_examples=examples(60, quick=40))
@given(
    st.lists(
        st.tuples(st.lists(st.integers(0, 3), max_size=4), st.lists(st.integers(0, 3), min_size=1, max_size=30)),
        min_size=1,
        max_size=4,
    ),
    st.integers(1, 4),
)
def test_counted_rows_are_the_same_and_rare_ones_leave_the_others_alone(
    texts: list[tuple[list[int], list[int]]], min_count: int
) -> None:
    rows = count_texts([(ints(before), ints(text)) for before, text in texts], VOCAB, min_count)
    assert_same(counts_from_rows(*rows, VOCAB), PlainNGram(texts, VOCAB, min_count))


@given(texts_strategy, st.integers(1, 3))
def test_what_may_follow_sums_to_one(texts: list[list[int]], min_count: int) -> None:
    rows = count_texts([(ints([]), ints(text)) for text in [*texts, [1]]], VOCAB, min_count)
    counts = counts_from_rows(*rows, VOCAB)
    for context in itertools.product(range(-1, VOCAB), range(VOCAB)):
        assert sum(after(counts, context, token) for token in range(VOCAB)) == pytest.approx(1.0, rel=1e-12)


def test_nothing_seen_is_one_in_the_vocabulary() -> None:
    for counts in (empty_counts(VOCAB, 0), counts_of([], VOCAB), counts_of([ints([])], VOCAB)):
        assert {after(counts, context, 3) for context in ((), (1,), (4, 1))} == {1 / VOCAB}


def log_of(counts: NGramCounts, first: int, second: int, token: int) -> float:
    contexts, tokens, logs = counts.logs
    one = region_of(contexts, key_of(-1, second, -1))
    two = region_of(contexts, key_of(first, second, -1)) if first >= 0 and one != UNSEEN else UNSEEN
    return log_after(tokens, logs, two, one, token)


@settings(max_examples=examples(60, quick=40))
@given(texts_strategy, st.integers(1, 3))
def test_logarithms_are_those_of_the_probabilities(texts: list[list[int]], min_count: int) -> None:
    rows = count_texts([(ints([]), ints(text)) for text in [*texts, [1]]], VOCAB, min_count)
    counts = counts_from_rows(*rows, VOCAB)
    for first, second in itertools.product(range(-1, VOCAB), range(VOCAB)):
        # Beyond the vocabulary lies what was never seen.
        for token in range(VOCAB + 3):
            expected = math.log(probability(counts, first, second, token))
            assert log_of(counts, first, second, token) == pytest.approx(expected, rel=1e-14, abs=1e-14)
    assert counts_of([ints([1])], VOCAB).logs.tokens.size == 0


@settings(max_examples=examples(60, quick=40))
@given(
    st.lists(
        st.tuples(st.integers(0, 12), st.lists(st.integers(0, VOCAB - 1), max_size=12), st.sampled_from([VOCAB, 9])),
        min_size=1,
        max_size=12,
    )
)
def test_a_text_that_grows_is_counted_as_a_whole(changes: list[tuple[int, list[int], int]]) -> None:
    text: list[int] = []
    for kept, more, vocab_size in changes:
        # It grows, or an earlier part of it goes on in another way, or it is the same.
        text = [*(text if kept > 8 else text[:kept]), *more]
        found, expected = counts_of_text(ints(text), vocab_size), counts_of([ints(text)], vocab_size)
        assert found.totals.tolist() == expected.totals.tolist()
        for first, second, token in itertools.product(range(-1, VOCAB), range(VOCAB), range(VOCAB)):
            assert probability(found, first, second, token) == probability(expected, first, second, token)


def test_a_text_outgrows_its_table() -> None:
    text = np.random.default_rng(0).integers(50, size=3000, dtype=np.int32)
    for length in range(0, 3000, 250):
        found, expected = counts_of_text(text[:length], 50), counts_of([text[:length]], 50)
        assert found.totals.tolist() == expected.totals.tolist()
        assert (found.slots[:, 0] >= 0).sum() == (expected.slots[:, 0] >= 0).sum() < len(found.slots)


def test_the_largest_ids_do_not_meet() -> None:
    high = MOST_TOKENS - 1
    text = [high, high - 1, high, 0, high, high - 1, 0, 0, high]
    counts, plain = counts_of([ints(text)], MOST_TOKENS), PlainNGram([((), text)], MOST_TOKENS)
    rows = count_texts([(ints([]), ints(text))], MOST_TOKENS)
    assert rows.firsts.max() == rows.thirds.max() == high
    for found in (counts, counts_from_rows(*rows, MOST_TOKENS)):
        for context in ((), (high,), (0,), (high, high - 1), (high - 1, high), (0, high), (high, 0), (0, 0)):
            for token in (0, 1, high - 1, high):
                expected = float(plain.probability(context, token))
                assert after(found, context, token) == pytest.approx(expected, rel=1e-13, abs=0)


def test_the_table_holds_a_text_of_which_nothing_comes_twice() -> None:
    for length in (1, 2, 3, 50, 1000):
        text = np.arange(length, dtype=np.int32)
        counts = empty_counts(length, length)
        for index in range(length):
            add_token(counts, text, index)
        num_keys = int((counts.slots[:, 0] >= 0).sum())
        assert num_keys == length + 2 * max(length - 1, 0) + 2 * max(length - 2, 0)
        assert num_keys < len(counts.slots)
        rows = count_texts([(ints([]), text)], length)
        found = counts_from_rows(*rows, length)
        assert int((found.slots[:, 0] >= 0).sum()) == num_keys < len(found.slots)


@pytest.mark.parametrize("size", [0, -1, MOST_TOKENS + 1])
def test_a_vocabulary_that_no_key_holds_is_refused(size: int) -> None:
    with pytest.raises(ValueError, match="3-gram holds vocabularies"):
        empty_counts(size, 0)
    with pytest.raises(ValueError, match="3-gram holds vocabularies"):
        count_texts([], size)


@pytest.mark.parametrize(
    ("text", "message"), [([VOCAB], "outside the vocabulary"), ([-1], "outside"), ([], "no token")]
)
def test_texts_that_cannot_be_counted_are_refused(text: list[int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        count_texts([(ints([]), ints(text))], VOCAB)
