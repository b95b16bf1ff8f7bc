"""Budget rules against plain loops over exact numbers, and what must hold between policies that use them."""

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pytest
from depth import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from made_up_artefacts import MadeUpArtefacts
from made_up_costs import random_table
from order_checks import same

from simlab.columns import columns_of
from simlab.cost import GRID_STAGES, PLAIN, CostTable
from simlab.errors import PolicyError
from simlab.grid import path_weight
from simlab.policies.composition import Composition
from simlab.policies.costs.curves import ALL_STAGES, MODEL_STAGES
from simlab.policies.edges.models import Marginal
from simlab.policies.engine.replay import replay_policies
from simlab.policies.named.bastion import Bastion
from simlab.policies.named.caddtree import CaDDTree
from simlab.policies.named.price import Price
from simlab.policies.orders.best_first import BestFirst
from simlab.policies.orders.node_order import OrderLayer
from simlab.policies.rules.budgets import FULL_SCAN, BestRatio, FixedBudget, FixedPrice, FloorAndStep, SurvivalBudget
from simlab.policies.rules.online_price import OnlinePrice
from simlab.recorded import RecordedSequence, texts_of
from simlab.sequence_replay import rounds
from simlab.testing.random_texts import random_sequence

MOST = 12
STEPS = 65536


@dataclass(frozen=True)
class Case:
    """One root: path costs in grid steps in the order of nodes, and prices that binary fractions hold exactly."""

    path_costs: list[int]
    table: CostTable
    context: int

    def layer(self) -> OrderLayer:
        scores = np.full((1, MOST + 1), -np.inf)
        scores[0, 0] = 0.0
        scores[0, 1 : len(self.path_costs) + 1] = np.array(self.path_costs) / -STEPS
        return OrderLayer(np.zeros((1, 0), np.uint16), np.array([len(self.path_costs)], np.int32), scores)

    def contexts(self) -> "np.ndarray[tuple[int, ...], np.dtype[np.int64]]":
        return np.array([self.context], np.int64)

    def tokens(self, discount: Fraction = Fraction(1)) -> list[Fraction]:
        """Expected tokens of each size, the bonus token counted whole."""
        weights = [Fraction(float(path_weight(-cost / STEPS))) for cost in self.path_costs]
        return [1 + discount * sum(weights[:n], Fraction(0)) for n in range(len(weights) + 1)]

    def seconds(self, stages: tuple[str, ...]) -> list[Fraction]:
        """Of each size at the root's context, linear between the two contexts of the table."""
        low, high = self.table.contexts.tolist()
        share = min(max(Fraction(self.context - low, high - low), Fraction(0)), Fraction(1))
        both = [
            [sum(Fraction(self.table.seconds[s][row, n]) for s in stages) for n in range(MOST + 1)] for row in (0, 1)
        ]
        return [one * (1 - share) + other * share for one, other in zip(*both, strict=True)]


@st.composite
def cases(draw: st.DrawFn, falling: bool = False) -> Case:
    cost = st.one_of(st.sampled_from([0, STEPS // 2, STEPS, 40 * STEPS]), st.integers(0, 1 << 21))
    path_costs = draw(st.lists(cost, max_size=MOST))
    kind = draw(st.sampled_from(["constant", "any"]))
    units = st.just(16) if kind == "constant" else st.integers(1, 64)
    seconds = {
        stage: np.array(draw(st.lists(units, min_size=2 * MOST + 2, max_size=2 * MOST + 2))).reshape(2, MOST + 1) / 64
        for stage in GRID_STAGES
    }
    table = CostTable("drawn", np.array([8, 24]), {**seconds, PLAIN: np.ones((2, 1))})
    return Case(sorted(path_costs) if falling else path_costs, table, draw(st.integers(0, 30)))


def best_ratio_by_hand(
    tokens: list[Fraction], seconds: list[Fraction], most: int, look_ahead: int | None, tile: int
) -> int:
    """Sizes are tried in order; None: all of them."""
    last = min(most, len(tokens) - 1)
    tried = [n for n in range(1, last + 1) if (n + 1) % tile == 0 or n == last]
    best, missed = 0, 0
    for n in tried:
        if tokens[n] / seconds[n] > tokens[best] / seconds[best]:
            best, missed = n, 0
        else:
            missed += 1
        if missed == look_ahead:
            break
    return best


@settings(max_examples=examples(400))
@given(
    cases(),
    st.integers(1, MOST),
    st.sampled_from([1, 2, 3, None]),
    st.sampled_from([1, 2, 4, 5]),
    st.sampled_from([ALL_STAGES, MODEL_STAGES]),
    st.sampled_from([1, 0.5, 0.0]),
)
def test_best_ratio(
    case: Case, most: int, look_ahead: int | None, tile: int, stages: tuple[str, ...], discount: float
) -> None:
    rule = BestRatio(most, case.table, stages, look_ahead=look_ahead or FULL_SCAN, tile=tile, discount=discount)
    expected = best_ratio_by_hand(case.tokens(Fraction(discount)), case.seconds(stages), most, look_ahead, tile)
    assert rule.sizes(case.layer(), case.contexts()).tolist() == [expected]


@given(cases())
def test_a_full_scan_finds_the_best_ratio_of_all(case: Case) -> None:
    found = int(BestRatio(MOST, case.table, look_ahead=FULL_SCAN).sizes(case.layer(), case.contexts())[0])
    ratios = [token / other for token, other in zip(case.tokens(), case.seconds(ALL_STAGES), strict=False)]
    assert ratios[found] == max(ratios)
    assert ratios.index(max(ratios)) == found


def floor_and_step_by_hand(
    tokens: list[Fraction], seconds: list[Fraction], most: int, floor: int, step: int, doubling: bool
) -> int:
    """Sizes with the root, as published; the result without it."""
    last = min(most, len(tokens) - 1) + 1
    size = min(floor, last)
    while size < last and tokens[size] / seconds[size] > tokens[size - 1] / seconds[size - 1]:
        size += 1
    if size > floor:
        allowed = [floor * 2**k for k in range(8)] if doubling else list(range(floor, size + 1, step))
        size = max(one for one in allowed if one <= size)
    return size - 1


@settings(max_examples=examples(300))
@given(cases(), st.integers(1, MOST), st.integers(1, MOST + 4), st.integers(1, 6), st.booleans())
def test_floor_and_step(case: Case, most: int, floor: int, step: int, doubling: bool) -> None:
    rule = FloorAndStep(most, case.table, floor=floor, step=step, doubling=doubling)
    expected = floor_and_step_by_hand(case.tokens(), case.seconds(ALL_STAGES), most, floor, step, doubling)
    assert rule.sizes(case.layer(), case.contexts()).tolist() == [expected]


@settings(max_examples=examples(300))
@given(cases(falling=True), st.integers(1, MOST), st.one_of(st.sampled_from([0.0, 1.0]), st.floats(1e-9, 1.0)))
def test_survival(case: Case, most: int, threshold: float) -> None:
    lowest = math.inf if threshold == 0 else round(-math.log(threshold) * STEPS)
    expected = sum(cost <= lowest for cost in case.path_costs[:most])
    assert SurvivalBudget(most, threshold).sizes(case.layer(), case.contexts()).tolist() == [expected]


@settings(max_examples=examples(300))
@given(cases(), st.integers(1, MOST), st.integers(0, 200), st.sampled_from([1, 2, None]))
def test_a_fixed_price(case: Case, most: int, eighths: int, look_ahead: int | None) -> None:
    rule = FixedPrice(most, case.table, eighths / 8, look_ahead=look_ahead or FULL_SCAN)
    seconds = case.seconds(ALL_STAGES)
    surplus = [token - Fraction(eighths, 8) * other for token, other in zip(case.tokens(), seconds, strict=False)][
        : most + 1
    ]
    best, missed = 0, 0
    for n in range(1, len(surplus)):
        best, missed = (n, 0) if surplus[n] > surplus[best] else (best, missed + 1)
        if missed == look_ahead:
            break
    assert rule.sizes(case.layer(), case.contexts()).tolist() == [best]


@given(cases(), st.integers(1, MOST))
def test_a_fixed_budget(case: Case, most: int) -> None:
    assert FixedBudget(most).sizes(case.layer(), case.contexts()).tolist() == [min(most, len(case.path_costs))]


def online_price_by_hand(
    layer: OrderLayer, table: CostTable, rule: OnlinePrice, recorded: RecordedSequence
) -> list[tuple[int, int]]:
    """Position and size of each round."""
    assert layer.scores is not None
    found, position, last = [], 0, len(recorded.text) - 1
    mean_tokens = mean_seconds = None
    while position < last:
        row = layer.scores[position]
        tokens = [1 + float(path_weight(row[1 : n + 1]).sum()) for n in range(int(np.sum(row > -np.inf)))]
        context = np.full(len(tokens), len(recorded.prompt.token_ids) + position)
        by_stage = [table.at(stage, context, np.arange(len(tokens))) for stage in rule.stages]
        seconds = np.sum(by_stage, axis=0).tolist()
        if mean_tokens is None or mean_seconds is None:
            rate = max(token / other for token, other in zip(tokens, seconds, strict=True))
        else:
            rate = mean_tokens / mean_seconds
        surplus = [token - rate * other for token, other in zip(tokens, seconds, strict=True)]
        # At the best ratio of the round all that reach it have a surplus of 0, give or take a rounding.
        size = min(n for n in range(len(surplus)) if surplus[n] >= max(surplus) - 1e-12)
        found.append((position, size))
        accepted = sum(place <= size for place in layer.insertions[position].tolist())
        committed = min(accepted + 1, last - position)
        if mean_tokens is None or mean_seconds is None:
            mean_tokens, mean_seconds = float(committed), float(seconds[size])
        else:
            mean_tokens = rule.memory * mean_tokens + (1 - rule.memory) * committed
            mean_seconds = rule.memory * mean_seconds + (1 - rule.memory) * float(seconds[size])
        position += committed
    return found


def texts(seed: int, number: int, most_kept: int = 12) -> list[RecordedSequence]:
    generator = np.random.default_rng(seed)
    return [random_sequence(generator, most_kept) for _ in range(number)]


@pytest.mark.parametrize("memory", [0.0, 0.5, 0.95])
def test_a_price_learnt_on_the_way(memory: float) -> None:
    generator, order = np.random.default_rng(2), BestFirst(Marginal())
    for recorded in texts(3, 40):
        table = random_table(generator, most_drafted=30)
        rule = OnlinePrice(20, table, memory)
        policy = Composition(order, rule)
        found = replay_policies([policy], recorded)[0]
        assert same(found, columns_of(rounds(policy, recorded)))
        if len(recorded.text) > 1:
            expected = online_price_by_hand(order.layer(texts_of([recorded]), 20, True), table, rule, recorded)
            assert list(zip(found.positions.tolist(), found.num_drafted.tolist(), strict=True)) == expected


def test_they_need_prices() -> None:
    for recipe in (CaDDTree(), Bastion(), Price()):
        with pytest.raises(PolicyError, match="give it a cost file"):
            recipe.compose(MadeUpArtefacts())
    policy = CaDDTree(budget=41).compose(MadeUpArtefacts(random_table(np.random.default_rng(1), most_drafted=40)))
    with pytest.raises(ValueError, match="the cost file made-up ends at 40"):
        replay_policies([policy], next(text for text in texts(4, 20) if len(text.text) > 1))
