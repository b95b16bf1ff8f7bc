"""Curves of expected tokens per second: kernels against fractions, the theorem of one maximum, and what breaks it."""

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pytest
from curve_oracles import (
    best_by_hand,
    curve_by_hand,
    deep_maxima_by_listing,
    first_stop_by_hand,
    kept_by_hand,
    maxima_by_hand,
    valleys_by_listing,
)
from depth import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from made_up_costs import random_table

from simlab.grid import path_weight
from simlab.policies.costs.curves import ALL_STAGES, RoundCosts, convex_view, round_costs
from simlab.policies.edges.models import Marginal
from simlab.policies.orders.best_first import BestFirst
from simlab.policies.orders.node_order import OrderLayer
from simlab.policies.rules.budgets import FULL_SCAN, BestRatio, FixedPrice
from simlab.policies.rules.ratio_curves import (
    AVAILABLE,
    BEST,
    DEEP_MAXIMA,
    FIRST_STOP,
    MAXIMA,
    ROUNDING,
    ExpectedTokens,
    kept_valleys,
    num_maxima,
    root_curve,
    scan_curves,
    sum_fixed,
    taken_by_rules,
    tokens_of_roots,
)
from simlab.recorded import texts_of
from simlab.testing.random_texts import random_sequence

MOST = 10
STEPS = 65536
UNITS = 64
"""Seconds are whole multiples of 1/64, so that floating point holds them exactly."""


@dataclass(frozen=True)
class Case:
    """One root: path costs in grid steps in the order of nodes, and units of seconds by drafted tokens."""

    path_costs: list[int]
    units: list[int]

    @property
    def expected(self) -> ExpectedTokens:
        scores = np.full((1, MOST + 1), -np.inf)
        scores[0, 0] = 0.0
        scores[0, 1 : len(self.path_costs) + 1] = np.array(self.path_costs) / -STEPS
        return tokens_of_roots(scores, np.array([5]))

    @property
    def costs(self) -> RoundCosts:
        return RoundCosts(np.array([8.0]), np.array([self.units]) / UNITS)

    @property
    def weights(self) -> list[Fraction]:
        return [Fraction(float(path_weight(-cost / STEPS))) for cost in self.path_costs]

    @property
    def seconds(self) -> list[Fraction]:
        return [Fraction(units, UNITS) for units in self.units]

    @property
    def curve(self) -> list[Fraction]:
        return curve_by_hand(self.weights, self.seconds)

    def found(self, deep_share: float = 0.0) -> list[int]:
        """What the kernel says."""
        return [int(curve) for curve in scan_curves(self.expected, self.costs, deep_share)[0]]


path_costs = st.lists(
    st.one_of(st.sampled_from([0, STEPS // 2, STEPS, 40 * STEPS]), st.integers(0, 1 << 20)), max_size=MOST
)
any_units = st.lists(st.integers(1, 200), min_size=MOST + 1, max_size=MOST + 1)


@st.composite
def convex_units(draw: st.DrawFn) -> list[int]:
    """Seconds that do not fall and are convex: each further token costs no less than the last."""
    steps = sorted(draw(st.lists(st.integers(0, 30), min_size=MOST, max_size=MOST)))
    first = draw(st.integers(1, 100))
    return [first + sum(steps[:n]) for n in range(MOST + 1)]


falling = path_costs.map(sorted)


@settings(max_examples=examples(300, quick=40))
@given(path_costs, any_units)
def test_kernel_is_the_fractions(path: list[int], units: list[int]) -> None:
    case = Case(path, units)
    found = case.found(0.05)
    assert found[AVAILABLE] == len(path)
    assert found[MAXIMA] == deep_maxima_by_listing(case.curve, Fraction(ROUNDING))
    assert found[DEEP_MAXIMA] == deep_maxima_by_listing(case.curve, Fraction(0.05))
    assert found[FIRST_STOP] == first_stop_by_hand(case.curve)
    assert found[BEST] == best_by_hand(case.curve)
    assert root_curve(case.expected, 0, case.costs) == pytest.approx(
        [float(fraction) for fraction in case.curve], rel=1e-15
    )


@settings(max_examples=examples(300, quick=40))
@given(path_costs, any_units, st.lists(any_units, min_size=1, max_size=5))
def test_valleys_that_stay_are_those_of_the_listing(path: list[int], units: list[int], drawn: list[list[int]]) -> None:
    case = Case(path, units)
    drawn_s = np.array(drawn, np.float64)[:, None, :] / UNITS
    ((stays, deep),) = kept_valleys(case.expected, case.costs, drawn_s, 0.05).tolist()
    curves = [Case(path, one).curve for one in drawn]
    assert (stays, deep) == pytest.approx(kept_by_hand(case.curve, curves, Fraction(ROUNDING), Fraction(0.05)))
    assert bool(valleys_by_listing(case.curve, Fraction(ROUNDING))) == (case.found()[MAXIMA] > 1)


@settings(max_examples=examples(100, quick=40))
@given(path_costs, any_units)
def test_at_the_same_prices_every_valley_stays(path: list[int], units: list[int]) -> None:
    """A root has a valley that is there, or is deep, at its own prices where it has several maxima, or deep ones."""
    case = Case(path, units)
    found = case.found(0.05)
    ((stays, deep),) = kept_valleys(case.expected, case.costs, case.costs.seconds[None], 0.05).tolist()
    assert (stays, deep) == (float(found[MAXIMA] > 1), float(found[DEEP_MAXIMA] > 1))


@settings(max_examples=examples(300, quick=40))
@given(st.lists(st.integers(1, 5), min_size=1, max_size=14))
def test_maxima_are_counted_once_for_each_plateau(values: list[int]) -> None:
    curve = [Fraction(value) for value in values]
    assert (
        num_maxima(np.array(values, np.float64), 0.0)
        == maxima_by_hand(curve)
        == deep_maxima_by_listing(curve, Fraction(0))
    )


@settings(max_examples=examples(100, quick=40))
@given(path_costs, any_units, any_units, st.integers(0, 400), st.integers(0, MOST))
def test_what_rules_take_and_what_it_brings(
    path: list[int], units: list[int], viewed: list[int], rate: int, budget: int
) -> None:
    case = Case(path, units)
    tokens = [1 + sum(case.weights[:n], Fraction(0)) for n in range(len(path) + 1)]
    surplus = [token - rate * seconds for token, seconds in zip(tokens, case.seconds, strict=False)]
    at_price = min(n for n, fraction in enumerate(surplus) if fraction == max(surplus))
    stops = [first_stop_by_hand(Case(path, one).curve) for one in (units, viewed)]
    wanted = [best_by_hand(case.curve), stops[0], min(budget, len(path)), at_price, stops[1]]
    views = np.array([[viewed]]) / UNITS
    sizes, expected, paid = taken_by_rules(case.expected, case.costs, views, budget, float(rate))
    assert sizes[:, 0].tolist() == wanted
    assert expected[:, 0].tolist() == [float(tokens[size]) for size in wanted]
    assert paid[:, 0].tolist() == [float(case.seconds[size]) for size in wanted]
    sums = sum_fixed(case.expected, case.costs)
    whole = [min(n, len(path)) for n in range(MOST + 1)]
    assert sums[0].tolist() == [float(tokens[n]) for n in whole]
    assert sums[1].tolist() == [float(case.seconds[n]) for n in whole]


@settings(max_examples=examples(30))
@given(st.integers(0, 10_000))
def test_rules_end_where_the_policies_of_the_same_rules_do(seed: int) -> None:
    generator = np.random.default_rng(seed)
    texts, table = texts_of([random_sequence(generator, 5)]), random_table(generator, MOST)
    if len(texts.roots.token_indices) == 0:
        return
    layer, costs = BestFirst(Marginal()).layer(texts, MOST, True), round_costs(table, ALL_STAGES, MOST)
    expected = tokens_of_roots(layer.score_rows, texts.contexts)
    scanned = scan_curves(expected, costs, 0.01)
    scan, first, fixed, priced, viewed = taken_by_rules(expected, costs, costs.seconds[None], 3, 1.5)[0]
    assert np.array_equal(first, BestRatio(MOST, table).sizes(layer, texts.contexts))
    assert np.array_equal(scan, BestRatio(MOST, table, look_ahead=FULL_SCAN).sizes(layer, texts.contexts))
    assert np.array_equal(priced, FixedPrice(MOST, table, 1.5).sizes(layer, texts.contexts))
    assert np.array_equal(fixed, np.minimum(layer.num_available, 3))
    assert np.array_equal(viewed, first)
    assert np.array_equal(scanned[:, [AVAILABLE, FIRST_STOP, BEST]].T, [layer.num_available, first, scan])


@settings(max_examples=examples(500, quick=40))
@given(falling, convex_units())
def test_theorem_of_one_maximum(path: list[int], units: list[int]) -> None:
    """Weights that fall and seconds that are convex: the first size that brings no more is the best of all."""
    case = Case(path, units)
    assert maxima_by_hand(case.curve) == 1
    assert case.curve[first_stop_by_hand(case.curve)] == max(case.curve)
    found = case.found()
    assert found[MAXIMA] == found[DEEP_MAXIMA] == 1
    assert float(case.curve[found[FIRST_STOP]]) == pytest.approx(float(max(case.curve)), rel=1e-14)


@settings(max_examples=examples(40))
@given(st.integers(0, 10_000))
def test_theorem_on_drafted_trees_and_the_convex_view_of_any_prices(seed: int) -> None:
    generator = np.random.default_rng(seed)
    texts, table = texts_of([random_sequence(generator, 5)]), convex_view(random_table(generator, MOST))
    layer, costs = BestFirst(Marginal()).layer(texts, MOST, True), round_costs(table, ALL_STAGES, MOST)
    expected = tokens_of_roots(layer.score_rows, texts.contexts)
    scanned = scan_curves(expected, costs, 0.0)
    assert np.all(scanned[:, MAXIMA] == 1)
    for row, first in enumerate(scanned[:, FIRST_STOP]):
        curve = root_curve(expected, row, costs)
        assert curve[first] == pytest.approx(curve.max(), rel=1e-11)


STAIRS = Case([20_000, 40_000, 60_000, 80_000, 90_000, 95_000], [10, 10, 16, 16, 16, 16, 16, 30, 30, 30, 30])
"""The second token enters a new tile and does not pay for it alone; the four that follow are free and do."""


def test_a_staircase_has_several_maxima_and_first_stop_ends_at_the_wrong_one() -> None:
    found = STAIRS.found()
    assert (found[MAXIMA], found[FIRST_STOP], found[BEST]) == (2, 1, 6)
    assert maxima_by_hand(STAIRS.curve) == 2
    assert 1 - STAIRS.curve[1] / max(STAIRS.curve) > Fraction(1, 20)


@settings(max_examples=examples(200, quick=40))
@given(falling.filter(lambda path: len(path) > 2), st.integers(1, 100), st.lists(st.integers(0, 60), min_size=MOST))
def test_over_whole_tiles_a_staircase_has_one_maximum(path: list[int], first: int, edges: list[int]) -> None:
    """Of equal tiles that cost no less than the one before: no size beats those at which the last tile is full."""
    tile, rising = 3, sorted(edges)
    case = Case(path, [first + sum(rising[: n // tile]) for n in range(MOST + 1)])
    last = len(path)
    full = [n for n in range(last + 1) if (n + 1) % tile == 0 or n == last]
    ends = [case.curve[n] for n in full if (n + 1) % tile == 0]
    assert max(case.curve) == max(case.curve[n] for n in full)
    assert maxima_by_hand(ends) == 1


def test_a_layer_without_roots_has_no_curve() -> None:
    layer = OrderLayer(np.zeros((0, 3), np.uint16), np.zeros(0, np.int32), np.zeros((0, MOST + 1)))
    costs = RoundCosts(np.array([8.0]), np.ones((1, MOST + 1)))
    expected = tokens_of_roots(layer.score_rows, np.zeros(0, np.int64))
    assert scan_curves(expected, costs, 0.0).shape == (0, 5)
