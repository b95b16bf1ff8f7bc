"""What a trace foretells of an engine's chain: the rounds of a replay, and the counts of a loop."""

import numpy as np
import pytest
from chain_texts import foretold, sequence, tables
from hypothesis import given
from hypothesis import strategies as st

from simlab.analysis.crosscheck.foretold import foretold_counts
from simlab.policies.parsing.parse import parse_policies
from simlab.sequence_replay import rounds


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
