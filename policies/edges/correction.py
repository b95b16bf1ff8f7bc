"""An edge score that also asks how well a token goes with the two before it.

PRESTO (2026, arXiv 2607.22634) scores a token by log q + weight * log p, p from a 3-gram of the tokens before it. Where
its counts come from, how they are smoothed, the floor, and how the weight follows the entropy are a reconstruction: the
paper's were not found.
"""

from typing import NamedTuple

import numpy as np

from simlab.arrays import Doubles, Ints, Longs
from simlab.grid import LOWEST, STEPS_PER_NAT
from simlab.jit import borrowing_kernel
from simlab.policies.edges.children import SPINE, Children, entropy_at
from simlab.policies.edges.ngram import NGramCounts, context_of, empty_counts, probability_after

FLOOR = 1e-6
"""No 3-gram probability counts as less."""


class Correction(NamedTuple):
    """What a 3-gram adds to the drafter's scores.

    Attributes:
        weights: float64 ``[D]``, of its log-probability at each depth; empty: nothing is added.
        corpus: counts of a fixed text.
        text: counts of the prompt and of what was committed.
        text_share: how much the second counts; 0: the corpus alone, 1: the text alone.
        renormalised: whether the scores of a node's children are divided by their sum.
        adaptive: whether the weights follow the entropy of the drafter at each depth.
        weight: before they do.
    """

    weights: Doubles
    corpus: NGramCounts
    text: NGramCounts
    text_share: float
    renormalised: bool
    adaptive: bool
    weight: float


class PrecedingTokens(NamedTuple):
    """Two tokens, and what the counts hold of them.

    Attributes:
        first: the token two places before; -1 if there is none.
        second: the token before.
        pair: of both, as `simlab.policies.edges.ngram.context_of` has it.
        last: of the second alone.
        pair_in_text: the same of the text's counts.
        last_in_text: the same of the text's counts.
    """

    first: int
    second: int
    pair: int
    last: int
    pair_in_text: int
    last_in_text: int


def no_correction() -> Correction:
    """The drafter's scores as they are."""
    nothing = empty_counts(1, 0)
    return Correction(np.empty(0, np.float64), nothing, nothing, 0.0, False, False, 0.0)


@borrowing_kernel
def preceding_tokens(correction: Correction, first: int, second: int) -> PrecedingTokens:
    """Two tokens as they stand before others.

    Args:
        correction: not empty.
        first: the token two places before; -1 if there is none.
        second: the token before.
    """
    pair, last, pair_in_text, last_in_text = 0, 0, 0, 0
    if correction.text_share < 1.0:
        pair, last = context_of(correction.corpus.slots, first, second)
    if correction.text_share > 0.0:
        pair_in_text, last_in_text = context_of(correction.text.slots, first, second)
    return PrecedingTokens(int(np.int64(first)), int(np.int64(second)), pair, last, pair_in_text, last_in_text)


@borrowing_kernel
def log_correction(
    corpus_slots: Longs,
    corpus_totals: Longs,
    text_slots: Longs,
    text_totals: Longs,
    share: float,
    before: PrecedingTokens,
    weight: float,
    token: int,
) -> float:
    """The weighted log-probability of a token after two others; at most 0.

    It takes the parts of a `Correction`, as `probability_after` does.
    """
    if weight == 0.0:
        return 0.0
    value = 0.0
    if share < 1.0:
        pair, last = before.pair, before.last
        in_corpus = probability_after(corpus_slots, corpus_totals, pair, last, before.first, before.second, token)
        value += (1.0 - share) * in_corpus
    if share > 0.0:
        pair, last = before.pair_in_text, before.last_in_text
        value += share * probability_after(text_slots, text_totals, pair, last, before.first, before.second, token)
    return float(weight * np.log(max(value, FLOOR)))


@borrowing_kernel
def shift_of(
    correction: Correction, before: PrecedingTokens, weight: float, costs: Ints, tokens: Ints, start: int, end: int
) -> float:
    """What makes the children of a node and the rest, as the floor corrects it, sum to 1; a logarithm.

    Args:
        correction: not empty.
        before: the node and the one above it.
        weight: of the 3-gram below the node.
        costs: int32, of candidates.
        tokens: int32, theirs.
        start: where the node's children begin among the candidates.
        end: where they end.
    """
    corpus, text, share = correction.corpus, correction.text, correction.text_share
    one, two, three, four = corpus.slots, corpus.totals, text.slots, text.totals
    total, rest = 0.0, 1.0
    for place in range(start, end):
        log_prob, token = costs[place] / -STEPS_PER_NAT, tokens[place]
        total += np.exp(log_prob + log_correction(one, two, three, four, share, before, weight, token))
        rest -= np.exp(log_prob)
    return float(-np.log(total + max(rest, 0.0) * np.exp(weight * np.log(FLOOR))))


@borrowing_kernel
def fit_weights(correction: Correction, children: Children) -> None:
    """The weights at one root, where they follow the entropy.

    The entropy of a depth is that of the k candidates that are read and of the rest as one lump, so it is between 0
    and log(k + 1); the weight is that share of the full one. A drafter that is sure is left alone.
    """
    if not correction.adaptive:
        return
    for depth in range(correction.weights.size):
        num = children.ends[SPINE, depth] - children.starts[SPINE, depth]
        share = entropy_at(children, SPINE, depth) / np.log(num + 1.0) if num > 0 else 0.0
        correction.weights[depth] = correction.weight * share


@borrowing_kernel
def cost_of(log_prob: float) -> int:
    """An edge score as grid steps below 0; what lies above 0 is 0."""
    return int(np.rint(-max(min(log_prob, 0.0), LOWEST) * STEPS_PER_NAT))
