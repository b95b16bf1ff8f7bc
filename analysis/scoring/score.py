"""Edge models, orders of nodes and policies scored against what the target's text goes on with."""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from simlab.analysis.scoring.gap_and_waste import NUM_SUMS, SIBLINGS, ScoredRounds, policy_figures, wrong_siblings
from simlab.analysis.scoring.path_places import TruePlaces, order_figures, path_coverage, true_places
from simlab.analysis.scoring.reliability import EdgeSlice, ScoredEdges, calibration, reliability
from simlab.analysis.table.estimates import Figures, Row, flat
from simlab.arrays import Doubles, Longs
from simlab.columns import columns_of, rounds_of_texts
from simlab.cost import STAGES, CostTable
from simlab.policies.composition import order_of
from simlab.policies.engine.hindsight import fewest_rounds
from simlab.policies.engine.replay import ReplaySums, sums_of_policy, sums_of_rounds
from simlab.policies.fits.edge_sums import (
    RANK_CLASSES,
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
from simlab.recorded import RecordedTexts
from simlab.sequence_replay import COMMITTED, ROUNDS, rounds

Prompt = tuple[str, str]
"""Dataset and name."""


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
            None if first.places is None else TruePlaces.of_prompts(places),
            ScoredRounds.joined([part.rounds for part in parts]),
        )

    def rows(self) -> dict[str, list[Row]]:
        """The lists of ``simlab study scoring --json``; reliability curves of all candidates and of first ones."""
        ranks = (None, RANK_CLASSES[0])
        figures = {
            "calibration": [
                calibrated
                for model in self.edges
                for where in model.slices()
                if (calibrated := calibration(model, where, self.edges[0] if where.is_whole else None)) is not None
            ],
            "reliability": self.reliability(lambda where: where.depth is None and where.rank in ranks),
            "orders": [] if self.places is None else order_figures(self.places),
            "coverage": [] if self.places is None else path_coverage(self.places),
            "policies": policy_figures(self.rounds),
        }
        return {name: [flat(row) for row in rows] for name, rows in figures.items()}

    def reliability(self, wanted: Callable[[EdgeSlice], bool]) -> list[Figures]:
        """The bins of each edge model: of all its candidates, of each class of rank and of each depth.

        Args:
            wanted: which of these slices.
        """
        slices = [(model, where) for model in self.edges for where in model.slices() if where.has_curve]
        return [bin_ for model, where in slices if wanted(where) for bin_ in reliability(model, where)]

    def by_dataset(self) -> "list[tuple[str, Scoring]]":
        """Everything scored on each dataset, in the order of the trace."""
        datasets = [dataset for dataset, _ in self.prompts]
        wanted = list(dict.fromkeys(datasets))
        return [(dataset, self.take(np.flatnonzero([name == dataset for name in datasets]))) for dataset in wanted]


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


def by_prompts(texts: Iterable[RecordedTexts], num_texts: Mapping[Prompt, int]) -> Iterator[tuple[RecordedTexts, ...]]:
    """Texts in parts that hold whole prompts.

    Args:
        texts: some at a time.
        num_texts: how many each prompt has.
    """
    left, begun = Counter(num_texts), list[RecordedTexts]()
    for some in texts:
        begun.append(some)
        left.subtract(_prompts_of([some]))
        if not any(left[prompt] for prompt in _prompts_of(begun)):
            yield tuple(begun)
            begun = []
    if begun:  # of a prompt some texts were not read
        yield tuple(begun)


def _prompts_of(texts: Iterable[RecordedTexts]) -> list[Prompt]:
    prompts = (sequence.prompt for some in texts for sequence in some.sequences)
    return [(prompt.dataset, prompt.prompt_id) for prompt in prompts]


def score_trace(
    policies: Sequence[NamedPolicy],
    texts: Sequence[RecordedTexts],
    limits: ScoringLimits,
    cost: CostTable | None = None,
    unpriced: Collection[str] = (),
    advance: Callable[[int], object] = int,
) -> Scoring:
    """Score policies on some texts.

    Args:
        policies: at least one.
        texts: with draft rows; there is at least one.
        limits: how far one looks.
        cost: what rounds cost; None: nothing is priced.
        unpriced: labels of policies whose channels have no price; their seconds are NaN.
        advance: is told how many roots were done, after each part of ``texts``.
    """
    prompts = list(dict.fromkeys(_prompts_of(texts)))
    number = {prompt: index for index, prompt in enumerate(prompts)}
    orders, num = _orders(policies), len(prompts)
    models = _edge_models(orders, limits.width)
    edge_sums: list[EdgeSums] = []
    places: list[TruePlaces] = []
    sums = np.zeros((1 + 2 * len(policies), num, NUM_SUMS))
    for part in texts:
        of_texts = np.array([number[prompt] for prompt in _prompts_of([part])], np.int64)
        edge_sums = edge_sums or [no_edge_sums(num, part.roots.counts.shape[1]) for _ in models]
        for (_, edges), own in zip(models, edge_sums, strict=True):
            if edges.source is None:
                add_edges(own, part, edges, limits.width, of_texts)
            else:
                add_lattice_edges(own, part, edges.source, limits.width, of_texts)
        if orders:
            places.append(true_places(orders, part, of_texts, limits.most, limits.caps, num))
        for run, counts in zip(sums, _rounds(policies, part, cost, unpriced), strict=True):
            np.add.at(run, of_texts, counts)
        advance(len(part.roots.token_indices))
    return Scoring(
        tuple(prompts),
        tuple(
            ScoredEdges(label, edges.has_probabilities, edges.reads_prefix, own)
            for (label, edges), own in zip(models, edge_sums, strict=True)
        ),
        TruePlaces.joined(places) if orders else None,
        ScoredRounds(
            tuple(policy.label for policy in policies), tuple(policy.policy.budget for policy in policies), sums
        ),
    )


def _rounds(
    policies: Sequence[NamedPolicy], texts: RecordedTexts, cost: CostTable | None, unpriced: Collection[str]
) -> Iterator[Doubles]:
    """Sums of each text, float64 ``[S, NUM_SUMS]``, under the chain, each policy, and the bound of each."""
    for label, policy in (("chain", Chain()), *((named.label, named.policy) for named in policies)):
        of_texts = [list(rounds(policy, sequence)) for sequence in texts.sequences]
        columns = rounds_of_texts([columns_of(of_text) for of_text in of_texts], texts)
        charged = None if cost is None or label in unpriced else cost.charged(policy)
        sums = _sums(sums_of_policy(policy, columns, texts, charged))
        sums[:, SIBLINGS] = [wrong_siblings(of_text) for of_text in of_texts]
        yield sums
    channels = tuple(dict.fromkeys(need for named in policies for need in named.policy.needs.scored))
    for named in policies:
        fewest = fewest_rounds(texts, named.policy.budget, channels)
        yield _sums(sums_of_rounds(fewest, texts, cost, STAGES))


def without_budget(label: str) -> str:
    """A policy's label without its budget.

    >>> without_budget("presto:budget=64,renormalised=true")
    'presto:renormalised=true'
    """
    return re.sub(r"(?<=[:,])budget=[^,]*(,|$)", "", label).rstrip(":,")


def _orders(policies: Sequence[NamedPolicy]) -> list[tuple[str, NodeOrder]]:
    """Each order once, by a short label where no other order has the same."""
    orders: dict[str, tuple[str, NodeOrder]] = {}
    for policy in policies:
        order = order_of(policy.policy)
        if order is not None:
            orders.setdefault(order.key, (policy.label, order))
    short = [without_budget(label) for label, _ in orders.values()]
    return [
        (name if short.count(name) == 1 else label, order)
        for name, (label, order) in zip(short, orders.values(), strict=True)
    ]


def _edge_models(orders: Sequence[tuple[str, NodeOrder]], width: int) -> list[tuple[str, EdgeScoring]]:
    """Each edge model once; marginals that read more ranks than are looked at are one."""
    models: dict[str, tuple[str, EdgeScoring]] = {}
    for label, order in orders:
        edges = edge_scoring_of(order)
        if edges is not None and edges.edge is not None and not edges.reads_prefix:
            models.setdefault(f"marginal:{min(edges.edge.top_k or width, width)}", (label, edges))
        elif edges is not None:
            models.setdefault(edges.key, (label, edges))
    return list(models.values())
