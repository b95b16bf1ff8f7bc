"""Counts of the prompt and the committed text, which grow from round to round or from root to root.

What was counted is not counted again: `counts_of_text` goes on with the text that its thread counted last,
`count_up_to` with the roots of a text in their order.
"""

import threading

import numpy as np

from simlab.arrays import Ints
from simlab.jit import borrowing_kernel, kernel
from simlab.policies.edges.correction import Correction
from simlab.policies.edges.ngram import NGramCounts, add_token, add_tokens, empty_counts, forget
from simlab.recorded import Roots

_FEWEST = 256
_last = threading.local()
"""The text that was counted last on this thread. A kernel is done with the counts before the thread asks again."""


def counts_of_text(text: Ints, vocab_size: int) -> NGramCounts:
    """The counts of a text, the same whatever was counted before; valid until the next call on this thread.

    Args:
        text: int32 ``[T]``, the prompt and what was committed.
        vocab_size: ids are below it.
    """
    counts, counted, capacity = getattr(_last, "kept", (None, text[:0], 0))
    num = len(counted)
    goes_on = len(text) >= num and np.array_equal(counted, text[:num])
    if counts is None or not goes_on or len(text) > capacity or counts.totals[0] != vocab_size:
        capacity, num = max(2 * len(text), _FEWEST), 0
        counts = empty_counts(vocab_size, capacity)
    # Were this cut short, nobody could say what the table holds.
    _last.kept = (None, text[:0], 0)
    add_tokens(counts, text, num)
    _last.kept = (counts, text.copy(), capacity)
    return counts


def longest_text(roots: Roots) -> int:
    """Tokens of the longest prompt and text."""
    return int(np.diff(roots.begins).max(initial=0))


@kernel
def count_up_to(correction: Correction, roots: Roots, text: int, root: int) -> None:
    """Count what was committed at a root, the root among it; roots come in order, those of a text without a gap.

    Args:
        correction: whose counts of the text these are; one that reads none is left alone.
        roots: of all texts.
        text: the number of the text.
        root: one of its roots.
    """
    if correction.weights.size == 0 or correction.text_share == 0.0:
        return
    begin = roots.begins[text]
    tokens, place = roots.tokens[begin : roots.begins[text + 1]], roots.places[root] - begin
    if root == roots.firsts[text]:
        forget(correction.text)
        for earlier in range(place):
            add_token(correction.text, tokens, earlier)
    add_token(correction.text, tokens, place)


@borrowing_kernel
def token_before(roots: Roots, text: int, root: int) -> int:
    """The token before a root; -1 where a text without a prompt begins."""
    place = roots.places[root]
    return int(roots.tokens[place - 1]) if place > roots.begins[text] else -1


@borrowing_kernel
def root_token(roots: Roots, root: int) -> int:
    """The token of a root, int64 as all numbers of kernels are, whatever it is stored in."""
    return int(np.int64(roots.tokens[roots.places[root]]))
