"""Oracle upper bounds: what policies that knew the target's text could reach. No bound is a policy.

`fewest_rounds` has the fewest rounds that any choice of trees can have, as `simlab.sequence_replay.hindsight_rounds`,
at once, and `fewest_rounds_within` the same for trees on a channel. `best_budgets_in_hindsight` keeps an order of nodes
and chooses, at every root at which a round starts, how many of them enter, so that the seconds of the whole text are
the fewest: how much a better budget rule could still bring. No rule on the same order and prices is faster.
`best_routes_in_hindsight` does so for the routes of a router: no rule among the same routes is faster.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from simlab.arrays import Doubles, Ints, Longs, Shorts
from simlab.columns import TextRounds
from simlab.cost import STAGES, CostTable
from simlab.jit import kernel
from simlab.policies.costs.curves import ALL_STAGES, RoundCosts, costs_at, round_costs
from simlab.policies.edges.models import Marginal
from simlab.policies.engine.routed import RouteLayers
from simlab.policies.orders.best_first import BestFirst
from simlab.policies.orders.lattice_sources import source_of, true_reaches
from simlab.policies.orders.node_order import walk_layer
from simlab.policies.routing.routed_policy import RouteTrees, accepted_by, walk_routes
from simlab.policy import AnyPolicy, ChannelNeed, caught_up
from simlab.recorded import RecordedTexts


def fewest_rounds(texts: RecordedTexts, budget: int, channels: Sequence[ChannelNeed] = ()) -> TextRounds:
    """The rounds of chains of true tokens, as far as they are among the candidates and at most ``budget`` of them.

    Args:
        texts: with draft rows.
        budget: drafted tokens of a round.
        channels: whose lists may hold the tokens too; a tree is on one of them, or on the drafter's candidates.
    """
    roots = texts.drafted()
    reaches = _kept_true_tokens(roots.counts, roots.true_ranks)
    for need in channels:
        reaches = np.maximum(reaches, true_reaches(source_of(need), texts))
    return fewest_rounds_within(reaches, roots.firsts, budget)


def fewest_rounds_within(reaches: Ints, firsts: Longs, budget: int) -> TextRounds:
    """The rounds of chains of true tokens, at each root at most so many of them and at most ``budget``.

    Args:
        reaches: int32 ``[R]``, the true tokens behind each root that some tree could hold, such as
            `simlab.policies.orders.lattice_sources.true_reaches`.
        firsts: int64 ``[S + 1]``, the first root of each text, and R.
        budget: drafted tokens of a round.
    """
    visited, ends = _fewest(reaches, budget, firsts)
    return TextRounds(visited[0], visited[1], visited[1].copy(), ends)


@kernel
def _kept_true_tokens(counts: Ints, true_ranks: Ints) -> Ints:
    """How many true tokens behind each root are among the candidates, int32 ``[R]``."""
    num_roots, num_depths = counts.shape
    runs = np.zeros(num_roots, np.int32)
    for root in range(num_roots):
        while runs[root] < num_depths and 0 <= true_ranks[root, runs[root]] < counts[root, runs[root]]:
            runs[root] += 1
    return runs


@kernel
def _fewest(reaches: Ints, budget: int, firsts: Longs) -> tuple[Longs, Longs]:
    """Roots and accepted tokens of all rounds, and where the rounds of each text end."""
    num_roots = reaches.size
    reach, visited, ends = np.empty(num_roots, np.int64), np.empty((2, num_roots), np.int64), np.empty_like(firsts[1:])
    number = 0
    for text in range(firsts.size - 1):
        first, last = firsts[text], firsts[text + 1]
        for root in range(first, last):
            reach[root] = min(root + min(reaches[root], budget) + 1, last)
        root = first
        while root < last:
            # The next root whose own reach is furthest, the later one of two; the end of the text reaches itself.
            best, furthest = root + 1, -1
            for behind in range(root + 1, reach[root] + 1):
                reached = reach[behind] if behind < last else last
                if reached >= furthest:
                    best, furthest = behind, reached
            visited[0, number], visited[1, number] = root, best - root - 1
            number += 1
            root = best
        ends[text] = number
    return visited[:, :number].copy(), ends


def best_budgets_in_hindsight(texts: RecordedTexts, cost: CostTable, most: int) -> TextRounds:
    """The rounds of the fewest seconds that best-first trees can have on each text, every size tried at every root.

    A drafter pass is charged in each round, whatever its size.

    Args:
        texts: with draft rows.
        cost: what a round costs.
        most: the largest size.
    """
    layer = BestFirst(Marginal()).layer(texts, most, False)
    costs, firsts = round_costs(cost, ALL_STAGES, most), texts.roots.firsts
    sizes = _sizes(layer.insertions, layer.num_available, texts.contexts, costs, most, firsts)
    return walk_layer(layer.insertions, sizes, firsts)


@kernel
def _sizes(insertions: Shorts, available: Ints, contexts: Longs, costs: RoundCosts, most: int, firsts: Longs) -> Ints:
    """From the last root of a text to the first, the smallest size with which the rest of it takes the least."""
    num_roots, num_depths = insertions.shape
    rest, sizes = np.zeros(num_roots + 1, np.float64), np.zeros(num_roots, np.int32)
    seconds = np.empty(most + 1, np.float64)
    for text in range(firsts.size - 1):
        first, last = firsts[text], firsts[text + 1]
        for root in range(last - 1, first - 1, -1):
            costs_at(costs, int(contexts[root]), seconds)
            accepted, deepest, best = 0, min(num_depths, last - root), np.inf
            for n in range(min(available[root], most) + 1):
                while accepted < deepest and insertions[root, accepted] <= n:
                    accepted += 1
                behind = root + accepted + 1
                total = seconds[n] + (rest[behind] if behind < last else 0.0)
                if total < best:
                    best, sizes[root] = total, n
            rest[root] = best
    return sizes


def best_routes_in_hindsight(texts: RecordedTexts, cost: CostTable, routes: Sequence[AnyPolicy]) -> TextRounds:
    """The rounds of the fewest seconds that a router can have on each text, every route tried at every root.

    What drafters take to catch up is left out: it would make each rule slower, and this one too.

    Args:
        texts: with all that the routes read.
        cost: what a round costs.
        routes: policies that remember nothing and have layers, as those of which
            `simlab.policies.engine.routed.can_walk` is true.
    """
    trees, firsts = RouteLayers(texts).trees(routes), texts.roots.firsts
    seconds = np.stack([_seconds_at(texts, cost, *pair) for pair in zip(routes, trees, strict=True)])
    return walk_routes(trees, _best_routes(accepted_by(trees), seconds, firsts)[:, None], firsts)


def _seconds_at(texts: RecordedTexts, cost: CostTable, route: AnyPolicy, trees: RouteTrees) -> Doubles:
    """What a round of a route takes at each root, float64 ``[R]``."""
    paid, sizes = STAGES if route.needs.draft else STAGES[1:], trees.num_drafted.astype(np.int64)
    asked = None if trees.num_requested is None else trees.num_requested.astype(np.int64)
    every = np.arange(1, len(sizes) + 1)
    seconds: Doubles = cost.charged(route).sums(paid, texts.contexts, sizes, every, asked).sum(axis=1)
    return seconds


@kernel
def _best_routes(accepted: Longs, seconds: Doubles, firsts: Longs) -> Ints:
    """From the last root of a text to the first, the route with which the rest of it takes the least; int32 ``[R]``."""
    num_routes, num_roots = accepted.shape
    rest, best = np.zeros(num_roots + 1, np.float64), np.zeros(num_roots, np.int32)
    for text in range(firsts.size - 1):
        last = firsts[text + 1]
        for root in range(last - 1, firsts[text] - 1, -1):
            least = np.inf
            for route in range(num_routes):
                behind = root + accepted[route, root] + 1
                total = seconds[route, root] + (rest[behind] if behind < last else 0.0)
                if total < least:
                    least, best[root] = total, route
            rest[root] = least
    return best


def without_catch_up(cost: CostTable) -> CostTable:
    """Prices at which a drafter that missed some of the text reads it in no time."""
    channels = {name: channel for name, channel in cost.channels.items() if caught_up(name) is None}
    return replace(cost, channels=channels, draws=tuple(without_catch_up(draw) for draw in cost.draws))
