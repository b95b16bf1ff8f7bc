"""The price that a policy's own rounds bring, and what it is worth there."""

import numpy as np
import pytest
from depth import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from made_up_costs import random_table

from simlab.arrays import Ints
from simlab.columns import TextRounds
from simlab.cost import CostTable
from simlab.grid import path_weight
from simlab.policies.composition import Composition
from simlab.policies.costs.curves import ALL_STAGES, MODEL_STAGES
from simlab.policies.edges.models import Marginal
from simlab.policies.fits.price import PricedRounds, fixed_point, policy_at_rate, priced_rounds, rounds_of_layer
from simlab.policies.named.price import Price
from simlab.policies.orders.best_first import BestFirst
from simlab.policies.rules.budgets import FixedBudget, FixedPrice
from simlab.policies.rules.online_price import OnlinePrice
from simlab.recorded import RecordedSequence, texts_of
from simlab.sequence_replay import rounds
from simlab.testing.random_texts import random_sequence

MOST = 20
ORDER = BestFirst(Marginal())


def drawn_texts(generator: np.random.Generator, number: int) -> list[RecordedSequence]:
    texts = (random_sequence(generator, most_kept=10) for _ in range(10 * number))
    return [text for text in texts if len(text.text) > 1][:number]


def learning(table: CostTable, stages: tuple[str, ...] = ALL_STAGES) -> Composition:
    return Composition(ORDER, OnlinePrice(MOST, table, 0.9, stages))


def by_hand(policy: Composition, texts: list[RecordedSequence]) -> tuple[int, float, int, float]:
    """Rounds, expected tokens, committed tokens and seconds, tree by tree."""
    rule = policy.rule
    assert isinstance(rule, FixedPrice)
    number, expected, committed, seconds = 0, 0.0, 0, 0.0
    for recorded in texts:
        rows = recorded.rows
        assert rows is not None
        starts = rows.starts()
        for one in rounds(policy, recorded):
            marginals = rows.row(one.position, int(starts[one.position]))
            levels = [marginals.at(depth + 1) for depth in range(marginals.depth)]
            log_probs = [dict(zip(ids.tolist(), values.tolist(), strict=True)) for ids, values in levels]
            scores, depths = [0.0], [0]
            for token, parent in zip(one.tree.tokens[1:].tolist(), one.tree.parents[1:].tolist(), strict=True):
                depths.append(depths[parent] + 1)
                scores.append(scores[parent] + log_probs[depths[parent]][token])
            number += 1
            expected += float(path_weight(np.array(scores)).sum())
            committed += one.num_committed
            context = len(recorded.prompt.token_ids) + one.position
            seconds += sum(float(rule.cost.curve(stage, context)[one.num_drafted]) for stage in rule.stages)
    return number, expected, committed, seconds


@pytest.mark.parametrize("stages", [ALL_STAGES, MODEL_STAGES])
@pytest.mark.parametrize("rate", [0.0, 2.0, 50.0])
def test_rounds_are_priced_as_by_hand(stages: tuple[str, ...], rate: float) -> None:
    generator = np.random.default_rng(1)
    texts, table = drawn_texts(generator, 15), random_table(generator, MOST)
    policy = policy_at_rate(learning(table, stages), rate)
    found = priced_rounds(policy, texts)
    number, expected, committed, seconds = by_hand(policy, texts)
    assert (found.num_rounds, found.committed) == (number, committed)
    assert found.expected == pytest.approx(expected, rel=1e-12)
    assert found.seconds == pytest.approx(seconds, rel=1e-12)


def all_roots(sizes: Ints) -> TextRounds:
    """A round at every root of one text, for sums over any fixed set of rounds."""
    number = len(sizes)
    return TextRounds(np.arange(number), sizes.astype(np.int64), np.zeros(number, np.int64), np.array([number]))


@settings(max_examples=examples(80))
@given(st.integers(0, 1 << 30), st.integers(1, MOST))
def test_at_the_rate_of_a_fixed_budget_the_price_never_loses_to_it(seed: int, budget: int) -> None:
    """In expected tokens per second, on the rounds that the rate was found on: all sizes tried."""
    generator = np.random.default_rng(seed)
    table = random_table(generator, MOST)
    own, texts = np.zeros(2), drawn_texts(generator, 4)
    visited = []
    for recorded in texts:
        one = texts_of([recorded])
        layer = ORDER.layer(one, MOST, True)
        found = Composition(ORDER, FixedBudget(budget)).walk(layer, one)
        visited.append((layer, one, found))
        sums = rounds_of_layer(layer, found, one, table, ALL_STAGES)
        own += (sums.expected, sums.seconds)
    rate = own[0] / own[1]
    total = PricedRounds()
    for layer, one, found in visited:
        sizes = FixedPrice(MOST, table, rate).sizes(layer, one.contexts).astype(np.int64)[found.roots]
        same_roots = TextRounds(found.roots, sizes, found.num_accepted, found.ends)
        total += rounds_of_layer(layer, same_roots, one, table, ALL_STAGES)
    assert total.expected_per_s >= rate * (1 - 1e-12)


def test_a_rate_may_be_nothing_and_is_never_negative_or_infinite() -> None:
    assert Price(rate=0.0).rate == 0.0
    for rate in (-1.0, float("inf"), float("nan")):
        with pytest.raises(ValueError, match="rate must be tokens per second, at least 0"):
            Price(rate=rate)


@settings(max_examples=examples(40))
@given(st.integers(0, 1 << 30))
def test_the_rounds_at_the_fixed_point_bring_its_rate(seed: int) -> None:
    generator = np.random.default_rng(seed)
    texts, table = drawn_texts(generator, 8), random_table(generator, MOST)
    rate, tried, settled = fixed_point(learning(table), lambda: iter(texts))
    again = priced_rounds(policy_at_rate(learning(table), rate), texts)
    assert again == tried[rate]
    assert next(iter(tried)) == 0.0
    if settled:
        assert again.expected_per_s == pytest.approx(rate, rel=1e-9)
        # No sizes at all bring more on these rounds: Dinkelbach's condition, tried with sizes drawn at random.
        for recorded in texts:
            its = texts_of([recorded])
            layer = ORDER.layer(its, MOST, True)
            best = FixedPrice(MOST, table, rate).sizes(layer, its.contexts)
            other = np.minimum(generator.integers(0, MOST + 1, len(best)), layer.num_available).astype(np.int32)
            one, two = (rounds_of_layer(layer, all_roots(sizes), its, table, ALL_STAGES) for sizes in (best, other))
            assert one.expected - rate * one.seconds >= two.expected - rate * two.seconds - 1e-9
    else:
        brings = {price: priced_rounds(policy_at_rate(learning(table), price), texts).expected_per_s for price in tried}
        turns = [brings[list(tried)[-1]]]
        while turns[0] not in turns[1:]:
            turns.append(brings[turns[-1]])
        assert rate in turns
        assert tried[rate].expected_per_s == max(turns)


def test_on_fixed_rounds_the_search_is_dinkelbachs() -> None:
    """Texts of two tokens have one round whatever the tree, so prices rise from step to step and settle."""
    generator = np.random.default_rng(3)
    many = (random_sequence(generator, most_kept=10) for _ in range(400))
    texts = [sequence for sequence in many if len(sequence.text) == 2]
    table = random_table(generator, MOST)
    rate, tried, settled = fixed_point(learning(table), lambda: texts)
    assert settled
    assert list(tried) == sorted(tried)
    alone = [texts_of([text]) for text in texts]
    layers = [ORDER.layer(one, MOST, True) for one in alone]
    for budget in range(MOST + 1):
        total = PricedRounds()
        for one, layer in zip(alone, layers, strict=True):
            sizes = np.minimum(layer.num_available, budget)
            total += rounds_of_layer(layer, all_roots(sizes), one, table, ALL_STAGES)
        assert total.expected_per_s <= rate * (1 + 1e-12)


def test_other_rules_and_no_rounds_are_refused() -> None:
    table = random_table(np.random.default_rng(4), MOST)
    with pytest.raises(ValueError, match="whose rule exchanges seconds for tokens at a rate"):
        fixed_point(Composition(ORDER, FixedBudget(3)), list)
    with pytest.raises(ValueError, match="no rounds"):
        fixed_point(learning(table), list)


def test_a_policy_keeps_its_order_and_look_ahead_at_a_rate() -> None:
    table = random_table(np.random.default_rng(5), MOST)
    policy = Composition(ORDER, OnlinePrice(7, table, 0.5, MODEL_STAGES, look_ahead=3), {"cost": "made-up"}, "a label")
    found = policy_at_rate(policy, 2.0)
    assert isinstance(found.rule, FixedPrice)
    assert (found.order, found.artefacts) == (policy.order, policy.artefacts)
    rule = found.rule
    assert (rule.most, rule.cost, rule.rate, rule.stages, rule.look_ahead) == (7, table, 2.0, MODEL_STAGES, 3)
