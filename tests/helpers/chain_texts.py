"""Made-up texts, and what a trace predicts of a chain along them."""

import numpy as np
from hypothesis import strategies as st

from simlab.analysis.crosscheck.predicted import PredictedText, accepted_everywhere
from simlab.draft import Prompt
from simlab.recorded import DraftRows, RecordedSequence


def sequence(ranks: list[list[int]], width: int = 3) -> RecordedSequence:
    """A text whose token j is j, with the true token at these ranks; the others are tokens that never come."""
    num, depth = len(ranks), len(ranks[0])
    true_ranks = np.array(ranks, np.int32)
    for root in range(num):
        true_ranks[root, max(0, num - root) :] = -1
    ids = np.full((num, depth, width), 0, np.int32)
    for root in range(num):
        for index in range(depth):
            ids[root, index] = 1000 + np.arange(width)
            rank = true_ranks[root, index]
            if 0 <= rank < width:
                ids[root, index, rank] = root + index + 1
    log_probs = np.tile(-np.arange(1, width + 1, dtype=np.float32), num * depth)
    counts = np.full((num, depth), width, np.int32)
    rows = DraftRows(ids.ravel(), log_probs, counts, true_ranks)
    text = np.arange(num + 1, dtype=np.int32)
    return RecordedSequence(0, Prompt("one", "made up", 0, 0, np.array([5, 6], np.int32)), text, "length", rows)


def predicted(recorded: RecordedSequence, k: int) -> PredictedText:
    assert recorded.rows is not None
    return PredictedText(
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
