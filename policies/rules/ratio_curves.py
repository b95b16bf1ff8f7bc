"""Expected tokens per second by the size of the tree: the curve at each root, its maxima, and where rules end on it.

With weights w_1 >= w_2 >= ... and seconds t(n), the curve is G(n) = (1 + w_1 + ... + w_n) / t(n). Where t is convex and
does not fall, G has one maximum, plateaus counted once, and the first size that brings no more ends at it (CaDDTree
2026, arXiv 2606.01813). Prices of real machines need not be convex; what that costs is asked here.

All functions take float64 ``[R, n_max + 1]`` path scores in the order of nodes, as in `OrderLayer`, int64 ``[R]``
contexts, tokens before each root, and the seconds of a round, for as many drafted tokens as there are scores, or more.
"""

import numpy as np

from simlab.arrays import Doubles, Ints, Longs
from simlab.jit import kernel
from simlab.policies.costs.curves import RoundCosts, costs_at
from simlab.policies.rules.budgets import FULL_SCAN, best_surplus, expected_tokens

AVAILABLE, MAXIMA, DEEP_MAXIMA, FIRST_STOP, BEST = 0, 1, 2, 3, 4
"""The columns of `scan_curves`."""

ROUNDING = 1e-12
"""A rise or fall of a smaller share is not told from rounding."""


@kernel
def scan_curves(scores: Doubles, contexts: Longs, costs: RoundCosts, deep_share: float) -> Ints:
    """What the curve of each root comes to.

    Returns:
        int32 ``[R, 5]``: sizes there are but for 0; local maxima; those between which the curve falls and rises again
        by more than ``deep_share``; the size before the first that brings no more; the size of the highest point, of
        several the smallest.
    """
    columns = np.empty((scores.shape[0], 5), np.int32)
    tokens, seconds = np.empty(scores.shape[1], np.float64), np.empty(scores.shape[1], np.float64)
    for row in range(scores.shape[0]):
        available = expected_tokens(scores[row], tokens)
        costs_at(costs, contexts[row], seconds)
        curve = tokens[: available + 1] / seconds[: available + 1]
        columns[row, AVAILABLE], columns[row, MAXIMA] = available, num_maxima(curve, ROUNDING)
        columns[row, DEEP_MAXIMA] = num_maxima(curve, deep_share)
        columns[row, FIRST_STOP], columns[row, BEST] = first_stop(curve), np.argmax(curve)
    return columns


@kernel
def kept_valleys(scores: Doubles, contexts: Longs, costs: RoundCosts, drawn_s: Doubles, deep_share: float) -> Doubles:
    """In how many draws of the prices the valleys of the curve at each root stay.

    A valley is a size with fewer tokens per second than its neighbours, the floor, between the best size below it and
    the best above it, its rims. At the drawn prices, ``drawn_s`` float64 ``[B, C, n_max + 1]`` of the same contexts,
    it stays if these same sizes still fall and rise again; of a deep one both rims are above the floor by more than
    ``deep_share``.

    Returns:
        float64 ``[R, 2]``, shares of the draws: in which the valley that stays most often does, and stays deep. 0
        where there is no valley.
    """
    shares = np.zeros((scores.shape[0], 2), np.float64)
    tokens, seconds = np.empty(scores.shape[1], np.float64), np.empty(scores.shape[1], np.float64)
    drawn = np.empty((drawn_s.shape[0], scores.shape[1]), np.float64)
    for row in range(scores.shape[0]):
        available = expected_tokens(scores[row], tokens)
        costs_at(costs, contexts[row], seconds)
        curve = tokens[: available + 1] / seconds[: available + 1]
        best_above, best_below, known = _best_above(curve), 0, False
        for floor in range(1, available):
            if curve[floor - 1] > curve[best_below]:
                best_below = floor - 1
            if not curve[floor - 1] > curve[floor] <= curve[floor + 1]:
                continue
            if not _is_valley(curve, best_below, floor, best_above[floor], ROUNDING):
                continue
            if not known:
                _fill_drawn(tokens, contexts[row], costs.contexts, drawn_s, drawn)
                known = True
            stays, deep = 0, 0
            for draw in range(drawn.shape[0]):
                stays += int(_is_valley(drawn[draw], best_below, floor, best_above[floor], ROUNDING))
                deep += int(_is_valley(drawn[draw], best_below, floor, best_above[floor], deep_share))
            shares[row, 0] = max(shares[row, 0], stays / drawn.shape[0])
            shares[row, 1] = max(shares[row, 1], deep / drawn.shape[0])
    return shares


@kernel
def first_stops(scores: Doubles, contexts: Longs, costs: RoundCosts) -> Ints:
    """Where the first size that brings no more ends each root's tree, int32 ``[R]``."""
    sizes = np.empty(scores.shape[0], np.int32)
    tokens, seconds = np.empty(scores.shape[1], np.float64), np.empty(scores.shape[1], np.float64)
    for row in range(scores.shape[0]):
        available = expected_tokens(scores[row], tokens)
        costs_at(costs, contexts[row], seconds)
        sizes[row] = first_stop(tokens[: available + 1] / seconds[: available + 1])
    return sizes


@kernel
def price_sizes(scores: Doubles, contexts: Longs, costs: RoundCosts, rate: float) -> Ints:
    """The size at each root with the most expected tokens less seconds at a rate, tokens per second; int32 ``[R]``."""
    sizes = np.empty(scores.shape[0], np.int32)
    tokens, seconds = np.empty(scores.shape[1], np.float64), np.empty(scores.shape[1], np.float64)
    for row in range(scores.shape[0]):
        available = expected_tokens(scores[row], tokens)
        costs_at(costs, contexts[row], seconds)
        sizes[row] = best_surplus(tokens, seconds, available, FULL_SCAN, rate)
    return sizes


@kernel
def at_sizes(scores: Doubles, contexts: Longs, costs: RoundCosts, sizes: Ints) -> tuple[Doubles, Doubles]:
    """Expected tokens and seconds of rounds with trees of some sizes, float64 ``[R, P]`` each.

    Sizes are int32 ``[R, P]``, none larger than there are nodes.
    """
    expected, paid = np.empty(sizes.shape, np.float64), np.empty(sizes.shape, np.float64)
    tokens, seconds = np.empty(scores.shape[1], np.float64), np.empty(scores.shape[1], np.float64)
    for row in range(sizes.shape[0]):
        expected_tokens(scores[row], tokens)
        costs_at(costs, contexts[row], seconds)
        for place in range(sizes.shape[1]):
            expected[row, place], paid[row, place] = tokens[sizes[row, place]], seconds[sizes[row, place]]
    return expected, paid


@kernel
def sum_fixed(scores: Doubles, contexts: Longs, costs: RoundCosts) -> Doubles:
    """Expected tokens and seconds of every fixed budget, summed over the roots: float64 ``[2, n_max + 1]``.

    Where a root has fewer nodes than a budget it takes what there are.
    """
    sums = np.zeros((2, scores.shape[1]), np.float64)
    tokens, seconds = np.empty(scores.shape[1], np.float64), np.empty(scores.shape[1], np.float64)
    for row in range(scores.shape[0]):
        available = expected_tokens(scores[row], tokens)
        costs_at(costs, contexts[row], seconds)
        for budget in range(scores.shape[1]):
            size = min(budget, available)
            sums[0, budget] += tokens[size]
            sums[1, budget] += seconds[size]
    return sums


@kernel
def root_curve(scores: Doubles, context: int, costs: RoundCosts) -> Doubles:
    """Expected tokens per second at one root, float64 ``[available + 1]``, by the number of drafted tokens.

    Args:
        scores: float64 ``[n_max + 1]``, of this root.
        context: tokens before it.
        costs: as `scan_curves`.
    """
    tokens, seconds = np.empty(scores.size, np.float64), np.empty(scores.size, np.float64)
    available = expected_tokens(scores, tokens)
    costs_at(costs, context, seconds)
    return tokens[: available + 1] / seconds[: available + 1]


@kernel
def first_stop(curve: Doubles) -> int:
    """The last size before the first that is no better than the one before it."""
    n = 0
    while n + 1 < curve.size and curve[n + 1] > curve[n]:
        n += 1
    return n


@kernel
def num_maxima(curve: Doubles, least_share: float) -> int:
    """How many local maxima a curve has, its ends among them and a plateau counted once.

    Args:
        curve: float64 ``[n + 1]``, positive.
        least_share: between two maxima the curve falls, and rises again, by more than this share; 0 counts every one.
    """
    maxima, rising, extreme = 0, True, curve[0]
    for n in range(1, curve.size):
        if (rising and curve[n] > extreme) or (not rising and curve[n] < extreme):
            extreme = curve[n]
        elif rising and curve[n] < extreme * (1.0 - least_share):
            maxima, rising, extreme = maxima + 1, False, curve[n]
        elif not rising and curve[n] > extreme * (1.0 + least_share):
            rising, extreme = True, curve[n]
    return maxima + int(rising)


@kernel
def _best_above(curve: Doubles) -> Longs:
    """The size of the highest point from each size on, of several the smallest, int64 ``[n + 1]``."""
    best = np.empty(curve.size, np.int64)
    best[curve.size - 1] = curve.size - 1
    for n in range(curve.size - 2, -1, -1):
        best[n] = n if curve[n] >= curve[best[n + 1]] else best[n + 1]
    return best


@kernel
def _is_valley(curve: Doubles, one: int, floor: int, other: int, least_share: float) -> bool:
    """Whether a curve falls from one size to the floor, and rises to the other, by more than a share."""
    low: float = curve[floor]
    return bool(low < curve[one] * (1.0 - least_share) and curve[other] > low * (1.0 + least_share))


@kernel
def _fill_drawn(tokens: Doubles, context: int, contexts: Doubles, drawn_s: Doubles, drawn: Doubles) -> None:
    """The curve at the prices of each draw, into float64 ``[B, n + 1]``."""
    for draw in range(drawn.shape[0]):
        costs_at(RoundCosts(contexts, drawn_s[draw]), context, drawn[draw])
        for n in range(drawn.shape[1]):
            drawn[draw, n] = tokens[n] / drawn[draw, n]
