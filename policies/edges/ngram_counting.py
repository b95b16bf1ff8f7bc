"""Counting the 3-gram of many texts: rows of a table, the rare ones left out."""

import threading
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from simlab.arrays import Ints, Longs
from simlab.jit import borrowing_kernel, kernel
from simlab.policies.edges.correction import Correction
from simlab.policies.edges.ngram import MOST_TOKENS, NGramCounts, add_token, add_tokens, empty_counts, forget
from simlab.recorded import Roots

# Counts of the prompt and the committed text, which grow from round to round or from root to root.
#
# What was counted is not counted again: `counts_of_text` goes on with the text that its thread counted last,
# `count_up_to` with the roots of a text in their order.


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
    tokens, position = roots.tokens[begin : roots.begins[text + 1]], roots.token_indices[root] - begin
    if root == roots.firsts[text]:
        forget(correction.text)
        for earlier in range(position):
            add_token(correction.text, tokens, earlier)
    add_token(correction.text, tokens, position)


@borrowing_kernel
def token_before(roots: Roots, text: int, root: int) -> int:
    """The token before a root; -1 where a text without a prompt begins."""
    position = roots.token_indices[root]
    return int(roots.tokens[position - 1]) if position > roots.begins[text] else -1


@borrowing_kernel
def root_token(roots: Roots, root: int) -> int:
    """The token of a root, int64 as all numbers of kernels are, whatever it is stored in."""
    return int(np.int64(roots.tokens[roots.token_indices[root]]))


_BITS = 21
_SECOND, _FIRST = 1 << _BITS, 1 << (2 * _BITS)


class NGramRows(NamedTuple):
    """Counts as a table, in the order of first, second and third.

    Attributes:
        firsts: int32 ``[R]``, the token two places before; -1 in the row of a pair or a token.
        seconds: int32 ``[R]``, the token before; -1 in the row of a token.
        thirds: int32 ``[R]``, the token that followed; -1: all that were left out after these.
        counts: int32 ``[R]``, how often it did. Of those left out: the sum of their counts, and one more for each.
    """

    firsts: Ints
    seconds: Ints
    thirds: Ints
    counts: Ints


def count_texts(texts: Iterable[tuple[Ints, Ints]], vocab_size: int, min_count: int = 1) -> NGramRows:
    """How often tokens followed one and two others, and how often they came at all.

    Args:
        texts: each int32, tokens that come before a text and are not counted themselves, and the text.
        vocab_size: ids are below it.
        min_count: pairs and triples that came less often are left out.
    """
    if not 0 < vocab_size <= MOST_TOKENS:
        raise ValueError(f"a 3-gram holds vocabularies of 1 to {MOST_TOKENS:,} tokens; got {vocab_size:,}")
    parts = [keys for before, text in texts for keys in _keys(before, text, vocab_size)]
    if not parts:
        raise ValueError("there is no token to count")
    keys, counts = np.unique(np.concatenate(parts), return_counts=True)
    keys, counts = _without_rare(keys, counts.astype(np.int64), min_count)
    if counts.max() > np.iinfo(np.int32).max:
        raise ValueError(f"a token was counted {counts.max():,} times; int32 counts are held")
    columns = (keys // _FIRST, keys // _SECOND % _SECOND, keys % _SECOND)
    firsts, seconds, thirds = ((column - 1).astype(np.int32) for column in columns)
    return NGramRows(firsts, seconds, thirds, counts.astype(np.int32))


def _keys(before: Ints, text: Ints, vocab_size: int) -> list[Longs]:
    """The keys of all tokens, pairs and triples that end in a text; a token that is left out is 0, others one more."""
    if len(text) == 0:
        return []
    tokens = np.concatenate([before[-2:], text]).astype(np.int64)
    if tokens.min() < 0 or tokens.max() >= vocab_size:
        raise ValueError(f"a token is outside the vocabulary of {vocab_size:,}: {tokens.min()} to {tokens.max()}")
    tokens += 1
    start = len(tokens) - len(text)
    pairs, triples = max(start, 1), max(start, 2)
    return [
        tokens[start:],
        tokens[pairs - 1 : -1] * _SECOND + tokens[pairs:],
        tokens[triples - 2 : -2] * _FIRST + tokens[triples - 1 : -1] * _SECOND + tokens[triples:],
    ]


def _without_rare(keys: Longs, counts: Longs, min_count: int) -> tuple[Longs, Longs]:
    """Rare pairs and triples become one row for each context that keeps others."""
    rare = (counts < min_count) & (keys >= _SECOND)
    contexts, where = np.unique(keys[rare] // _SECOND * _SECOND, return_inverse=True)
    left_out = np.bincount(where, weights=counts[rare] + 1, minlength=len(contexts)).astype(np.int64)
    kept, kept_counts = keys[~rare], counts[~rare]
    stay = np.isin(contexts, kept // _SECOND * _SECOND)
    keys = np.concatenate([kept, contexts[stay]])
    order = np.argsort(keys)
    return keys[order], np.concatenate([kept_counts, left_out[stay]])[order]
