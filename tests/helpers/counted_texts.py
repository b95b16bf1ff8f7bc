"""Counts of a 3-gram as tests want them: of a few texts, and how probable they make a token."""

from simlab.arrays import Ints
from simlab.policies.edges.ngram import NGramCounts, add_tokens, context_of, empty_counts, probability_after


def counts_of(texts: list[Ints], vocab_size: int) -> NGramCounts:
    """The counts of some texts, each int32 ``[T]``; nothing is counted across their borders."""
    table = empty_counts(vocab_size, sum(map(len, texts)))
    for text in texts:
        add_tokens(table, text, 0)
    return table


def probability(table: NGramCounts, first: int, second: int, third: int) -> float:
    """How probable the third token is after two others; -1 stands for one that is not there."""
    two, one = context_of(table.slots, first, second)
    return probability_after(table.slots, table.totals, two, one, first, second, third)
