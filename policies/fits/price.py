"""The price of a second at which a policy's own rounds bring as much: found on a trace.

Dinkelbach (1967, Management Science 13(7)): of all sizes of all rounds those have the largest ratio of summed tokens
to summed seconds that have the largest sum of tokens less seconds at a price, where the price is that very ratio.
Tokens are those that path probabilities promise, as the rule itself reckons: a drafter that promises too many pays as
many.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import numpy as np

from simlab.columns import TextRounds
from simlab.cost import CostTable
from simlab.grid import path_weight
from simlab.policies.composition import Composition
from simlab.policies.orders.node_order import OrderLayer
from simlab.policies.rules.budgets import FixedPrice
from simlab.policies.rules.online_price import OnlinePrice
from simlab.recorded import RecordedSequence, RecordedTexts, texts_of

MOST_STEPS = 50
_CLOSE = 1e-9


@dataclass(frozen=True, slots=True)
class PricedRounds:
    """Sums over the rounds of a policy.

    Attributes:
        num_rounds: how many.
        expected: tokens that the path probabilities promise, the bonus token of each round included.
        committed: tokens that were added.
        seconds: by the policy's own prices.
    """

    num_rounds: int = 0
    expected: float = 0.0
    committed: int = 0
    seconds: float = 0.0

    def __add__(self, other: "PricedRounds") -> "PricedRounds":
        return PricedRounds(
            self.num_rounds + other.num_rounds,
            self.expected + other.expected,
            self.committed + other.committed,
            self.seconds + other.seconds,
        )

    @property
    def expected_per_s(self) -> float:
        """Expected tokens per second of these rounds."""
        return self.expected / self.seconds

    @property
    def committed_per_s(self) -> float:
        """Committed tokens per second of these rounds."""
        return self.committed / self.seconds


def fixed_point(
    policy: Composition, texts: Callable[[], Iterable[RecordedSequence]]
) -> tuple[float, dict[float, PricedRounds], bool]:
    """The price that the rounds of a policy at this price bring, from a price of 0 on.

    Args:
        policy: its rule is one that prices seconds.
        texts: reads the texts anew each time.

    Returns:
        The price, in tokens per second; the rounds at every price that was tried, in order; and whether the rounds at
        it bring just as much. Rounds change with the price, so a few prices may also take turns, and then it is the one
        of these whose rounds brought the most.
    """
    tried: dict[float, PricedRounds] = {}
    rate = 0.0
    for _ in range(MOST_STEPS):
        priced = priced_rounds(policy_at_rate(policy, rate), texts())
        if priced.num_rounds == 0:
            raise ValueError("the texts have no rounds, so there is no rate to find")
        tried[rate] = priced
        if abs(priced.expected_per_s - rate) <= _CLOSE * rate:
            return rate, tried, True
        rate = priced.expected_per_s
        if rate in tried:
            break
    prices = list(tried)
    turns = prices[prices.index(rate) :] if rate in tried else prices
    best = max(turns, key=lambda value: tried[value].expected_per_s)
    return best, tried, False


def policy_at_rate(policy: Composition, rate: float) -> Composition:
    """A policy with its rule at a fixed price in tokens per second."""
    rule = policy.rule
    if not isinstance(rule, OnlinePrice | FixedPrice):
        raise ValueError(
            f"expected a policy whose rule exchanges seconds for tokens at a rate, such as price; got {policy!r}"
        )
    return replace(policy, rule=FixedPrice(rule.most, rule.cost, rate, rule.stages, look_ahead=rule.look_ahead))


def priced_rounds(policy: Composition, texts: Iterable[RecordedSequence]) -> PricedRounds:
    """The rounds of a policy with a fixed price on some texts, summed."""
    rule, total = policy.rule, PricedRounds()
    assert isinstance(rule, FixedPrice)
    for recorded in texts:
        if len(recorded.text) > 1:
            single = texts_of([recorded])
            layer = policy.order.layer(single, rule.most, True)
            total += rounds_of_layer(layer, policy.walk(layer, single), single, rule.cost, rule.stages)
    return total


def rounds_of_layer(
    layer: OrderLayer, text_rounds: TextRounds, texts: RecordedTexts, cost: CostTable, stages: tuple[str, ...]
) -> PricedRounds:
    """The sums over the rounds of some texts.

    Args:
        layer: of all roots, with scores.
        text_rounds: the rounds.
        texts: the texts.
        cost: what a round costs.
        stages: those that count.
    """
    assert layer.scores is not None
    roots, sizes = text_rounds.roots, text_rounds.num_drafted
    within = np.arange(layer.scores.shape[1]) <= sizes[:, None]
    expected = float(np.where(within, path_weight(layer.scores[roots]), 0.0).sum())
    seconds = sum(float(cost.at(stage, texts.contexts[roots], sizes).sum()) for stage in stages)
    return PricedRounds(len(roots), expected, len(texts.roots.token_indices), seconds)
