"""Counts of prompt and text that grow from root to root, text after text."""

import numpy as np

from simlab.jit import kernel
from simlab.policies.edges.correction import Correction
from simlab.policies.edges.ngram import add_token, forget
from simlab.recorded import Roots


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


@kernel
def token_before(roots: Roots, text: int, root: int) -> int:
    """The token before a root; -1 where a text without a prompt begins."""
    place = roots.places[root]
    return int(roots.tokens[place - 1]) if place > roots.begins[text] else -1
