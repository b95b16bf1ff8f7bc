"""How far down an order of nodes the true path lies, and how many nodes it takes to have it."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from simlab.analysis.statistics.intervals import prompt_spread, ratios
from simlab.analysis.table.estimates import Estimate, estimates, share_estimates
from simlab.arrays import Bools, Doubles, Ints, Longs, Shorts
from simlab.grid import path_weight
from simlab.policies.orders.node_order import NEVER, OrderLayer


@dataclass(frozen=True, slots=True, eq=False)
class OrderPlaces:
    """One order of nodes at every root.

    Attributes:
        label: of the first policy that has it, without its budget.
        insertions: uint16 ``[R, D]``, the place of the true path's node at each depth, from 1; `NEVER` beyond the most
            that were looked at, where the true token is no candidate, and behind the text.
        available: int32 ``[R]``, nodes that were looked at.
        expected: float64 ``[R, caps]``, summed path probabilities of the first nodes; None where scores are none.
    """

    label: str
    insertions: Shorts
    available: Ints
    expected: Doubles | None

    @staticmethod
    def joined(parts: "Sequence[OrderPlaces]") -> "OrderPlaces":
        """One order at different roots, one behind the other."""
        expected = [part.expected for part in parts if part.expected is not None]
        return OrderPlaces(
            parts[0].label,
            np.concatenate([part.insertions for part in parts]),
            np.concatenate([part.available for part in parts]),
            np.concatenate(expected) if expected else None,
        )


@dataclass(frozen=True, slots=True, eq=False)
class TruePlaces:
    """Where the true path is in several orders, at the same roots.

    Attributes:
        most: nodes that were looked at, at most.
        caps: node counts at which coverage is told; at most ``most``.
        num_prompts: P.
        prompts: int64 ``[R]``, the prompt of each root.
        left: int64 ``[R]``, tokens of the text behind it.
        orders: in the order asked.
    """

    most: int
    caps: tuple[int, ...]
    num_prompts: int
    prompts: Longs
    left: Longs
    orders: tuple[OrderPlaces, ...]

    @staticmethod
    def joined(parts: "Sequence[TruePlaces]") -> "TruePlaces":
        """Places at the roots of different prompts, one behind the other."""
        first = np.cumsum([0, *(part.num_prompts for part in parts)])
        return TruePlaces(
            most=parts[0].most,
            caps=parts[0].caps,
            num_prompts=int(first[-1]),
            prompts=np.concatenate([part.prompts + before for part, before in zip(parts, first, strict=False)]),
            left=np.concatenate([part.left for part in parts]),
            orders=tuple(map(OrderPlaces.joined, zip(*(part.orders for part in parts), strict=True))),
        )

    def take(self, prompts: Longs) -> "TruePlaces":
        """Places at the roots of some prompts, which are renumbered in the order given."""
        number = np.full(self.num_prompts, -1, np.int64)
        number[prompts] = np.arange(len(prompts))
        kept = np.flatnonzero(number[self.prompts] >= 0)
        orders = tuple(
            OrderPlaces(
                order.label,
                order.insertions[kept],
                order.available[kept],
                None if order.expected is None else order.expected[kept],
            )
            for order in self.orders
        )
        return TruePlaces(
            most=self.most,
            caps=self.caps,
            num_prompts=len(prompts),
            prompts=number[self.prompts][kept],
            left=self.left[kept],
            orders=orders,
        )


@dataclass(frozen=True, slots=True)
class Coverage:
    """What it takes to have the true path down to a depth.

    Attributes:
        order: its label.
        depth: from 1.
        roots: those with at least so many tokens behind them.
        shares: of them, the share whose first nodes, as many as each cap says, hold the path.
        median: nodes it takes at half the roots; None where more than were looked at, or none suffice.
        ninety: nodes it takes at nine roots of ten; the same.
    """

    order: str
    depth: int
    roots: int
    shares: tuple[Estimate, ...]
    median: int | None
    ninety: int | None


@dataclass(frozen=True, slots=True)
class OrderFigures:
    """How well an order ranks nodes.

    Attributes:
        order: its label.
        auc: in the tree of the first nodes, how often a node of the true path comes before one that is not; mean over
            the roots whose tree has both.
        excess: how many times as many nodes as an oracle's order it takes to reach a node of the true path, geometric
            mean over those nodes that all orders reach.
        expected: accepted tokens that path probabilities promise at each cap, mean over roots with a whole block of
            text behind them; None where scores are no probabilities.
        accepted: those there are.
        overstated: their difference as a share of ``accepted``.
    """

    order: str
    auc: Estimate
    excess: Estimate
    expected: tuple[float, ...] | None
    accepted: tuple[float, ...]
    overstated: tuple[Estimate, ...] | None


def places_of(label: str, layer: OrderLayer, caps: Sequence[int], has_probabilities: bool) -> OrderPlaces:
    """What is kept of a layer with scores."""
    expected = None
    if has_probabilities:
        rows = layer.score_rows
        weights = np.where(rows > -np.inf, path_weight(np.maximum(rows, -255.0)), 0.0)
        weights[:, :1] = 0.0
        sums = np.cumsum(weights, axis=1)
        expected = np.stack([sums[:, min(cap, rows.shape[1] - 1)] for cap in caps], axis=1)
    return OrderPlaces(label, layer.insertions, layer.num_available, expected)


def path_coverage(places: TruePlaces, order: OrderPlaces) -> list[Coverage]:
    """How soon an order reaches the true path, for each depth that some text reaches."""
    found = []
    for depth in range(1, order.insertions.shape[1] + 1):
        there = places.left >= depth
        if not there.any():
            break
        nodes, prompts = order.insertions[there, depth - 1].astype(np.int64), places.prompts[there]
        columns = [np.ones(len(nodes)), *(nodes <= cap for cap in places.caps)]
        spread = prompt_spread(_by_prompt(prompts, columns, places.num_prompts), ratios)
        found.append(
            Coverage(
                order=order.label,
                depth=depth,
                roots=len(nodes),
                shares=tuple(share_estimates(spread)),
                median=_quantile(nodes, 0.5, places.most),
                ninety=_quantile(nodes, 0.9, places.most),
            )
        )
    return found


def order_figures(places: TruePlaces) -> list[OrderFigures]:
    """Figures of each order of nodes, all at the same roots."""
    shared = np.logical_and.reduce([order.insertions <= places.most for order in places.orders])
    return [_figures(places, order, shared) for order in places.orders]


def _figures(places: TruePlaces, order: OrderPlaces, shared: Bools) -> OrderFigures:
    depths = np.arange(1, order.insertions.shape[1] + 1)
    with np.errstate(divide="ignore"):
        logs = np.where(shared, np.log(order.insertions / depths), 0.0).sum(axis=1)
    has_both, areas = root_areas(order, places.most)
    columns = [has_both, np.where(has_both, areas, 0.0)]
    auc = prompt_spread(_by_prompt(places.prompts, columns, places.num_prompts), ratios)
    excess = prompt_spread(_by_prompt(places.prompts, [shared.sum(axis=1), logs], places.num_prompts), ratios).exp()
    whole = places.left >= len(depths)
    accepted = np.stack([(order.insertions <= cap).sum(axis=1) for cap in places.caps], axis=1)[whole]
    mean = tuple(accepted.mean(axis=0).tolist()) if whole.any() else (np.nan,) * len(places.caps)
    overstated, expected = None, None
    if order.expected is not None:
        expected = tuple(order.expected[whole].mean(axis=0).tolist()) if whole.any() else mean
        spreads = [
            prompt_spread(_by_prompt(places.prompts[whole], [there, promised - there], places.num_prompts), ratios)
            for there, promised in zip(accepted.T, order.expected[whole].T, strict=True)
        ]
        overstated = tuple(estimates(spread)[0] for spread in spreads)
    return OrderFigures(
        order=order.label,
        auc=share_estimates(auc)[0],
        excess=estimates(excess)[0],
        expected=expected,
        accepted=mean,
        overstated=overstated,
    )


def root_areas(order: OrderPlaces, most: int) -> tuple[Bools, Doubles]:
    """At which roots the first nodes hold some of the true path and some others; there the area under the ROC curve.

    Places are all different, so no pair is tied. Twice the area less 1 is the rank-biserial correlation with an order
    that has the true path first.
    """
    is_there = order.insertions <= most
    number = is_there.sum(axis=1).astype(np.float64)
    others = np.minimum(order.available, most) - number
    before = np.where(is_there, order.insertions - np.cumsum(is_there, axis=1), 0).sum(axis=1)
    has_both = (number > 0) & (others > 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        areas = 1.0 - before / (number * others)
    return has_both, areas


def _by_prompt(prompts: Longs, columns: Sequence[Doubles | Bools | Longs], num_prompts: int) -> Doubles:
    """float64 ``[P, C]``, sums over roots."""
    sums = [np.bincount(prompts, weights=np.asarray(column, np.float64), minlength=num_prompts) for column in columns]
    return np.stack(sums, axis=1).astype(np.float64)


def _quantile(nodes: Longs, share: float, most: int) -> int | None:
    """The smallest number of nodes that is enough for a share of the roots."""
    at = int(np.ceil(share * len(nodes))) - 1
    value = int(np.partition(nodes, at)[at])
    return value if value <= min(most, NEVER - 1) else None
