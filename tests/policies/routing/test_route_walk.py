"""What a drafter missed when it runs again, against counting the tokens that it did not read in time."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from simlab.policies.routing.routed_policy import missed_tokens


def missed_by_reading(used: list[bool], committed: list[int]) -> list[int]:
    """A reader that takes in everything when it runs: how much was left from before the last round."""
    unread, missed = list[int](), list[int]()
    for place, runs in enumerate(used):
        # Token ``n`` of the text, by the round that brought it.
        missed.append(sum(brought < place - 1 for brought in unread) if runs else 0)
        if runs:
            unread = []
        unread += [place] * committed[place]
    return missed


ROUNDS = st.lists(st.tuples(st.booleans(), st.integers(1, 5)), max_size=12)


@given(texts=st.lists(ROUNDS, max_size=3))
def test_what_was_missed_is_what_waited_longer_than_a_round(texts: list[list[tuple[bool, int]]]) -> None:
    wanted, flat = list[int](), [one for text in texts for one in text]
    for text in texts:
        wanted += missed_by_reading([used for used, _ in text], [num for _, num in text])
    used, committed = np.array([one for one, _ in flat], np.bool_), np.array([num for _, num in flat], np.int64)
    ends = np.cumsum([len(text) for text in texts], dtype=np.int64)
    assert missed_tokens(used, committed, ends).tolist() == wanted


def test_who_runs_in_each_round_misses_nothing() -> None:
    assert missed_tokens(np.ones(5, np.bool_), np.full(5, 3, np.int64), np.array([2, 5])).tolist() == [0] * 5
