"""Routers in replays: the rounds of their routes' layers, and what drafters take to catch up."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from simlab.arrays import Doubles, Longs
from simlab.columns import TextRounds
from simlab.cost import ChannelSeconds, CostTable
from simlab.policies.composition import Composition, composition_of
from simlab.policies.orders.node_order import OrderLayer
from simlab.policies.routing.routed_policy import (
    RoutedPolicy,
    RouteTrees,
    deepest_of,
    missed_tokens,
    no_trees,
    walk_routes,
)
from simlab.policies.rules.online_price import OnlinePrice
from simlab.policy import DRAFTER, AnyPolicy, catch_up_name, drafters_of, is_plain_decoding
from simlab.recorded import RecordedTexts


def can_walk(policy: RoutedPolicy) -> bool:
    """Whether all of its routes have layers; a route of one's own class has none, and is replayed round by round."""
    return all(is_plain_decoding(route) or composition_of(route) is not None for route in policy.routes)


@dataclass(frozen=True, slots=True)
class RouteLayers:
    """The rounds of routers on some texts; routes of equal orders share their layers.

    Attributes:
        texts: the texts.
    """

    texts: RecordedTexts
    _layers: dict[tuple[str, int, bool], OrderLayer] = field(default_factory=dict, init=False)

    def rounds(self, policy: RoutedPolicy) -> TextRounds:
        """The rounds of a router of which `can_walk` is true.

        Raises:
            MissingChannelError: the texts do not hold what a route or the rule reads.
        """
        trees = self.trees(policy.routes)
        return walk_routes(trees, policy.rule.routes_of(self.texts, deepest_of(trees)), self.texts.roots.firsts)

    def trees(self, routes: Sequence[AnyPolicy]) -> list[RouteTrees]:
        """What the trees of each route hold at each root."""
        return [self._trees(route) for route in routes]

    def _trees(self, route: AnyPolicy) -> RouteTrees:
        if is_plain_decoding(route):
            return no_trees(len(self.texts.roots.token_indices))
        composition = composition_of(route)
        if composition is None or isinstance(composition.rule, OnlinePrice):
            raise ValueError(f"{route!r} has no layer; ask `can_walk` first")
        layer = self._layer(composition)
        return RouteTrees(layer.insertions, composition.rule.sizes(layer, self.texts.contexts), layer.num_requested)

    def _layer(self, composition: Composition) -> OrderLayer:
        rule = composition.rule
        key = composition.order.key, rule.most, rule.needs_scores
        if key not in self._layers:
            self._layers[key] = composition.order.layer(self.texts, rule.most, rule.needs_scores)
        return self._layers[key]


def catch_ups(
    routes: Sequence[AnyPolicy], played: TextRounds, texts: RecordedTexts, cost: CostTable
) -> Iterator[tuple[str, Doubles, Doubles]]:
    """What drafters take to read what they missed, where the prices say it.

    Args:
        routes: of the router.
        played: its rounds.
        texts: the texts.
        cost: what rounds cost.

    Yields:
        the stage that takes longer, ``draft`` or ``channel``; seconds of each text, float64 ``[S]``; and of each at the
        ``draws`` of the prices, ``[S, B]``.
    """
    assert played.routes is not None
    firsts, num_texts = texts.roots.firsts, len(played.ends)
    of_text = np.searchsorted(firsts, played.roots, side="right") - 1
    committed = np.minimum(played.num_accepted + 1, firsts[of_text + 1] - played.roots)
    for drafter in dict.fromkeys(drafter for route in routes for drafter in drafters_of(route)):
        name = catch_up_name(drafter)
        if name not in cost.channels:
            continue
        using = [index for index, route in enumerate(routes) if drafter in drafters_of(route)]
        missed = missed_tokens(np.isin(played.routes, using), committed, played.ends)
        late = np.flatnonzero(missed)
        contexts, tables = texts.contexts[played.roots[late]], (cost, *cost.draws)
        seconds = [_seconds(table.channels[name], table.contexts, missed[late], contexts) for table in tables]
        sums = np.stack([np.bincount(of_text[late], column, num_texts) for column in seconds], axis=-1).astype(
            np.float64
        )
        yield "draft" if drafter == DRAFTER else "channel", sums[:, 0], sums[:, 1:]


def _seconds(price: ChannelSeconds, grid: Longs, missed: Longs, contexts: Longs) -> Doubles:
    """What reading so many missed tokens takes beyond reading none, float64 ``[N]``; linear behind the last measured.

    Args:
        price: of drafting where so many tokens more than usual wait, the fewest of them standing for none.
        grid: int64 ``[C]``, its contexts.
        missed: int64 ``[N]``, at least 1.
        contexts: int64 ``[N]``.
    """
    beyond = np.zeros((len(grid), len(missed)))
    for index, row in enumerate(price.seconds):
        extra = np.maximum(row - row[0], 0.0)
        beyond[index] = np.interp(missed, price.units, extra)
        if len(extra) > 1:
            slope = max(extra[-1] - extra[-2], 0.0) / (price.units[-1] - price.units[-2])
            beyond[index] += np.maximum(missed - price.units[-1], 0) * slope
    high = np.clip(np.searchsorted(grid, contexts), 0, len(grid) - 1)
    low = np.maximum(high - 1, 0)
    share = np.clip((contexts - grid[low]) / np.maximum(grid[high] - grid[low], 1), 0.0, 1.0)
    every = np.arange(len(missed))
    return np.asarray(beyond[low, every] * (1.0 - share) + beyond[high, every] * share, np.float64)
