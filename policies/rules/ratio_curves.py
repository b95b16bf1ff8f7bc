"""Expected tokens per second by the size of the tree: the curve at each root, its maxima, and where rules end on it.

With weights w_1 >= w_2 >= ... and seconds t(n), the curve is G(n) = (1 + w_1 + ... + w_n) / t(n). Where t is convex and
does not fall, G has one maximum, plateaus counted once, and the first size that brings no more ends at it (CaDDTree
2026, arXiv 2606.01813). Prices of real machines need not be convex; what that costs is asked here.

All functions take the seconds of a round for as many drafted tokens as are expected at a root, or more.
"""

from typing import NamedTuple

import numpy as np

from simlab.arrays import Doubles, Ints, Longs
from simlab.jit import kernel
from simlab.policies.costs.curves import RoundCosts, costs_at
from simlab.policies.rules.budgets import FULL_SCAN, best_surplus, expected_tokens

AVAILABLE, MAXIMA, DEEP_MAXIMA, FIRST_STOP, BEST = 0, 1, 2, 3, 4
"""The columns of `scan_curves`."""

ROUNDING = 1e-12
"""A rise or fall of a smaller share is not told from rounding."""


class ExpectedTokens(NamedTuple):
    """What rounds at some roots bring by the size of the tree, whatever they cost.

    Attributes:
        tokens: float64 ``[R, n_max + 1]``, expected, the target's own counted; undefined behind the last node.
        available: int32 ``[R]``, nodes that there are beside the root.
        contexts: int64 ``[R]``, tokens before each root.
    """

    tokens: Doubles
    available: Ints
    contexts: Longs


@kernel
def tokens_of_roots(scores: Doubles, contexts: Longs) -> ExpectedTokens:
    """Expected tokens by the path scores of nodes in their order.

    Args:
        scores: float64 ``[R, n_max + 1]``, as in `OrderLayer`.
        contexts: int64 ``[R]``, tokens before each root.
    """
    tokens, available = np.empty(scores.shape, np.float64), np.empty(scores.shape[0], np.int32)
    for row in range(scores.shape[0]):
        available[row] = expected_tokens(scores[row], tokens[row])
    return ExpectedTokens(tokens, available, contexts)


@kernel
def _fill_curve(expected: ExpectedTokens, row: int, costs: RoundCosts, seconds: Doubles, curve: Doubles) -> int:
    """Seconds and expected tokens per second at one root by drafted tokens; how many nodes there are."""
    costs_at(costs, expected.contexts[row], seconds)
    available = int(expected.available[row])
    for n in range(available + 1):
        curve[n] = expected.tokens[row, n] / seconds[n]
    return available


@kernel
def root_curve(expected: ExpectedTokens, row: int, costs: RoundCosts) -> Doubles:
    """Expected tokens per second at one root, float64 ``[available + 1]``, by the number of drafted tokens."""
    curve = np.empty(expected.tokens.shape[1], np.float64)
    available = _fill_curve(expected, row, costs, np.empty_like(curve), curve)
    return curve[: available + 1]


@kernel
def scan_curves(expected: ExpectedTokens, costs: RoundCosts, deep_share: float) -> Ints:
    """What the curve of each root comes to.

    Returns:
        int32 ``[R, 5]``: sizes there are but for 0; local maxima; those between which the curve falls and rises again
        by more than ``deep_share``; the size before the first that brings no more; the size of the highest point, of
        several the smallest.
    """
    columns = np.empty((expected.available.size, 5), np.int32)
    for row in range(expected.available.size):
        curve = root_curve(expected, row, costs)
        columns[row, AVAILABLE], columns[row, MAXIMA] = expected.available[row], num_maxima(curve, ROUNDING)
        columns[row, DEEP_MAXIMA] = num_maxima(curve, deep_share)
        columns[row, FIRST_STOP], columns[row, BEST] = first_stop(curve), np.argmax(curve)
    return columns


@kernel
def kept_valleys(expected: ExpectedTokens, costs: RoundCosts, drawn_s: Doubles, deep_share: float) -> Doubles:
    """In how many draws of the prices the valleys of the curve at each root stay.

    A valley is a size with fewer tokens per second than its neighbours, the floor, between the best size below it and
    the best above it, its rims. At the drawn prices, ``drawn_s`` float64 ``[B, C, n_max + 1]`` of the same contexts,
    it stays if these same sizes still fall and rise again; of a deep one both rims are above the floor by more than
    ``deep_share``.

    Returns:
        float64 ``[R, 2]``, shares of the draws: in which the valley that stays most often does, and stays deep. 0
        where there is no valley.
    """
    shares = np.zeros((expected.available.size, 2), np.float64)
    drawn = np.empty((drawn_s.shape[0], expected.tokens.shape[1]), np.float64)
    for row in range(expected.available.size):
        available, curve = expected.available[row], root_curve(expected, row, costs)
        best_above, best_below, known = _best_above(curve), 0, False
        for floor in range(1, available):
            if curve[floor - 1] > curve[best_below]:
                best_below = floor - 1
            if not curve[floor - 1] > curve[floor] <= curve[floor + 1]:
                continue
            if not _is_valley(curve, best_below, floor, best_above[floor], ROUNDING):
                continue
            if not known:
                for draw in range(drawn.shape[0]):
                    _fill_curve(expected, row, RoundCosts(costs.contexts, drawn_s[draw]), drawn[draw], drawn[draw])
                known = True
            stays, deep = 0, 0
            for draw in range(drawn.shape[0]):
                stays += int(_is_valley(drawn[draw], best_below, floor, best_above[floor], ROUNDING))
                deep += int(_is_valley(drawn[draw], best_below, floor, best_above[floor], deep_share))
            shares[row, 0] = max(shares[row, 0], stays / drawn.shape[0])
            shares[row, 1] = max(shares[row, 1], deep / drawn.shape[0])
    return shares


@kernel
def taken_by_rules(
    expected: ExpectedTokens, costs: RoundCosts, views: Doubles, budget: int, rate: float
) -> tuple[Ints, Doubles, Doubles]:
    """What each rule takes at each root: sizes, expected tokens and seconds of rounds.

    Args:
        expected: of the roots.
        costs: by which rounds are priced.
        views: float64 ``[V, C, n_max + 1]``, other seconds at the same contexts, by which a first stop may decide.
        budget: a fixed number of drafted tokens; fewer where there are fewer.
        rate: tokens per second; the price rule takes most expected tokens less seconds at this rate.

    Returns:
        int32, float64 and float64 ``[4 + V, R]``: of the full scan, the first stop, the budget, the price rule, and of
        the first stop by each view.
    """
    num_roots, room = expected.tokens.shape
    sizes = np.empty((4 + views.shape[0], num_roots), np.int32)
    tokens, paid = np.empty(sizes.shape, np.float64), np.empty(sizes.shape, np.float64)
    seconds, seen, curve = np.empty(room, np.float64), np.empty(room, np.float64), np.empty(room, np.float64)
    for row in range(num_roots):
        for view in range(views.shape[0]):
            available = _fill_curve(expected, row, RoundCosts(costs.contexts, views[view]), seen, curve)
            sizes[4 + view, row] = first_stop(curve[: available + 1])
        available = _fill_curve(expected, row, costs, seconds, curve)
        sizes[0, row], sizes[1, row] = np.argmax(curve[: available + 1]), first_stop(curve[: available + 1])
        sizes[2, row] = min(budget, available)
        sizes[3, row] = best_surplus(expected.tokens[row], seconds, available, FULL_SCAN, rate)
        for rule in range(sizes.shape[0]):
            tokens[rule, row], paid[rule, row] = expected.tokens[row, sizes[rule, row]], seconds[sizes[rule, row]]
    return sizes, tokens, paid


@kernel
def sum_fixed(expected: ExpectedTokens, costs: RoundCosts) -> Doubles:
    """Expected tokens and seconds of every fixed budget, summed over the roots: float64 ``[2, n_max + 1]``.

    Where a root has fewer nodes than a budget it takes what there are.
    """
    sums, seconds = np.zeros((2, expected.tokens.shape[1]), np.float64), np.empty(expected.tokens.shape[1], np.float64)
    for row in range(expected.available.size):
        costs_at(costs, expected.contexts[row], seconds)
        for budget in range(sums.shape[1]):
            size = min(budget, expected.available[row])
            sums[0, budget] += expected.tokens[row, size]
            sums[1, budget] += seconds[size]
    return sums


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
def _is_valley(curve: Doubles, before: int, floor: int, after: int, least_share: float) -> bool:
    """Whether a curve falls from one size to the floor, and rises to the other, by more than a share."""
    low: float = curve[floor]
    return bool(low < curve[before] * (1.0 - least_share) and curve[after] > low * (1.0 + least_share))
