"""An engine's rounds beside the trace's: where they part, what is a close call, and what is refused."""

import dataclasses

import numpy as np
import pytest
from chain_texts import predicted, sequence, tables
from hypothesis import given
from hypothesis import strategies as st

from simlab.analysis.crosscheck.predicted import PredictedText, predicted_counts
from simlab.analysis.crosscheck.rounds import compared_lengths, compared_text
from simlab.analysis.crosscheck.verdict import (
    CONFIRMED,
    COUNTERS,
    LENGTHS_DIFFER,
    ROUNDS_DIFFER,
    TEXTS_DIFFER,
    TIES,
    verdict_of,
)
from simlab.analysis.engines.answers import EngineAnswer, EngineError, ServerCounters
from simlab.policies.parsing.parse import parse_policies
from simlab.sequence_replay import rounds

STRICT, LOOSE = 0.0, 10.0


def answered(text: PredictedText, **changed: object) -> EngineAnswer:
    """What an engine answers that does as predicted."""
    rounds = text.rounds()
    accepted = tuple(kept for _, kept in rounds)
    answer = EngineAnswer(
        num_tokens=len(text),
        token_ids=tuple(text.text.tolist()),
        num_rounds=len(rounds),
        accepted=accepted,
        drafted=(text.k,) * len(rounds),
    )
    return dataclasses.replace(answer, **changed)  # type: ignore[arg-type]


def verdict(text: PredictedText, answer: EngineAnswer, ties: float) -> str:
    compared = compared_text(text, answer, len(text), ties)
    return verdict_of([compared], compared_lengths([compared]), None, predicted_counts([text], [len(text)])).name


@given(tables, st.integers(1, 4))
def test_an_engine_that_does_as_predicted_is_confirmed(ranks: list[list[int]], k: int) -> None:
    text = predicted(sequence(ranks), k)
    compared = compared_text(text, answered(text), len(text), STRICT)
    assert compared.differences == ()
    assert compared.num_compared == len(text.rounds()) == compared.num_predicted
    assert verdict(text, answered(text), STRICT) == CONFIRMED


@given(tables, st.data())
def test_one_other_round_is_found_at_its_root(ranks: list[list[int]], data: st.DataObject) -> None:
    text = predicted(sequence(ranks), 4)
    rounds = text.rounds()
    able = [index for index, (_, kept) in enumerate(rounds) if kept]
    if not able:
        return
    index = data.draw(st.sampled_from(able))
    root, kept = rounds[index]
    accepted = [kept for _, kept in rounds[:index]] + [kept - 1]
    at = root + kept
    while at < len(text) - 1:
        accepted.append(int(text.accepted[at]))
        at += accepted[-1] + 1
    answer = answered(text, accepted=tuple(accepted), drafted=(4,) * len(accepted), num_rounds=len(accepted))
    compared = compared_text(text, answer, len(text), STRICT)
    # The last round's accepted tokens behind the end are not looked at.
    ((only),) = compared.differences
    assert (only.root, only.accepted, only.predicted) == (root, kept - 1, kept)
    assert only.margin == pytest.approx(1.0)
    assert verdict(text, answer, STRICT) == ROUNDS_DIFFER
    assert verdict(text, answer, LOOSE) in (TIES, "lengths differ")


def test_rounds_behind_a_parting_are_not_compared() -> None:
    text = predicted(sequence([[0, 0, 1, 0]] * 12), 4)
    ids = list(text.text.tolist())
    ids[5] = 999
    accepted = (2, 1, 0, 0, 0, 0, 0, 0, 0)
    answer = answered(text, token_ids=tuple(ids), accepted=accepted, drafted=(4,) * 9)
    compared = compared_text(text, answer, len(text), LOOSE)
    assert compared.parting == 5
    assert compared.num_compared == 2
    assert compared.differences == ()
    assert verdict(text, answer, LOOSE) == TIES
    assert verdict(text, answer, STRICT) == TEXTS_DIFFER


def test_a_text_that_goes_on_or_ends_early_parts_there() -> None:
    text = predicted(sequence([[1, 1, 1, 1]] * 4), 4)
    longer = answered(text, num_tokens=6, token_ids=(*text.text.tolist(), 7), accepted=(0,) * 5, drafted=(4,) * 5)
    found = compared_text(text, longer, 8, LOOSE)
    assert found.parting == 5
    assert np.isnan(found.gap)
    assert not found.is_tie
    shorter = answered(text, num_tokens=3, token_ids=(0, 1, 2), accepted=(0,) * 2, drafted=(4,) * 2)
    assert compared_text(text, shorter, 8, STRICT).parting == 3


def test_rounds_of_fewer_drafted_tokens_are_held_against_as_many() -> None:
    text = predicted(sequence([[0, 0, 0, 0]] * 6), 4)
    answer = answered(text, accepted=(1, 1, 1), drafted=(1, 1, 1), num_rounds=3)
    found = compared_text(text, answer, len(text), STRICT)
    assert found.num_short == 3
    assert found.differences == ()


@pytest.mark.parametrize(
    ("accepted", "drafted", "words"),
    [
        ((1,), (4,), "make up 3 of its 5 tokens"),
        ((0, 0, 0, 5), (4, 4, 4, 4), "of which 5 were kept"),
        ((0, 0, 0, 0), (4, 4, 4, 9), "the trace drafts 4"),
        ((0, 0, 0, 0), (4, 4), "as many"),
    ],
)
def test_rounds_that_are_none_are_refused(accepted: tuple[int, ...], drafted: tuple[int, ...], words: str) -> None:
    text = predicted(sequence([[1, 1, 1, 1]] * 4), 4)
    with pytest.raises(EngineError, match=words):
        compared_text(text, answered(text, accepted=accepted, drafted=drafted), len(text), STRICT)


def test_counts_alone_allow_a_coarser_verdict() -> None:
    text = predicted(sequence([[0, 1, 1, 1]] * 9), 4)
    answer = EngineAnswer(num_tokens=len(text), token_ids=tuple(text.text.tolist()))
    compared = compared_text(text, answer, len(text), STRICT)
    told = predicted_counts([text], [len(text)])
    counters = ServerCounters(told.num_rounds, told.num_drafted, None, None, told.num_tokens, 1)
    found = verdict_of([compared], None, counters, told)
    assert (found.name, found.level) == (CONFIRMED, COUNTERS)
    off = dataclasses.replace(counters, num_rounds=(told.num_rounds or 0) + 1)
    assert verdict_of([compared], None, off, told).name == LENGTHS_DIFFER
    assert verdict_of([compared], None, None, told).name == LENGTHS_DIFFER


# What a trace predicts of an engine's chain: the rounds of a replay, and the counts of a loop


@given(tables, st.integers(1, 4))
def test_rounds_are_those_of_a_replayed_chain(ranks: list[list[int]], k: int) -> None:
    recorded = sequence(ranks)
    (chain,) = parse_policies([f"chain:length={k}"])
    replayed = [(one.position, one.num_accepted) for one in rounds(chain.policy, recorded)]
    assert list(predicted(recorded, k).rounds()) == replayed


@given(tables, st.integers(1, 4), st.integers(1, 13))
def test_counts_are_those_of_a_loop(ranks: list[list[int]], k: int, num_tokens: int) -> None:
    recorded = sequence(ranks)
    num_tokens = min(num_tokens, len(recorded.text))
    found = predicted_counts([predicted(recorded, k)], [num_tokens])
    assert recorded.rows is not None
    true_ranks, root, accepted, num_open = recorded.rows.true_ranks, 0, [], 0
    while root < num_tokens - 1:
        kept = 0
        while kept < k and root + kept + 1 < len(recorded.text) and true_ranks[root, kept] == 0:
            kept += 1
        num_open += kept < k and root + kept + 1 == len(recorded.text)
        accepted.append(kept)
        root += kept + 1
    assert found.num_rounds == len(accepted)
    assert found.num_drafted == k * len(accepted)
    assert found.num_accepted == sum(accepted)
    assert found.accepted_at == tuple(sum(kept > index for kept in accepted) for index in range(k))
    assert found.num_open == num_open
    assert (found.num_tokens, found.num_requests) == (num_tokens, 1)


def test_counts_behind_the_end_are_known_where_the_recording_goes_on() -> None:
    right = sequence([[0, 0, 0, 0]] * 11)
    assert predicted_counts([predicted(right, 4)], [3]).num_accepted == 4
    assert predicted_counts([predicted(right, 4)], [3]).num_open == 0
    assert predicted_counts([predicted(right, 4)], [12]).num_open == 1
    nothing = predicted_counts([predicted(right, 4)], [1])
    assert nothing.num_rounds == 0
    assert nothing.acceptance_length is None


def test_margins_are_the_drafters() -> None:
    text = predicted(sequence([[1, 0, 2, 0], [0, 0, 3, 0], [0, 0, 0, 0]]), 4)
    assert text.margin(0, 1) == pytest.approx(1.0)
    assert text.margin(0, 1, 1) == pytest.approx(1.0)
    assert text.margin(1, 1, 77) == np.inf


def test_a_request_asks_for_what_was_recorded() -> None:
    text = predicted(sequence([[0, 0, 0, 0]] * 5), 4)
    assert text.asked(128) == 6
    assert text.asked(128, 4) == 4
