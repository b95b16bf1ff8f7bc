"""Running sums of edge models, orders of nodes and policies while the texts of a trace go by."""

from collections.abc import Sequence

import numpy as np

from simlab.analysis.scoring.gap_and_waste import NUM_SUMS, SIBLINGS, RoundSums, wrong_siblings
from simlab.analysis.scoring.path_places import OrderPlaces, TruePlaces, places_of
from simlab.analysis.scoring.reliability import ScoredEdges
from simlab.arrays import Doubles, Longs
from simlab.columns import TextRounds, columns_of, rounds_of_texts
from simlab.cost import STAGES, CostTable
from simlab.policies.engine.hindsight import fewest_rounds
from simlab.policies.engine.replay import stages_paid, sums_of_rounds
from simlab.policies.fits.edge_sums import EdgeScoring, EdgeSums, add_edges, no_edge_sums
from simlab.policies.orders.node_order import NodeOrder
from simlab.policy import AnyPolicy
from simlab.recorded import RecordedTexts
from simlab.sequence_replay import rounds
from simlab.totals import COMMITTED, ROUNDS


class EdgeTally:
    """One edge model.

    Args:
        label: what it is called.
        edges: the model.
        width: candidates at each depth of which it is asked.
        num_prompts: P.
    """

    def __init__(self, label: str, edges: EdgeScoring, width: int, num_prompts: int) -> None:
        self._label, self._edges, self._width, self._num_prompts = label, edges, width, num_prompts
        self._sums: EdgeSums | None = None

    def add(self, texts: RecordedTexts, prompts: Longs) -> None:
        """Some more texts; int64 ``[S]``, the prompt of each."""
        if self._sums is None:
            self._sums = no_edge_sums(self._num_prompts, texts.roots.counts.shape[1])
        add_edges(self._sums, texts, self._edges, self._width, prompts)

    def scored(self) -> ScoredEdges:
        """All of it; there was at least one text."""
        assert self._sums is not None
        return ScoredEdges(self._label, self._edges.has_probabilities, self._edges.reads_prefix, self._sums)


class PlaceTally:
    """Orders of nodes at the same roots.

    Args:
        orders: by label.
        most: nodes that are looked at, at most.
        caps: node counts at which coverage is told.
        num_prompts: P.
    """

    def __init__(
        self, orders: Sequence[tuple[str, NodeOrder]], most: int, caps: tuple[int, ...], num_prompts: int
    ) -> None:
        self._orders, self._most, self._caps, self._num_prompts = orders, most, caps, num_prompts
        self._parts: list[list[OrderPlaces]] = [[] for _ in orders]
        self._prompts: list[Longs] = []
        self._left: list[Longs] = []

    def add(self, texts: RecordedTexts, prompts: Longs) -> None:
        """Some more texts; int64 ``[S]``, the prompt of each."""
        for parts, (label, order) in zip(self._parts, self._orders, strict=True):
            layer = order.layer(texts, self._most, order.has_probabilities)
            parts.append(places_of(label, layer, self._caps, order.has_probabilities))
        lengths = np.diff(texts.roots.firsts)
        self._prompts.append(np.repeat(prompts, lengths))
        self._left.append(np.repeat(texts.roots.firsts[1:], lengths) - np.arange(len(texts.roots.places)))

    def scored(self) -> TruePlaces:
        """All of it; there was at least one text."""
        orders = tuple(_joined(parts) for parts in self._parts)
        prompts, left = np.concatenate(self._prompts), np.concatenate(self._left)
        return TruePlaces(self._most, self._caps, self._num_prompts, prompts, left, orders)


class RunTally:
    """The rounds of one policy, and of the hindsight bound of its budget.

    Args:
        label: the policy's.
        policy: the policy.
        cost: what rounds cost; None: nothing is priced.
        num_prompts: P.
    """

    def __init__(self, label: str, policy: AnyPolicy, cost: CostTable | None, num_prompts: int) -> None:
        self._label, self._policy, self._cost = label, policy, cost
        self._sums, self._bound = np.zeros((2, num_prompts, NUM_SUMS))

    def add(self, texts: RecordedTexts, prompts: Longs) -> None:
        """Some more texts; int64 ``[S]``, the prompt of each."""
        found = [list(rounds(self._policy, one)) for one in texts.sequences]
        columns = rounds_of_texts([columns_of(one) for one in found], texts)
        own = _sums(columns, texts, self._cost, stages_paid(self._policy))
        own[:, SIBLINGS] = [wrong_siblings(one) for one in found]
        bound = _sums(fewest_rounds(texts, self._policy.budget), texts, self._cost, STAGES)
        np.add.at(self._sums, prompts, own)
        np.add.at(self._bound, prompts, bound)

    def scored(self) -> tuple[RoundSums, RoundSums]:
        """The policy's and the bound's."""
        return RoundSums(self._label, self._policy.budget, self._sums), RoundSums(
            f"hindsight:budget={self._policy.budget}", self._policy.budget, self._bound
        )


def _sums(columns: TextRounds, texts: RecordedTexts, cost: CostTable | None, paid: Sequence[str]) -> Doubles:
    """Sums of each text, float64 ``[S, NUM_SUMS]``, wrong siblings still 0."""
    sums = sums_of_rounds(columns, texts, cost, paid)
    counts, seconds = sums.counts[0].astype(np.float64), sums.seconds[0].sum(axis=1)
    has_rounds = counts[:, ROUNDS] > 0
    means = np.where(has_rounds, counts[:, COMMITTED] / np.maximum(counts[:, ROUNDS], 1.0), 0.0)
    return np.column_stack([counts, np.zeros(len(counts)), seconds, means, has_rounds])


def _joined(parts: Sequence[OrderPlaces]) -> OrderPlaces:
    expected = [one.expected for one in parts if one.expected is not None]
    return OrderPlaces(
        parts[0].label,
        np.concatenate([one.insertions for one in parts]),
        np.concatenate([one.available for one in parts]),
        np.concatenate(expected) if expected else None,
    )
