"""Edge models, orders of nodes and policies scored against what the target's text goes on with."""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from simlab.analysis.scoring.gap_and_waste import ScoredRounds
from simlab.analysis.scoring.path_places import TruePlaces
from simlab.analysis.scoring.reliability import ScoredEdges
from simlab.analysis.scoring.tallies import EdgeTally, PlaceTally, RunTally
from simlab.arrays import Longs
from simlab.cost import CostTable
from simlab.policies.composition import order_of
from simlab.policies.fits.edge_sums import EdgeScoring, edge_scoring_of
from simlab.policies.named.chain import Chain
from simlab.policies.orders.node_order import NodeOrder
from simlab.policies.parsing.parse import NamedPolicy
from simlab.recorded import RecordedTexts

Prompt = tuple[str, str]
"""Dataset and name."""


@dataclass(frozen=True, slots=True, eq=False)
class Scoring:
    """All that figures are made of, prompt by prompt.

    Attributes:
        prompts: dataset and name of each.
        edges: each edge model once, under the first policy that has it.
        places: each order of nodes once, likewise; None where no policy has one.
        rounds: each policy.
    """

    prompts: tuple[Prompt, ...]
    edges: tuple[ScoredEdges, ...]
    places: TruePlaces | None
    rounds: ScoredRounds

    def take(self, prompts: Longs) -> "Scoring":
        """The same of some prompts, int64 places of them."""
        return Scoring(
            tuple(self.prompts[one] for one in prompts),
            tuple(one.take(prompts) for one in self.edges),
            None if self.places is None else self.places.take(prompts),
            self.rounds.take(prompts),
        )

    def by_dataset(self) -> "list[tuple[str, Scoring]]":
        """The same of each dataset, in the order of the trace."""
        datasets = [dataset for dataset, _ in self.prompts]
        wanted = list(dict.fromkeys(datasets))
        return [(one, self.take(np.flatnonzero([each == one for each in datasets]))) for one in wanted]


@dataclass(frozen=True, slots=True)
class Limits:
    """How far one looks.

    Attributes:
        most: nodes of an order that are looked at.
        caps: node counts at which coverage is told.
        width: candidates at each depth of which edge models are asked.
    """

    most: int
    caps: tuple[int, ...]
    width: int


def scoring(
    policies: Sequence[NamedPolicy],
    prompts: Sequence[Prompt],
    texts: Iterable[RecordedTexts],
    limits: Limits,
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

    Raises:
        SimlabError: as `simlab.sequence_replay.rounds` does.
    """
    number = {prompt: place for place, prompt in enumerate(prompts)}
    orders, num = _orders(policies), len(prompts)
    edges = [EdgeTally(label, one, limits.width, num) for label, one in _edge_models(orders, limits.width)]
    places = PlaceTally(orders, limits.most, limits.caps, num)
    runs = [RunTally("chain", Chain(), cost, num)]
    runs += [RunTally(one.label, one.policy, cost, num) for one in policies]
    tallies: list[EdgeTally | PlaceTally | RunTally] = [*edges, places, *runs]
    for part in texts:
        of_texts = np.array([number[one.prompt.dataset, one.prompt.prompt_id] for one in part.sequences], np.int64)
        for tally in tallies:
            tally.add(part, of_texts)
        advance(len(part.roots.places))
    (chain, _), *found = (one.scored() for one in runs)
    rounds = ScoredRounds(chain, tuple(own for own, _ in found), tuple(bound for _, bound in found))
    return Scoring(tuple(prompts), tuple(one.scored() for one in edges), places.scored() if orders else None, rounds)


def without_budget(label: str) -> str:
    """A policy's label without its budget.

    >>> without_budget("presto:budget=64,renormalised=true")
    'presto:renormalised=true'
    """
    return re.sub(r"(?<=[:,])budget=[^,]*(,|$)", "", label).rstrip(":,")


def _orders(policies: Sequence[NamedPolicy]) -> list[tuple[str, NodeOrder]]:
    """Each order once, by a short label where no other order has the same."""
    found: dict[str, tuple[str, NodeOrder]] = {}
    for one in policies:
        order = order_of(one.policy)
        if order is not None:
            found.setdefault(order.key, (one.label, order))
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
