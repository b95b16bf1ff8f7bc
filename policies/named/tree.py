"""Any edges, in any order of nodes, under any budget rule: combinations that nobody has named."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import ClassVar

from simlab.channels import POOL
from simlab.policies.artefacts import AUTO, Artefacts
from simlab.policies.composition import Composed, Composition
from simlab.policies.edges.models import Calibrated, EdgeModel, Marginal, NGramCorrected
from simlab.policies.named.calibrated import edge_map_of
from simlab.policies.named.expand_parent import ExpandParent
from simlab.policies.orders.beam import EVERY_DEPTH, Beam
from simlab.policies.orders.best_first import BestFirst
from simlab.policies.orders.lattice_order import BestPaths, LatticeOrder, WholeFamilies
from simlab.policies.orders.lattice_sources import LatticeSource, PoolSource, TransitionSource
from simlab.policies.orders.node_order import NodeOrder
from simlab.policies.rules.stops import FIXED, READ_BY, STOPS, check_stop, stop_rule
from simlab.policy import ChannelNeed

MARGINAL, CALIBRATED, NGRAM, TRANSITIONS, POOLS = "marginal", "calibrated", "ngram", "transitions", "pool"
EDGES = (MARGINAL, CALIBRATED, NGRAM, TRANSITIONS, POOLS)
BEST_FIRST, BEAM, EXPAND_PARENT = "best-first", "beam", "expand-parent"

ORDERS: Mapping[str, tuple[str, ...]] = {
    BEST_FIRST: EDGES,
    BEAM: (MARGINAL, CALIBRATED, NGRAM),
    EXPAND_PARENT: (MARGINAL, TRANSITIONS, POOLS),
}
"""The edges that an order takes."""

_READ_BY_EDGES: Mapping[str, tuple[str, ...]] = {
    "top_k": (MARGINAL, CALIBRATED, NGRAM, TRANSITIONS),
    "table": (CALIBRATED,),
    "ngram_weight": (NGRAM, TRANSITIONS, POOLS),
    "ngram": (NGRAM, TRANSITIONS, POOLS),
    "renormalised": (NGRAM, TRANSITIONS, POOLS),
    "channel": (TRANSITIONS, POOLS),
    "previous": (TRANSITIONS,),
    "beam": (POOLS,),
    "depth_price": (POOLS,),
}
_READ_BY_ORDERS: Mapping[str, tuple[str, ...]] = {"width": (BEAM, EXPAND_PARENT), "deepest": (BEAM,)}

_USUAL_WIDTH, _USUAL_WEIGHT = 64, 0.2
_CHANNELS = {TRANSITIONS: "treeflash", POOLS: "taps"}


@dataclass(frozen=True)
class Tree(Composed):
    """Nodes that ``edges`` score, in an ``order``, as many as a ``rule`` lets in, at most ``budget`` drafted tokens.

    ``edges``: ``marginal``, the drafter's own; ``calibrated``, after the fitted ``table``; ``ngram``, with a 3-gram at
    ``ngram_weight`` (0.2), as in ``presto``; ``transitions``, the rows of a first-order head in ``channel``
    (treeflash), ``previous`` of each depth; ``pool``, the nodes of a scorer in ``channel`` (taps), made with the same
    ``beam``, at a ``depth_price``. On these two a 3-gram may stand too, with ``ngram_weight``. ``top_k`` candidates
    are read below a node; by default every kept one of marginals, 64 of calibrated ones and beside a 3-gram, and 6 of
    transitions.

    ``order``: ``best-first``; ``beam``, below the ``width`` best nodes of a depth alone, at most ``deepest`` deep;
    ``expand-parent``, the first ``width`` children of the best node all at once, on marginals and channels. ``rule``
    and its settings are ``stop`` and the settings of ``calibrated``.
    """

    edges: str = MARGINAL
    order: str = BEST_FIRST
    rule: str = FIXED
    budget: int = 64
    top_k: int | None = None
    table: str = AUTO
    ngram_weight: float | None = None
    ngram: str = AUTO
    renormalised: bool = False
    channel: str | None = None
    previous: int = 6
    beam: int = 24
    depth_price: float = 0.0
    width: int = 7
    deepest: int | None = None
    threshold: float = 0.02
    floor: int = 32
    step: int | None = None
    rate: float | None = None
    memory: float = 0.95
    look_ahead: int | None = None
    cost: str = AUTO

    source: ClassVar[str] = "simlab; the parts have their own sources"
    exactness: ClassVar[str] = "exact (by definition)"
    reads: ClassVar[str] = "what its edges, its order and its rule read"
    variants: ClassVar[tuple[str, ...]] = (
        "budget=24",
        "edges=calibrated,order=beam,width=4,budget=24",
        "edges=ngram,renormalised=true,rule=ratio",
        "edges=transitions,rule=survival,budget=24",
        "edges=transitions,ngram_weight=0.2,budget=24",
        "edges=transitions,rule=ratio,look_ahead=0,budget=24",
        "edges=transitions,rule=floor,floor=8,step=4,budget=24",
        "edges=transitions,order=expand-parent,width=3,budget=24",
        "edges=pool,rule=price,budget=24",
        "edges=pool,ngram_weight=0.1,renormalised=true,budget=24",
        "order=expand-parent,rule=ratio,budget=24",
    )

    def __post_init__(self) -> None:
        self._check_parts()
        for name in ("top_k", "previous", "beam", "width", "deepest"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1; got {value}")
        if not 0.0 <= self._weight < math.inf:
            raise ValueError(f"ngram_weight must be at least 0; got {self.ngram_weight}")
        if self._weight == 0 and (self.renormalised or self.ngram != AUTO):
            raise ValueError("ngram and renormalised are of a 3-gram, and there is none; give an ngram_weight above 0")
        check_stop(self)

    def _check_parts(self) -> None:
        """Refuse parts that there are not, or that do not go together, and settings that none of them reads."""
        parts = (
            ("edges", self.edges, EDGES, _READ_BY_EDGES),
            ("order", self.order, tuple(ORDERS), _READ_BY_ORDERS),
            ("rule", self.rule, STOPS, READ_BY),
        )
        for kind, chosen, known, read_by in parts:
            if chosen not in known:
                raise ValueError(f"{kind} must be one of {', '.join(known)}; got {chosen!r}")
            for setting in fields(self):
                readers = read_by.get(setting.name, known)
                if chosen not in readers and getattr(self, setting.name) != setting.default:
                    readable = f"{kind}={' or '.join(readers)}"
                    raise ValueError(f"{setting.name} is read with {readable} alone; {kind} is {chosen}")
        if self.edges not in ORDERS[self.order]:
            raise ValueError(f"order={self.order} takes edges={' or '.join(ORDERS[self.order])}; edges is {self.edges}")

    @staticmethod
    def searched(budget: int, depth: int) -> tuple[str, ...]:
        """What `simlab optimize` tries of it: combinations that no other policy is."""
        return (
            f"edges=transitions,ngram_weight=0.1/0.2,budget=1..{budget}",
            f"edges=transitions,rule=ratio/price,budget={budget}",
            f"edges=pool,rule=ratio,budget={budget}",
            f"edges=ngram,renormalised=true,rule=ratio/price,budget={budget}",
        )

    def compose(self, artefacts: Artefacts) -> Composition:
        """The parts that the settings name."""
        order, of_order = self._order(artefacts)
        rule, of_rule = stop_rule(self.rule, self, artefacts, order)
        return Composition(order, rule, {**of_order, **of_rule})

    @property
    def _weight(self) -> float:
        usual = _USUAL_WEIGHT if self.edges == NGRAM else 0.0
        return usual if self.ngram_weight is None else self.ngram_weight

    def _order(self, artefacts: Artefacts) -> tuple[NodeOrder, dict[str, str]]:
        if self.edges in _CHANNELS:
            return self._on_channel(artefacts)
        if self.order == EXPAND_PARENT:
            return ExpandParent(self.width), {}
        edge, ids = _EDGES[self.edges](self, artefacts)
        deepest = EVERY_DEPTH if self.deepest is None else self.deepest
        return BestFirst(edge) if self.order == BEST_FIRST else Beam(edge, width=self.width, deepest=deepest), ids

    def _on_channel(self, artefacts: Artefacts) -> tuple[NodeOrder, dict[str, str]]:
        channel = self.channel or _CHANNELS[self.edges]
        source: LatticeSource = TransitionSource(channel, previous=self.previous, top_k=self.top_k or 6)
        if self.edges == POOLS:
            need = ChannelNeed(channel, POOL, equal=(("beam", self.beam),))
            source = PoolSource(need, depth_price=float(self.depth_price))
        if self.order == EXPAND_PARENT:
            return LatticeOrder(source, WholeFamilies(self.width)), {}
        if self._weight == 0:
            return LatticeOrder(source), {}
        edge, ids = self._corrected(artefacts)
        return LatticeOrder(source, BestPaths(edge)), ids

    def _marginal(self, artefacts: Artefacts) -> tuple[EdgeModel, dict[str, str]]:
        return Marginal(self.top_k), {}

    def _calibrated(self, artefacts: Artefacts) -> tuple[EdgeModel, dict[str, str]]:
        table, table_id = artefacts.table("calibration", self.table)
        return Calibrated(edge_map_of(table), table_id, self.top_k or _USUAL_WIDTH), {"calibration": table_id}

    def _corrected(self, artefacts: Artefacts) -> tuple[NGramCorrected, dict[str, str]]:
        counts, counts_id = artefacts.ngram(self.ngram)
        top_k = self.top_k or _USUAL_WIDTH
        edge = NGramCorrected(self._weight, counts, counts_id, renormalised=self.renormalised, top_k=top_k)
        return edge, {"ngram": counts_id}


_EDGES: Mapping[str, Callable[[Tree, Artefacts], tuple[EdgeModel, dict[str, str]]]] = {
    MARGINAL: Tree._marginal,
    CALIBRATED: Tree._calibrated,
    NGRAM: Tree._corrected,
}
