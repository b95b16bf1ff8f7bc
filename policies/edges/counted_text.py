"""Counts of a text that grows from round to round: what was counted is not counted again."""

import threading

import numpy as np

from simlab.arrays import Ints
from simlab.policies.edges.ngram import Counts, add_tokens, empty_counts

_FEWEST = 256
_last = threading.local()
"""The text that was counted last on this thread. A kernel is done with the counts before the thread asks again."""


def counts_of_text(text: Ints, vocab_size: int) -> Counts:
    """The counts of a text, the same whatever was counted before; valid until the next call on this thread.

    Args:
        text: int32 ``[T]``, the prompt and what was committed.
        vocab_size: ids are below it.

    Raises:
        ValueError: the vocabulary is too large for a key.
    """
    counts, counted, room = getattr(_last, "kept", (None, text[:0], 0))
    num = len(counted)
    goes_on = len(text) >= num and np.array_equal(counted, text[:num])
    if counts is None or not goes_on or len(text) > room or counts.totals[0] != vocab_size:
        room, num = max(2 * len(text), _FEWEST), 0
        counts = empty_counts(vocab_size, room)
    # Were this cut short, nobody could say what the table holds.
    _last.kept = (None, text[:0], 0)
    add_tokens(counts, text, num)
    _last.kept = (counts, text.copy(), room)
    return counts
