"""How far down an order of nodes the true path lies, and how many nodes it takes to have it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from simlab.analysis.statistics.intervals import prompt_spread, ratios
from simlab.analysis.table.estimates import NO_FIGURE, Figures, estimates, share_estimates
from simlab.arrays import Bools, Doubles, Ints, Longs, Shorts
from simlab.grid import path_weight
from simlab.policies.orders.node_order import NEVER, NodeOrder, OrderLayer
from simlab.recorded import RecordedTexts


@dataclass(frozen=True, slots=True, eq=False)
class TruePlaces:
    """Where the true path is in several orders of nodes, at the same roots.

    Attributes:
        labels: of each order that of the first policy that has it, without its budget.
        most: nodes that were looked at, at most.
        caps: node counts at which coverage is told; at most ``most``.
        num_prompts: P.
        prompts: int64 ``[R]``, the prompt of each root.
        left: int64 ``[R]``, tokens of the text behind it.
        insertions: uint16 ``[O, R, D]``, the place of the true path's node at each depth, from 1; `NEVER` beyond the
            most that were looked at, where the true token is no candidate, and behind the text.
        available: int32 ``[O, R]``, nodes that were looked at.
        expected: float64 ``[O, R, caps]``, summed path probabilities of the first nodes; nan where scores are none.
    """

    labels: tuple[str, ...]
    most: int
    caps: tuple[int, ...]
    num_prompts: int
    prompts: Longs
    left: Longs
    insertions: Shorts
    available: Ints
    expected: Doubles

    @staticmethod
    def joined(parts: "Sequence[TruePlaces]") -> "TruePlaces":
        """Places at the roots of different texts of the same prompts, one behind the other."""
        return replace(
            parts[0],
            prompts=np.concatenate([part.prompts for part in parts]),
            left=np.concatenate([part.left for part in parts]),
            insertions=np.concatenate([part.insertions for part in parts], axis=1),
            available=np.concatenate([part.available for part in parts], axis=1),
            expected=np.concatenate([part.expected for part in parts], axis=1),
        )

    @staticmethod
    def of_prompts(parts: "Sequence[TruePlaces]") -> "TruePlaces":
        """Places at the roots of different prompts, which are renumbered, one behind the other."""
        first = np.cumsum([0, *(part.num_prompts for part in parts)])
        moved = [replace(part, prompts=part.prompts + before) for part, before in zip(parts, first, strict=False)]
        return replace(TruePlaces.joined(moved), num_prompts=int(first[-1]))

    def take(self, prompts: Longs) -> "TruePlaces":
        """Places at the roots of some prompts, which are renumbered in the order given."""
        number = np.full(self.num_prompts, -1, np.int64)
        number[prompts] = np.arange(len(prompts))
        kept = np.flatnonzero(number[self.prompts] >= 0)
        return replace(
            self,
            num_prompts=len(prompts),
            prompts=number[self.prompts][kept],
            left=self.left[kept],
            insertions=self.insertions[:, kept],
            available=self.available[:, kept],
            expected=self.expected[:, kept],
        )


def true_places(
    orders: Sequence[tuple[str, NodeOrder]],
    texts: RecordedTexts,
    prompts: Longs,
    most: int,
    caps: tuple[int, ...],
    num_prompts: int,
) -> TruePlaces:
    """Places in several orders at the roots of some texts.

    Args:
        orders: by label; at least one.
        texts: with draft rows.
        prompts: int64 ``[S]``, the prompt of each text.
        most: nodes that are looked at, at most.
        caps: node counts at which coverage is told.
        num_prompts: P.
    """
    layers = [order.layer(texts, most, order.has_probabilities) for _, order in orders]
    firsts, roots = texts.roots.firsts, np.arange(len(texts.roots.token_indices))
    lengths = np.diff(firsts)
    return TruePlaces(
        labels=tuple(label for label, _ in orders),
        most=most,
        caps=caps,
        num_prompts=num_prompts,
        prompts=np.repeat(prompts, lengths),
        left=np.repeat(firsts[1:], lengths) - roots,
        insertions=np.stack([layer.insertions for layer in layers]),
        available=np.stack([layer.num_available for layer in layers]),
        expected=np.stack(
            [
                _expected(layer, caps) if order.has_probabilities else np.full((len(roots), len(caps)), np.nan)
                for layer, (_, order) in zip(layers, orders, strict=True)
            ]
        ),
    )


def _expected(layer: OrderLayer, caps: Sequence[int]) -> Doubles:
    """Summed path probabilities of the first nodes at each root, float64 ``[R, caps]``."""
    rows = layer.score_rows
    weights = np.where(rows > -np.inf, path_weight(np.maximum(rows, -255.0)), 0.0)
    weights[:, :1] = 0.0
    sums = np.cumsum(weights, axis=1)
    return np.stack([sums[:, min(cap, rows.shape[1] - 1)] for cap in caps], axis=1)


def path_coverage(places: TruePlaces) -> list[Figures]:
    """How soon each order reaches the true path, for each depth that some text reaches.

    Of the ``roots`` with at least so many tokens behind them, ``covered_share_N`` is the share whose first N nodes
    hold the path down to the depth. ``nodes_median`` and ``nodes_90_percent`` are the nodes it takes at half the roots,
    and at nine of ten; None where more than were looked at, or none suffice.
    """
    return [
        _coverage(places, number, depth)
        for number in range(len(places.labels))
        for depth in range(1, 1 + min(places.insertions.shape[2], int(places.left.max(initial=0))))
    ]


def _coverage(places: TruePlaces, number: int, depth: int) -> Figures:
    reached = places.left >= depth
    nodes, prompts = places.insertions[number, reached, depth - 1].astype(np.int64), places.prompts[reached]
    columns = [np.ones(len(nodes)), *(nodes <= cap for cap in places.caps)]
    shares = share_estimates(prompt_spread(_by_prompt(prompts, columns, places.num_prompts), ratios))
    return {
        "order": places.labels[number],
        "depth": depth,
        "roots": len(nodes),
        **{f"covered_share_{cap}": share for cap, share in zip(places.caps, shares, strict=True)},
        "nodes_median": _quantile(nodes, 0.5, places.most),
        "nodes_90_percent": _quantile(nodes, 0.9, places.most),
    }


def order_figures(places: TruePlaces) -> list[Figures]:
    """How well each order ranks nodes, all at the same roots.

    ``auc`` is how often, in the tree of the first nodes, a node of the true path comes before one that is not; mean
    over the roots whose tree has both. ``excess_nodes`` is how many times as many nodes as an oracle's order it takes
    to reach a node of the true path, geometric mean over those nodes that all orders reach. For N nodes
    ``expected_accepted_N`` is what path probabilities promise, ``accepted_N`` what there is, both mean over roots with
    a whole block of text behind them, and ``overstated_share_N`` their difference as a share of the latter.
    """
    shared = np.logical_and.reduce(places.insertions <= places.most)
    return [_figures(places, number, shared) for number in range(len(places.labels))]


def _figures(places: TruePlaces, number: int, shared: Bools) -> Figures:
    insertions, expected = places.insertions[number], places.expected[number]
    depths = np.arange(1, insertions.shape[1] + 1)
    with np.errstate(divide="ignore"):
        logs = np.where(shared, np.log(insertions / depths), 0.0).sum(axis=1)
    has_both, areas = root_areas(insertions, places.available[number], places.most)
    columns = [has_both, np.where(has_both, areas, 0.0)]
    auc = prompt_spread(_by_prompt(places.prompts, columns, places.num_prompts), ratios)
    excess = prompt_spread(_by_prompt(places.prompts, [shared.sum(axis=1), logs], places.num_prompts), ratios).exp()
    figures: Figures = {
        "order": places.labels[number],
        "auc": share_estimates(auc)[0],
        "excess_nodes": estimates(excess)[0],
    }
    whole = places.left >= len(depths)
    for index, cap in enumerate(places.caps):
        covered, promised = (insertions <= cap).sum(axis=1)[whole], expected[whole, index]
        sums = _by_prompt(places.prompts[whole], [covered, promised - covered], places.num_prompts)
        overstated = NO_FIGURE if np.isnan(expected).all() else estimates(prompt_spread(sums, ratios))[0]
        figures |= {
            f"expected_accepted_{cap}": float(promised.mean()) if whole.any() else np.nan,
            f"accepted_{cap}": float(covered.mean()) if whole.any() else np.nan,
            f"overstated_share_{cap}": overstated,
        }
    return figures


def root_areas(insertions: Shorts, available: Ints, most: int) -> tuple[Bools, Doubles]:
    """At which roots the first nodes hold some of the true path and some others; there the area under the ROC curve.

    Places are all different, so no pair is tied. Twice the area less 1 is the rank-biserial correlation with an order
    that has the true path first.
    """
    is_there = insertions <= most
    number = is_there.sum(axis=1).astype(np.float64)
    others = np.minimum(available, most) - number
    before = np.where(is_there, insertions - np.cumsum(is_there, axis=1), 0).sum(axis=1)
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
