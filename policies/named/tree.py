"""Any edges with any order and any rule: the parts of the other policies, put together as one likes."""

import json
import re
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any, TypeAlias

from simlab.channels import POOL
from simlab.policies.artefacts import AUTO, Artefacts
from simlab.policies.composition import Composed, Composition
from simlab.policies.costs.curves import ALL_STAGES, MODEL_STAGES
from simlab.policies.edges.models import Calibrated, EdgeModel, Marginal, NGramCorrected, edge_map_of
from simlab.policies.edges.ngram import empty_counts
from simlab.policies.orders.best_first import EVERY_DEPTH, BestFirst
from simlab.policies.orders.chain_orders import GAP, MISS, BranchedChain, GreedyPathOrder
from simlab.policies.orders.engine_first import TIES, EngineFirst
from simlab.policies.orders.expand_parent import ExpandParent
from simlab.policies.orders.lattice_order import BestPaths, LatticeOrder, WholeFamilies
from simlab.policies.orders.lattice_sources import (
    BranchSource,
    LatticeSource,
    PoolSource,
    TransitionSource,
    eagle3_source,
)
from simlab.policies.orders.node_order import NodeOrder
from simlab.policies.rules.budgets import (
    FULL_SCAN,
    BeforeDoubt,
    BestRatio,
    BudgetRule,
    FixedBudget,
    FixedPrice,
    FloorAndStep,
    SurvivalBudget,
)
from simlab.policies.rules.online_price import OnlinePrice
from simlab.policies.settings import ALL_SIZES, PROBABILITY, at_least, below_one, between, one_of
from simlab.policy import ChannelNeed

SOURCES = ("corpus", "text", "both")
"""Where a 3-gram was counted."""

TreeSettings: TypeAlias = dict[str, Any]
"""Settings of `Tree` by their names, in the order in which they are typed; None: left out."""

_NGRAM = ("ngram_weight", "counts", "text_share", "ngram", "adaptive", "renormalised")

EDGES: Mapping[str, tuple[str, ...]] = {
    "marginal": ("top_k", *_NGRAM),
    "calibrated": ("top_k", "table"),
    "transitions": ("top_k", "channel", "previous", *_NGRAM),
    "pool": ("channel", "pool_beam", "depth_price", *_NGRAM),
    "eagle3": ("channel", "pool_beam", "top_k", "steps", *_NGRAM),
    "redrafts": ("channel", "branches", "whole", "top_k", *_NGRAM),
}
"""What scores a token below a path, and the settings that each reads."""

ORDERS: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "best-first": (tuple(EDGES), ()),
    "expand-parent": (("marginal", "transitions", "pool"), ("width",)),
    "beam": (("marginal", "calibrated"), ("width", "depth")),
    "chain": (("marginal",), ()),
    "boundaries": (("marginal",), ("boundaries", "below")),
    "gap": (("marginal",), ()),
    **dict.fromkeys(TIES, (("marginal",), ())),
}
"""Which node is next: the edges that each takes, and the settings that it reads."""

FIXED, SURVIVAL, RATIO, FLOOR, PRICE, DOUBT = "fixed", "survival", "ratio", "floor", "price", "doubt"

STOPS: Mapping[str, tuple[str, ...]] = {
    FIXED: (),
    SURVIVAL: ("threshold",),
    RATIO: ("look_ahead", "tile", "overhead", "cost"),
    FLOOR: ("floor", "step", "doubling", "overhead", "cost"),
    PRICE: ("rate", "memory", "look_ahead", "cost"),
}
"""When a tree ends, and the settings that each rule reads beside its budget."""

RULES: Mapping[str, tuple[str, ...]] = {**STOPS, DOUBT: ("threshold",)}
"""How many nodes enter, and the settings that each rule reads beside its budget."""

_WITH_NGRAM = ("best-first", "beam")
_WIDE = 64
_ASSUMED_VOCABULARY = 1 << 17
"""The size of the vocabulary where the counts of the text are the only ones; a token never seen has 1 part in it."""

_TRANSITIONS_WIDTH = 6
_EAGLE3_WIDTH = 10
_REDRAFTS_WIDTH = 4


@dataclass(frozen=True)
class Tree(Composed):
    """Edges, an order and a rule of one's own choice, at most ``budget`` drafted tokens.

    ``edges`` score a token below a path: ``marginal``, ``calibrated``, or a channel's ``transitions``, ``pool``,
    ``eagle3``, the pool of a head that needs no drafter, or ``redrafts``, those of `d2sd` with a width; all but the
    second with a 3-gram of ``ngram_weight`` on top, as in `presto`. ``order`` says which node is next: ``best-first``,
    ``expand-parent``, ``beam``, ``chain``, ``boundaries`` as in `d2sd-boundary`, ``gap`` as in `spine-gap`, ``uno`` and
    ``edge-llm``, best-first with those engines' ties. ``rule`` says how many enter: ``fixed``, ``survival``, ``ratio``,
    ``floor`` and ``price`` as in `calibrated`, ``doubt`` as in `adaflash`. A setting that none of the three reads is
    refused, and so is an order that does not take the edges or a rule that does not take the scores.

    ``masked`` is for a target that drafts for itself, see `self`: the number of the last node that carries masks.

    ``top_k`` that is left out is every kept candidate for ``best-first`` on plain marginals, 6 for ``transitions``,
    10 for ``eagle3``, 4 for ``redrafts``, and 64 for all others; with ``expand-parent`` it is ``width``.
    """

    budget: int = at_least(1, 64)
    edges: str = one_of(tuple(EDGES), "marginal")
    order: str = one_of(tuple(ORDERS), "best-first")
    rule: str = one_of(tuple(RULES), FIXED)
    top_k: int | None = at_least(1, None)
    table: str = AUTO
    ngram_weight: float = at_least(0, 0.0)
    counts: str = one_of(SOURCES, "corpus")
    text_share: float = between(0, 1, 0.5)
    ngram: str = AUTO
    adaptive: bool = False
    renormalised: bool = False
    channel: str | None = None
    previous: int = at_least(1, 6)
    pool_beam: int = at_least(1, 24)
    depth_price: float = at_least(0, 0.0)
    steps: int = at_least(1, 7)
    width: int = at_least(1, 7)
    depth: int | None = at_least(0, None, "must not be negative")
    branches: int = at_least(0, 4, "must not be negative")
    whole: bool = False
    boundaries: int = at_least(0, 4, "must not be negative")
    below: int | None = at_least(0, None, "must not be negative")
    threshold: float = between(0, 1, 0.02, PROBABILITY)
    floor: int = at_least(1, 32)
    step: int | None = at_least(1, None)
    doubling: bool = False
    rate: float | None = at_least(0, None, "must be tokens per second, at least 0")
    memory: float = below_one(0.95)
    look_ahead: int | None = at_least(0, None, ALL_SIZES)
    tile: int = at_least(1, 1)
    overhead: bool = True
    cost: str = AUTO
    masked: int | None = None

    source = "simlab; the parts are those of the other policies"
    exactness = "exact (by definition); of each part what the policy says that has it"
    reads = "what its edges read: candidates, a table, counts or a channel; a latency profile for prices"
    variants = (
        "budget=24",
        "budget=24,edges=calibrated,rule=price",
        "budget=24,order=beam,width=4,ngram_weight=0.2,counts=both,adaptive=true,renormalised=true,rule=ratio",
        "budget=24,edges=transitions,channel=treeflash,rule=survival",
        "budget=24,edges=transitions,channel=treeflash,ngram_weight=0.2,counts=text",
        "budget=24,edges=transitions,channel=treeflash,order=expand-parent,width=3",
        "budget=24,edges=pool,channel=taps,rule=survival",
        "budget=24,edges=eagle3,channel=eagle3,pool_beam=10,rule=survival",
        "budget=24,edges=redrafts,channel=d2sd,branches=2,whole=true,top_k=3,rule=survival",
        "budget=24,rule=floor,floor=4,doubling=true,overhead=false",
        "budget=24,order=boundaries,boundaries=2,below=1",
        "budget=24,order=gap",
        "budget=24,order=chain,rule=doubt,threshold=0.3",
        "budget=24,masked=2",
        "budget=24,ngram_weight=0.2,counts=text,renormalised=true,rule=survival,masked=-1",
    )

    tries = (
        "edges=transitions,channel=treeflash,ngram_weight=0.1/0.2,budget=1..{budget}",
        "edges=transitions,channel=treeflash,rule=ratio/price,budget={budget}",
        "edges=pool,channel=taps,rule=ratio,budget={budget}",
        "ngram_weight=0.2,renormalised=true,rule=ratio/price,budget={budget}",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_reading()
        self._check_order()

    def _check_reading(self) -> None:
        """Refuse a setting that no chosen part reads."""
        read = {*EDGES[self.edges], *ORDERS[self.order][1], *RULES[self.rule]}
        readers, chosen = _readers(), f"edges={self.edges},order={self.order},rule={self.rule}"
        for name in (field.name for field in fields(self) if getattr(self, field.name) != field.default):
            if name in readers and name not in read:
                raise ValueError(f"{name} is read with {' or '.join(readers[name])} alone; got {chosen}")
            if name in _NGRAM and self.ngram_weight == 0:
                raise ValueError(f"{name} is read with an ngram_weight above 0 alone; got {name} without it")

    def _check_order(self) -> None:
        """Refuse an order that cannot take the edges."""
        allowed = ORDERS[self.order][0]
        if self.edges not in allowed:
            raise ValueError(f"order={self.order} takes edges={' or '.join(allowed)} alone; got edges={self.edges}")
        if self.ngram_weight > 0 and self.order not in _WITH_NGRAM:
            raise ValueError(
                f"a 3-gram corrects scores of order={' or '.join(_WITH_NGRAM)} alone; got order={self.order}"
            )
        if self.rule == DOUBT and self.order != "chain":
            raise ValueError(f"rule={DOUBT} ends a chain, so it takes order=chain alone; got order={self.order}")
        if (
            self.top_k is not None
            and self.edges == "marginal"
            and self.order in ("expand-parent", "chain", "boundaries", "gap")
        ):
            raise ValueError(f"order={self.order} says itself how many candidates are read; leave out top_k")
        if self.edges in ("transitions", "pool", "eagle3", "redrafts") and self.channel is None:
            raise ValueError(f"edges={self.edges} stand in a channel of the trace; write channel=NAME")

    def compose(self, artefacts: Artefacts) -> Composition:
        """The parts that were named."""
        order, ids = self._order(artefacts)
        rule, rule_ids = self._rule(artefacts, order)
        return Composition(order, rule, {**ids, **rule_ids}, masked=self.masked)

    def _rule(self, artefacts: Artefacts, order: NodeOrder) -> tuple[BudgetRule | OnlinePrice, dict[str, str]]:
        """The rule, and the ids of what it was measured with; what the order's channels take is in every round."""
        if self.rule == FIXED:
            return FixedBudget(self.budget), {}
        if self.rule in (SURVIVAL, DOUBT):
            ends = SurvivalBudget if self.rule == SURVIVAL else BeforeDoubt
            return ends(self.budget, self.threshold), {}
        measured, cost_id = artefacts.cost(self.cost)
        cost, ids = measured.charged(order), {"cost": cost_id}
        stages = ALL_STAGES if self.overhead else MODEL_STAGES
        if self.rule == RATIO:
            look_ahead = 1 if self.look_ahead is None else self.look_ahead or FULL_SCAN
            return BestRatio(self.budget, cost, stages, look_ahead=look_ahead, tile=self.tile), ids
        if self.rule == FLOOR:
            step = self.floor if self.step is None else self.step
            return FloorAndStep(self.budget, cost, stages, floor=self.floor, step=step, doubling=self.doubling), ids
        look_ahead = self.look_ahead or FULL_SCAN
        if self.rate is None:
            return OnlinePrice(self.budget, cost, self.memory, look_ahead=look_ahead), ids
        return FixedPrice(self.budget, cost, self.rate, look_ahead=look_ahead), ids

    def _order(self, artefacts: Artefacts) -> tuple[NodeOrder, dict[str, str]]:
        """The order on its edges, and the ids of what they were fitted with."""
        if self.order == "chain":
            return GreedyPathOrder(), {}
        if self.order == "gap":
            return BranchedChain(GAP), {}
        if self.order == "boundaries":
            below = EVERY_DEPTH if self.below is None else self.below
            return BranchedChain(MISS, num_branches=self.boundaries, below=below), {}
        if self.channel is not None:
            return self._on_lattice(self._source(self.channel), artefacts)
        if self.order == "expand-parent":
            return ExpandParent(self.width), {}
        edge, ids = self._edge(artefacts)
        if self.order in TIES:
            return EngineFirst(self.order, self.top_k or _WIDE), {}
        if self.order == "beam":
            deepest = EVERY_DEPTH if self.depth is None else self.depth + 1
            return BestFirst(edge, width=self.width, deepest=deepest), ids
        return BestFirst(edge), ids

    def _source(self, channel: str) -> LatticeSource:
        if self.edges == "transitions":
            top_k = _TRANSITIONS_WIDTH if self.top_k is None else self.top_k
            return TransitionSource(channel, previous=self.previous, top_k=top_k)
        if self.edges == "eagle3":
            top_k = _EAGLE3_WIDTH if self.top_k is None else self.top_k
            return eagle3_source(channel, self.pool_beam, top_k, self.steps)
        if self.edges == "redrafts":
            top_k = _REDRAFTS_WIDTH if self.top_k is None else self.top_k
            return BranchSource(channel, count=self.branches, whole=self.whole, top_k=top_k)
        need = ChannelNeed(channel, POOL, equal=(("beam", self.pool_beam),))
        return PoolSource(need, depth_price=float(self.depth_price))

    def _on_lattice(self, source: LatticeSource, artefacts: Artefacts) -> tuple[NodeOrder, dict[str, str]]:
        if self.order == "expand-parent":
            return LatticeOrder(source, WholeFamilies(self.width)), {}
        edge, ids = self._corrected(artefacts) if self.ngram_weight > 0 else (None, {})
        return LatticeOrder(source, BestPaths(edge)), ids

    def _edge(self, artefacts: Artefacts) -> tuple[EdgeModel, dict[str, str]]:
        if self.edges == "calibrated":
            table, table_id = artefacts.table("calibration", self.table)
            return Calibrated(edge_map_of(table), table_id, self.top_k or _WIDE), {"calibration": table_id}
        if self.ngram_weight > 0:
            return self._corrected(artefacts)
        every = _WIDE if self.order == "beam" else None
        return Marginal(every if self.top_k is None else self.top_k), {}

    def _corrected(self, artefacts: Artefacts) -> tuple[NGramCorrected, dict[str, str]]:
        share = {"corpus": 0.0, "text": 1.0, "both": self.text_share}[self.counts]
        # A corpus that would count for nothing is not asked for.
        corpus, corpus_id = artefacts.ngram(self.ngram) if share < 1 else (empty_counts(_ASSUMED_VOCABULARY, 0), "")
        edge = NGramCorrected(
            self.ngram_weight,
            corpus,
            corpus_id,
            text_share=share,
            renormalised=self.renormalised,
            adaptive=self.adaptive,
            top_k=self.top_k or _WIDE,
        )
        return edge, {"ngram": corpus_id} if corpus_id else {}


def _readers() -> dict[str, list[str]]:
    """The parts that read each setting, as they are typed."""
    readers: dict[str, list[str]] = {}
    for part, name, settings in _parts():
        for setting in settings:
            readers.setdefault(setting, []).append(f"{part}={name}")
    return readers


def _parts() -> Iterator[tuple[str, str, tuple[str, ...]]]:
    yield from (("edges", name, settings) for name, settings in EDGES.items())
    yield from (("order", name, settings) for name, (_, settings) in ORDERS.items())
    yield from (("rule", name, settings) for name, settings in RULES.items())


class Preset(Composed):
    """A policy that is `Tree` with some settings; one that is more than that composes the rest itself."""

    @abstractmethod
    def tree_settings(self) -> TreeSettings:
        """The settings of `Tree` that mean the same; none where no settings do."""

    def tree(self) -> Tree:
        """The policy `tree` with these settings."""
        return Tree(**{name: value for name, value in self.tree_settings().items() if value is not None})

    def compose(self, artefacts: Artefacts) -> Composition:
        """What that tree composes."""
        return self.tree().compose(artefacts)

    def own_settings(self, *names: str) -> TreeSettings:
        """Some settings of this policy that `Tree` has under the same names."""
        return {name: getattr(self, name) for name in names}


def typed_tree(settings: TreeSettings) -> str:
    """The policy ``tree`` with some settings as it is typed; empty without any.

    >>> typed_tree({"budget": 8, "rule": "floor", "step": None, "doubling": True, "table": "a,b.json"})
    'tree:budget=8,rule=floor,doubling=true,table="a,b.json"'
    """
    pairs = [f"{name}={_typed(value)}" for name, value in settings.items() if value is not None]
    return f"tree:{','.join(pairs)}" if pairs else ""


def _typed(value: float | str) -> str:
    """A value as the parser reads it: in quotes where it would be taken apart."""
    is_plain = not isinstance(value, str) or (re.fullmatch(r"[a-zA-Z][\w.-]*", value) and ".." not in value)
    return str(value) if isinstance(value, str) and is_plain else json.dumps(value)
