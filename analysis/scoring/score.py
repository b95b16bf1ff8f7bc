"""Edge models, orders of nodes and policies scored against what the target's text goes on with."""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from simlab.analysis.scoring.gap_and_waste import NUM_SUMS, SIBLINGS, RoundSums, ScoredRounds, wrong_siblings
from simlab.analysis.scoring.path_places import OrderPlaces, TruePlaces, places_of
from simlab.analysis.scoring.reliability import ScoredEdges
from simlab.arrays import Doubles, Longs
from simlab.columns import columns_of, rounds_of_texts
from simlab.cost import STAGES, CostTable
from simlab.policies.composition import order_of
from simlab.policies.engine.hindsight import fewest_rounds
from simlab.policies.engine.replay import ReplaySums, sums_of_policy, sums_of_rounds
from simlab.policies.fits.edge_sums import (
    EdgeScoring,
    EdgeSums,
    add_edges,
    add_lattice_edges,
    edge_scoring_of,
    no_edge_sums,
)
from simlab.policies.named.chain import Chain
from simlab.policies.orders.node_order import NodeOrder
from simlab.policies.parsing.parse import NamedPolicy
from simlab.policy import AnyPolicy, ChannelNeed
from simlab.recorded import RecordedTexts
from simlab.sequence_replay import rounds
from simlab.totals import COMMITTED, ROUNDS

Prompt = tuple[str, str]
"""Dataset and name."""


class EdgeTally:
    """Sums of one edge model while texts go by.

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
        if self._edges.source is None:
            add_edges(self._sums, texts, self._edges, self._width, prompts)
        else:
            add_lattice_edges(self._sums, texts, self._edges.source, self._width, prompts)

    def scored(self) -> ScoredEdges:
        """All of it; there was at least one text."""
        assert self._sums is not None
        return ScoredEdges(self._label, self._edges.has_probabilities, self._edges.reads_prefix, self._sums)


class PlaceTally:
    """Places of the true path in several orders of nodes while texts go by.

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
        orders = tuple(OrderPlaces.joined(parts) for parts in self._parts)
        prompts, left = np.concatenate(self._prompts), np.concatenate(self._left)
        return TruePlaces(
            most=self._most, caps=self._caps, num_prompts=self._num_prompts, prompts=prompts, left=left, orders=orders
        )


class RunTally:
    """Sums of the rounds of one policy, and of the bound of its budget, while texts go by.

    Args:
        label: the policy's.
        policy: the policy.
        cost: what rounds cost; None: nothing is priced.
        num_prompts: P.
        channels: whose lists the bound may take tokens of, too.
    """

    def __init__(
        self,
        label: str,
        policy: AnyPolicy,
        cost: CostTable | None,
        num_prompts: int,
        channels: Sequence[ChannelNeed] = (),
    ) -> None:
        self._label, self._policy, self._cost, self._channels = label, policy, cost, tuple(channels)
        self._sums, self._bound = np.zeros((2, num_prompts, NUM_SUMS))

    def add(self, texts: RecordedTexts, prompts: Longs) -> None:
        """Some more texts; int64 ``[S]``, the prompt of each."""
        found = [list(rounds(self._policy, sequence)) for sequence in texts.sequences]
        columns = rounds_of_texts([columns_of(one) for one in found], texts)
        cost = None if self._cost is None else self._cost.charged(self._policy)
        own = _sums(sums_of_policy(self._policy, columns, texts, cost))
        own[:, SIBLINGS] = [wrong_siblings(one) for one in found]
        fewest = fewest_rounds(texts, self._policy.budget, self._channels)
        bound = _sums(sums_of_rounds(fewest, texts, self._cost, STAGES))
        np.add.at(self._sums, prompts, own)
        np.add.at(self._bound, prompts, bound)

    def scored(self) -> tuple[RoundSums, RoundSums]:
        """The policy's and the bound's."""
        return RoundSums(self._label, self._policy.budget, self._sums), RoundSums(
            f"hindsight:budget={self._policy.budget}", self._policy.budget, self._bound
        )


def _sums(sums: ReplaySums) -> Doubles:
    """Sums of each text under one policy, float64 ``[S, NUM_SUMS]``, wrong siblings still 0."""
    counts, seconds = sums.counts[0].astype(np.float64), sums.seconds[0].sum(axis=1)
    has_rounds = counts[:, ROUNDS] > 0
    means = np.where(has_rounds, counts[:, COMMITTED] / np.maximum(counts[:, ROUNDS], 1.0), 0.0)
    return np.column_stack([counts, np.zeros(len(counts)), seconds, means, has_rounds])


@dataclass(frozen=True, slots=True, eq=False)
class Scoring:
    """All that figures are made of, prompt by prompt.

    Attributes:
        prompts: dataset and name of each.
        edges: each edge model once, under the first policy that has it.
        places: each order of nodes once, in the same way; None where no policy has one.
        rounds: each policy.
    """

    prompts: tuple[Prompt, ...]
    edges: tuple[ScoredEdges, ...]
    places: TruePlaces | None
    rounds: ScoredRounds

    def take(self, prompts: Longs) -> "Scoring":
        """Everything scored on some prompts, int64 places of them."""
        return Scoring(
            tuple(self.prompts[prompt] for prompt in prompts),
            tuple(edge.take(prompts) for edge in self.edges),
            None if self.places is None else self.places.take(prompts),
            self.rounds.take(prompts),
        )

    @staticmethod
    def joined(parts: "Sequence[Scoring]") -> "Scoring":
        """Scorings of different prompts under the same policies and limits, one behind the other."""
        first = parts[0]
        places = [part.places for part in parts if part.places is not None]
        return Scoring(
            tuple(prompt for part in parts for prompt in part.prompts),
            tuple(map(ScoredEdges.joined, zip(*(part.edges for part in parts), strict=True))),
            None if first.places is None else TruePlaces.joined(places),
            ScoredRounds.joined([part.rounds for part in parts]),
        )

    def by_dataset(self) -> "list[tuple[str, Scoring]]":
        """Everything scored on each dataset, in the order of the trace."""
        datasets = [dataset for dataset, _ in self.prompts]
        wanted = list(dict.fromkeys(datasets))
        return [(one, self.take(np.flatnonzero([each == one for each in datasets]))) for one in wanted]


@dataclass(frozen=True, slots=True)
class ScoringLimits:
    """How far one looks.

    Attributes:
        most: nodes of an order that are looked at.
        caps: node counts at which coverage is told.
        width: candidates at each depth of which edge models are asked.
    """

    most: int
    caps: tuple[int, ...]
    width: int


def score_trace(
    policies: Sequence[NamedPolicy],
    prompts: Sequence[Prompt],
    texts: Iterable[RecordedTexts],
    limits: ScoringLimits,
    cost: CostTable | None = None,
    advance: Callable[[int], object] = int,
) -> Scoring:
    """Score policies on some texts.

    Args:
        policies: at least one.
        prompts: of the texts, each once.
        texts: with draft rows; there is at least one.
        limits: how far one looks.
        cost: what rounds cost; None: nothing is priced.
        advance: is told how many roots were done, after each part of ``texts``.
    """
    number = {prompt: index for index, prompt in enumerate(prompts)}
    orders, num = _orders(policies), len(prompts)
    edges = [EdgeTally(label, scoring, limits.width, num) for label, scoring in _edge_models(orders, limits.width)]
    places = PlaceTally(orders, limits.most, limits.caps, num)
    runs = [RunTally("chain", Chain(), cost, num)]
    channels = tuple(dict.fromkeys(need for policy in policies for need in policy.policy.needs.scored))
    runs += [RunTally(policy.label, policy.policy, cost, num, channels) for policy in policies]
    tallies: list[EdgeTally | PlaceTally | RunTally] = [*edges, places, *runs]
    for part in texts:
        of_texts = np.array(
            [number[sequence.prompt.dataset, sequence.prompt.prompt_id] for sequence in part.sequences], np.int64
        )
        for tally in tallies:
            tally.add(part, of_texts)
        advance(len(part.roots.places))
    (chain, _), *found = (run.scored() for run in runs)
    rounds = ScoredRounds(chain, tuple(own for own, _ in found), tuple(bound for _, bound in found))
    return Scoring(tuple(prompts), tuple(edge.scored() for edge in edges), places.scored() if orders else None, rounds)


def without_budget(label: str) -> str:
    """A policy's label without its budget.

    >>> without_budget("presto:budget=64,renormalised=true")
    'presto:renormalised=true'
    """
    return re.sub(r"(?<=[:,])budget=[^,]*(,|$)", "", label).rstrip(":,")


def _orders(policies: Sequence[NamedPolicy]) -> list[tuple[str, NodeOrder]]:
    """Each order once, by a short label where no other order has the same."""
    found: dict[str, tuple[str, NodeOrder]] = {}
    for policy in policies:
        order = order_of(policy.policy)
        if order is not None:
            found.setdefault(order.key, (policy.label, order))
    short = [without_budget(label) for label, _ in found.values()]
    return [
        (name if short.count(name) == 1 else label, order)
        for name, (label, order) in zip(short, found.values(), strict=True)
    ]


def _edge_models(orders: Sequence[tuple[str, NodeOrder]], width: int) -> list[tuple[str, EdgeScoring]]:
    """Each edge model once; marginals that read more ranks than are looked at are one."""
    found: dict[str, tuple[str, EdgeScoring]] = {}
    for label, order in orders:
        edges = edge_scoring_of(order)
        if edges is not None and edges.edge is not None and not edges.reads_prefix:
            found.setdefault(f"marginal:{min(edges.edge.top_k or width, width)}", (label, edges))
        elif edges is not None:
            found.setdefault(edges.key, (label, edges))
    return list(found.values())
