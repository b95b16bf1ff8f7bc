"""What the candidates below one node cost where a 3-gram corrects their scores.

A cost is a whole number of grid steps, so the last bits of a logarithm hardly ever matter. Logarithms that were taken
beforehand are summed; only where the sum is so close to half a step that its last bits could turn the cost is
it worked out as it is defined.
"""

import math
from typing import NamedTuple

import numpy as np

from simlab.arrays import Ints
from simlab.grid import LOWEST, STEPS_PER_NAT
from simlab.jit import borrowing_kernel, inlined_kernel
from simlab.policies.edges.children import Children
from simlab.policies.edges.correction import (
    FLOOR,
    Correction,
    PrecedingTokens,
    cost_of,
    log_correction,
    preceding_tokens,
    shift_of,
)
from simlab.policies.edges.lattice import Lattice
from simlab.policies.edges.ngram import UNSEEN, key_of, log_after, region_of

ABOVE_LIMIT = -1
"""In place of a cost that is above a limit whatever the correction, which is at most 0, adds."""

_LOG_FLOOR = math.log(FLOOR)
_CLEAR = 0.499
_MOST_WEIGHT = 1000.0
"""Up to this weight the last bits of a logarithm are far less than what is left beside `_CLEAR`."""


class ParentContext(NamedTuple):
    """What is the same for all candidates below one node.

    Attributes:
        is_quick: whether logarithms that were taken beforehand are enough.
        of_two: the region of the node and the one above it in them.
        of_last: that of the node.
        before: the node and the one above it; of their counts nothing is said if it is quick.
        weight: of the 3-gram.
        shift: `shift_of` the node, or 0.
    """

    is_quick: bool
    of_two: int
    of_last: int
    before: PrecedingTokens
    weight: float
    shift: float


@inlined_kernel
def parent_context(
    children: Children, correction: Correction, first: int, second: int, kind: int, depth: int
) -> ParentContext:
    """Look up what is the same for all candidates below one node.

    Args:
        children: the candidates.
        correction: not empty.
        first: the token above the node; -1 if there is none.
        second: the node's.
        kind: of the node.
        depth: of the node; there may be children below it.
    """
    weight, start, end = correction.weights[depth], children.starts[kind, depth], children.ends[kind, depth]
    return list_context(correction, first, second, weight, children.costs, children.tokens, start, end)


@inlined_kernel
def list_context(
    correction: Correction,
    first: int,
    second: int,
    weight: float,
    costs: Ints,
    tokens: Ints,
    start: int,
    end: int,
) -> ParentContext:
    """Look up what is the same for all candidates of the list below one node.

    Args:
        correction: not empty.
        first: the token above the node; -1 if there is none.
        second: the node's.
        weight: of the 3-gram in this list.
        costs: int32, of candidates.
        tokens: int32, theirs.
        start: where the list begins among the candidates.
        end: where it ends.
    """
    shift, of_two, of_last = 0.0, UNSEEN, UNSEEN
    can_be_quick = correction.text_share == 0.0 and not correction.renormalised and weight <= _MOST_WEIGHT
    is_quick = can_be_quick and correction.corpus.logs.tokens.size > 0
    before = PrecedingTokens(int(np.int64(first)), int(np.int64(second)), 0, 0, 0, 0)
    if is_quick:
        of_last = region_of(correction.corpus.logs.contexts, key_of(-1, second, -1))
        if first >= 0 and of_last != UNSEEN:
            of_two = region_of(correction.corpus.logs.contexts, key_of(first, second, -1))
    else:
        before = preceding_tokens(correction, first, second)
    if correction.renormalised:
        shift = shift_of(correction, before, weight, costs, tokens, start, end)
    return ParentContext(is_quick, of_two, of_last, before, weight, shift)


@inlined_kernel
def candidate_cost(
    children: Children | Lattice, correction: Correction, above: ParentContext, index: int, limit: int
) -> int:
    """What a candidate adds to the cost of a path.

    `ABOVE_LIMIT` where it, and all behind it in its list, are above a limit.

    Args:
        children: the candidates.
        correction: not empty.
        above: of the node.
        index: of the candidate.
        limit: as large a cost is told.
    """
    log_prob, token, step = children.costs[index] / -STEPS_PER_NAT, children.tokens[index], ABOVE_LIMIT
    least = children.costs[index] if above.shift == 0.0 else cost_of(log_prob + above.shift)
    if least <= limit and above.is_quick:
        logs = correction.corpus.logs
        log = log_after(logs.tokens, logs.logs, above.of_two, above.of_last, token)
        step = clear_cost(log_prob + above.weight * max(log, _LOG_FLOOR))
    if least <= limit and step < 0:
        step = _exact_cost(correction, above, log_prob, token)
    return step


@borrowing_kernel
def _exact_cost(correction: Correction, above: ParentContext, log_prob: float, token: int) -> int:
    """What a candidate adds, as it is defined."""
    corpus, text, share, before = correction.corpus, correction.text, correction.text_share, above.before
    if above.is_quick:
        before = preceding_tokens(correction, before.first, before.second)
    array, two, three, four = corpus.slots, corpus.totals, text.slots, text.totals
    added = log_correction(array, two, three, four, share, before, above.weight, token)
    return cost_of(log_prob + added + above.shift)


@borrowing_kernel
def exact_candidate_cost(
    children: Children, correction: Correction, first: int, second: int, kind: int, depth: int, index: int
) -> int:
    """What one candidate adds to the cost of a path, as it is defined.

    Args:
        children: the candidates.
        correction: not empty.
        first: the token above the node; -1 if there is none.
        second: the node's.
        kind: of the node.
        depth: of the node.
        index: of the candidate below it.
    """
    before = preceding_tokens(correction, first, second)
    weight, shift = correction.weights[depth], 0.0
    if correction.renormalised:
        start, end = children.starts[kind, depth], children.ends[kind, depth]
        shift = shift_of(correction, before, weight, children.costs, children.tokens, start, end)
    above = ParentContext(False, UNSEEN, UNSEEN, before, weight, shift)
    return _exact_cost(correction, above, children.costs[index] / -STEPS_PER_NAT, children.tokens[index])


@borrowing_kernel
def clear_cost(log_prob: float) -> int:
    """`cost_of` an edge score that is right but for its last bits; -1 where these could change it."""
    steps = -max(min(log_prob, 0.0), LOWEST) * STEPS_PER_NAT
    cost = np.rint(steps)
    return int(cost) if abs(steps - cost) < _CLEAR else -1
