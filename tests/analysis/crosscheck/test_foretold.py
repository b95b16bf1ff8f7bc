"""What a trace foretells of an engine's chain: the rounds of a replay, and the counts of a loop."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simlab.analysis.crosscheck.foretold import ForetoldText, accepted_everywhere, foretold_counts
from simlab.draft import Prompt
from simlab.policies.parsing.parse import parse_policies
from simlab.recorded import DraftRows, RecordedSequence
from simlab.sequence_replay import rounds


def sequence(ranks: list[list[int]], width: int = 3) -> RecordedSequence:
    """A text whose token j is j, with the true token at these ranks; the others are tokens that never come."""
    num, depth = len(ranks), len(ranks[0])
    true_ranks = np.array(ranks, np.int32)
    for root in range(num):
        true_ranks[root, max(0, num - root) :] = -1
    ids = np.full((num, depth, width), 0, np.int32)
    for root in range(num):
        for place in range(depth):
            ids[root, place] = 1000 + np.arange(width)
            rank = true_ranks[root, place]
            if 0 <= rank < width:
                ids[root, place, rank] = root + place + 1
    log_probs = np.tile(-np.arange(1, width + 1, dtype=np.float32), num * depth)
    counts = np.full((num, depth), width, np.int32)
    rows = DraftRows(ids.ravel(), log_probs, counts, true_ranks)
    text = np.arange(num + 1, dtype=np.int32)
    return RecordedSequence(0, Prompt("one", "made up", 0, 0, np.array([5, 6], np.int32)), text, "length", rows)


def foretold(recorded: RecordedSequence, k: int) -> ForetoldText:
    assert recorded.rows is not None
    return ForetoldText(
        index=recorded.index,
        prompt=("made up", "one"),
        prompt_tokens=recorded.prompt.token_ids,
        text=recorded.text,
        ended_by_stop=False,
        accepted=accepted_everywhere(recorded.rows, k),
        gaps=np.full(len(recorded.text), 3.0, np.float32),
        rows=recorded.rows,
        k=k,
    )


tables = st.integers(1, 12).flatmap(
    lambda num: st.lists(st.lists(st.integers(0, 3), min_size=4, max_size=4), min_size=num, max_size=num)
)


@given(tables, st.integers(1, 4))
def test_rounds_are_those_of_a_replayed_chain(ranks: list[list[int]], k: int) -> None:
    recorded = sequence(ranks)
    (chain,) = parse_policies([f"chain:length={k}"])
    replayed = [(one.position, one.num_accepted) for one in rounds(chain.policy, recorded)]
    assert list(foretold(recorded, k).rounds()) == replayed


@given(tables, st.integers(1, 4), st.integers(1, 13))
def test_counts_are_those_of_a_loop(ranks: list[list[int]], k: int, num_tokens: int) -> None:
    recorded = sequence(ranks)
    num_tokens = min(num_tokens, len(recorded.text))
    found = foretold_counts([foretold(recorded, k)], [num_tokens])
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
    assert found.accepted_at == tuple(sum(kept > place for kept in accepted) for place in range(k))
    assert found.num_open == num_open
    assert (found.num_tokens, found.num_requests) == (num_tokens, 1)


def test_counts_behind_the_end_are_known_where_the_recording_goes_on() -> None:
    right = sequence([[0, 0, 0, 0]] * 11)
    assert foretold_counts([foretold(right, 4)], [3]).num_accepted == 4
    assert foretold_counts([foretold(right, 4)], [3]).num_open == 0
    assert foretold_counts([foretold(right, 4)], [12]).num_open == 1
    nothing = foretold_counts([foretold(right, 4)], [1])
    assert nothing.num_rounds == 0
    assert np.isnan(nothing.acceptance_length)


def test_margins_are_the_drafters() -> None:
    text = foretold(sequence([[1, 0, 2, 0], [0, 0, 3, 0], [0, 0, 0, 0]]), 4)
    assert text.margin(0, 1) == pytest.approx(1.0)
    assert text.margin(0, 1, 1) == pytest.approx(1.0)
    assert text.margin(1, 1, 77) == np.inf


def test_a_request_asks_for_what_was_recorded() -> None:
    text = foretold(sequence([[0, 0, 0, 0]] * 5), 4)
    assert text.asked(128) == 6
    assert text.asked(128, 4) == 4
