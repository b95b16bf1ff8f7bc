"""Known faults, planted in the rows of the packaged trace: each is named, with its figures, and none where none is."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

import simlab
from simlab.analysis.crosscheck import diagnosis
from simlab.analysis.crosscheck.diagnosis import (
    FAULTS,
    HEAD,
    MASK,
    REPEATED,
    TAPS,
    TEMPLATE,
    THINKING,
    VOCABULARY,
    WINDOW,
    ChainRounds,
    Finding,
    SeenDrafts,
    findings_of_rounds,
    findings_of_texts,
    first_places,
    joined,
    rounds_of_rows,
)
from simlab.arrays import Bools, Longs
from simlab.recorded import RecordedSequence

DEPTH = 7


@pytest.fixture(scope="module")
def texts() -> list[RecordedSequence]:
    return list(simlab.sample_trace().recorded("dflash"))


Wrong = Callable[[RecordedSequence, Bools], Bools]
"""From a text and which first candidates are right, bool ``[R, D]``, to those that are to be wrong."""


def spoilt(sequence: RecordedSequence, wrong: Wrong) -> RecordedSequence:
    """A text whose chosen first candidates are wrong, and say what they said."""
    rows = sequence.rows
    assert rows is not None
    ranks = np.where(wrong(sequence, rows.true_ranks == 0), 3, rows.true_ranks).astype(np.int32)
    return replace(sequence, rows=replace(rows, true_ranks=ranks))


def moved(sequence: RecordedSequence) -> RecordedSequence:
    """A text for which every candidate is the token behind the right one."""
    rows = sequence.rows
    assert rows is not None
    return replace(sequence, rows=replace(rows, ids=rows.ids + 1, true_ranks=np.maximum(rows.true_ranks, 1)))


def some(share: float, seed: int = 0) -> Wrong:
    return lambda sequence, right: np.random.default_rng([seed, sequence.index]).random(right.shape) < share


def deep(_sequence: RecordedSequence, right: Bools) -> Bools:
    return some(0.85)(_sequence, right) & (np.arange(DEPTH) >= 2)


def far(sequence: RecordedSequence, right: Bools) -> Bools:
    return ((len(sequence.prompt.token_ids) + np.arange(len(right))) >= 150)[:, None] & some(0.9)(sequence, right)


PLANTED: dict[str, Wrong] = {
    HEAD: lambda _sequence, right: np.ones_like(right),
    MASK: deep,
    TAPS: some(0.2),
    WINDOW: far,
}


def found(texts: list[RecordedSequence], is_sampled: bool = False, of_texts: tuple[Finding, ...] = ()) -> list[Finding]:
    seen = SeenDrafts(is_chain=False)
    for text in texts:
        seen.add(text)
    return seen.findings(is_sampled, of_texts)


@pytest.mark.parametrize("fault", PLANTED)
def test_a_planted_fault_is_named_in_a_trace_and_behind_an_engine(texts: list[RecordedSequence], fault: str) -> None:
    planted = [spoilt(text, PLANTED[fault]) for text in texts]
    assert [one.fault for one in found(planted)] == [fault]
    here, there = (joined([of_text(text) for text in some_texts]) for some_texts in (planted, texts))
    of_engine = replace(here, probs=None, right=None, expected=there.kept)
    assert [one.fault for one in findings_of_rounds(of_engine)] == [fault]


def of_text(text: RecordedSequence) -> ChainRounds:
    assert text.rows is not None
    return rounds_of_rows(text.index, len(text.prompt.token_ids), len(text.text), text.rows)


def test_a_shifted_vocabulary_says_by_how_much(texts: list[RecordedSequence]) -> None:
    (finding,) = found([moved(text) for text in texts])
    assert finding.fault == VOCABULARY
    assert "if -1 is added to every id" in finding.evidence


def test_none_is_named_where_none_is(texts: list[RecordedSequence]) -> None:
    assert found(texts) == found(texts[:2]) == found([]) == []
    rounds = joined([of_text(text) for text in texts])
    assert findings_of_rounds(replace(rounds, probs=None, right=None, expected=rounds.kept)) == []
    assert findings_of_rounds(replace(rounds, probs=None, right=None)) == []
    # An engine that keeps more than is predicted has none of these faults.
    more = replace(rounds, kept=rounds.reach, probs=None, right=None, expected=rounds.kept)
    assert findings_of_rounds(more) == []


def test_what_explains_a_drafter_that_says_too_much_is_no_shifted_tap(texts: list[RecordedSequence]) -> None:
    planted = [spoilt(text, PLANTED[TAPS]) for text in texts]
    assert found(planted, is_sampled=True) == []
    assert found(planted, of_texts=(Finding(TEMPLATE, ""),)) == []
    assert [one.fault for one in found(planted, of_texts=(Finding(REPEATED, ""),))] == [TAPS]


def test_a_chain_of_its_own_tokens_has_no_masks(texts: list[RecordedSequence]) -> None:
    seen = SeenDrafts(is_chain=True)
    for text in texts:
        seen.add(spoilt(text, deep))
    assert MASK not in [one.fault for one in seen.findings(is_sampled=False, of_texts=())]


def test_rounds_are_those_of_a_loop(texts: list[RecordedSequence]) -> None:
    rows = texts[0].rows
    assert rows is not None
    rounds, starts = of_text(texts[0]), rows.starts()
    for root in range(len(rows.counts)):
        candidates = rows.row(root, int(starts[root]))
        kept = 0
        while kept < DEPTH and root + 1 + kept < len(texts[0].text):
            if candidates.ids[candidates.offsets[kept]] != texts[0].text[root + 1 + kept]:
                break
            kept += 1
        assert rounds.kept[root] == kept
        assert rounds.reach[root] == min(DEPTH, len(texts[0].text) - 1 - root)
        assert rows.ids[first_places(rows)[root]].tolist() == candidates.ids[candidates.offsets[:-1]].tolist()
    shares, asked = rounds.shares(rounds.kept)
    behind = [(rounds.kept >= depth) & (rounds.reach > depth) for depth in range(DEPTH)]
    assert asked.tolist() == [int(rows_behind.sum()) for rows_behind in behind]
    assert shares[0] == (rounds.kept >= 1).sum() / asked[0]


def test_what_texts_look_like() -> None:
    def decode(ids: list[int]) -> str:
        return "".join({7: "<think>", 8: "</think>"}.get(one, "a") for one in ids)

    def faults(prompt: list[int], text: list[int]) -> list[str]:
        pairs = [(np.array(prompt, np.int32), np.array(text, np.int32))] * 4
        return [one.fault for one in findings_of_texts(pairs, (2,), decode)]

    plain = list(range(100, 160))
    assert faults([1, 2, 5], plain) == []
    assert faults([1, 5], plain) == [TEMPLATE]
    assert faults([1, 2, 7], plain) == faults([1, 2], [7, *plain]) == [THINKING]
    assert faults([1, 2, 7, 8], plain) == []
    assert faults([1, 2], [3, 4, 5] * 20) == [REPEATED]
    assert findings_of_texts([], (2,), decode) == []
    single = [(np.array([1, 2, 7], np.int32), np.array(plain, np.int32))]
    assert findings_of_texts(single, (2,), None) == [], "without text nobody looks for thinking"


def test_every_fault_is_planted_somewhere() -> None:
    assert {*PLANTED, VOCABULARY, TEMPLATE, THINKING, REPEATED} == set(FAULTS)
    assert diagnosis.FEWEST_ROUNDS > 0


def test_too_few_rounds_say_nothing(texts: list[RecordedSequence]) -> None:
    planted = [spoilt(text, PLANTED[HEAD]) for text in texts]
    num: Longs = np.cumsum([len(text.text) - 1 for text in planted])
    few = int((num < diagnosis.FEWEST_ROUNDS).sum())
    assert found(planted[:few]) == []
    assert [one.fault for one in found(planted[: few + 1])] == [HEAD]
