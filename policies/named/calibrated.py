"""Best-first trees on fitted probabilities, with any budget rule."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import ClassVar

import numpy as np

from simlab.arrays import Doubles
from simlab.policies.artefacts import AUTO, Artefacts
from simlab.policies.composition import Composed, Composition, typed_tree
from simlab.policies.edges.correction import NUM_CLASSES
from simlab.policies.edges.models import Calibrated
from simlab.policies.orders.best_first import BestFirst
from simlab.policies.rules.stops import FIXED, STOPS, Stop

_READ_BY = {
    setting: tuple(stop for stop, settings in STOPS.items() if setting in settings)
    for setting in ("threshold", "floor", "step", "rate", "memory", "look_ahead", "cost")
}


@dataclass(frozen=True)
class CalibratedTree(Composed):
    """Best-first on probabilities that a logistic map made of the drafter's, at most ``budget`` drafted tokens.

    The map is fitted on another trace, by depth and class of rank, below the spine and elsewhere: `simlab train
    calibration`. ``stop`` ends a tree: ``fixed`` at the budget, ``survival`` below a path probability of ``threshold``,
    ``ratio`` where expected tokens per second grow no more, ``floor`` likewise from ``floor`` nodes on in steps of
    ``step``, by default the floor, ``price`` where a token is not worth its seconds at ``rate``, or at a rate learnt
    with ``memory``. ``look_ahead`` is that of ``caddtree`` under ``ratio``, by default 1, and that of ``price`` under
    ``price``, by default all sizes. All stages of a round count. ``threshold`` is by default that of ``survival``.
    """

    budget: int = 64
    stop: str = FIXED
    table: str = AUTO
    top_k: int = 64
    threshold: float = 0.02
    floor: int = 32
    step: int | None = None
    rate: float | None = None
    memory: float = 0.95
    look_ahead: int | None = None
    cost: str = AUTO

    source: ClassVar[str] = "TreeSpark 2026, arXiv 2609.22098"
    exactness: ClassVar[str] = (
        "its map exact (from released code), on a diffusion drafter; maps by depth and rank are simlab's"
    )
    reads: ClassVar[str] = (
        "the first top_k candidates at each depth; a fitted calibration; a latency profile for ratio, floor, price"
    )
    variants: ClassVar[tuple[str, ...]] = (
        "budget=24",
        "stop=survival",
        "stop=ratio",
        "stop=floor,floor=8,step=8",
        "stop=price",
        "stop=price,rate=60",
    )

    def __post_init__(self) -> None:
        if self.stop not in STOPS:
            raise ValueError(f"stop must be one of {', '.join(STOPS)}; got {self.stop!r}")
        for setting in fields(self):
            readers = _READ_BY.get(setting.name, tuple(STOPS))
            if self.stop not in readers and getattr(self, setting.name) != setting.default:
                raise ValueError(f"{setting.name} is read with stop={' or '.join(readers)} alone; stop is {self.stop}")
        if self.top_k < 1:
            raise ValueError(f"top_k must be at least 1; got {self.top_k}")
        _ = self._stop

    @property
    def _stop(self) -> Stop:
        """The budget rule as it is set; refused where a setting has no sense."""
        names = ("budget", "threshold", "floor", "step", "rate", "memory", "look_ahead", "cost")
        return Stop(self.stop, **{name: getattr(self, name) for name in names})

    @staticmethod
    def searched(budget: int, depth: int) -> tuple[str, ...]:
        """What `simlab optimize` tries of it."""
        return (f"budget=1..{budget}", f"stop=ratio/price,budget={budget}")

    def as_tree(self) -> str:
        """This policy as `tree` composes it."""
        read = {name: getattr(self, name) for name in STOPS[self.stop] if name in _READ_BY}
        parts: dict[str, int | str] = {
            "budget": self.budget,
            "edges": "calibrated",
            "top_k": self.top_k,
            "table": self.table,
        }
        return typed_tree(**parts, rule=self.stop, **read)

    def compose(self, artefacts: Artefacts) -> Composition:
        """Best-first on calibrated probabilities, one of the rules."""
        table, table_id = artefacts.table("calibration", self.table)
        order = BestFirst(Calibrated(edge_map_of(table), table_id, self.top_k))
        rule, artefact_ids = self._stop.made(artefacts, order)
        return Composition(order, rule, {"calibration": table_id, **artefact_ids})


def edge_map_of(table: Mapping[str, object]) -> Doubles:
    """The maps of a fitted table, float64 ``[D, 2, classes, 2]``."""
    edge_map = np.array(table["values"], np.float64)
    if edge_map.ndim != 4 or edge_map.shape[1:] != (2, NUM_CLASSES, 2):
        raise ValueError(f"a calibration has values [D, 2, {NUM_CLASSES}, 2]; got {list(edge_map.shape)}; fit it again")
    return edge_map
