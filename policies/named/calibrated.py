"""Best-first trees on fitted probabilities, with any budget rule."""

from dataclasses import dataclass, fields

from simlab.policies.artefacts import AUTO
from simlab.policies.named.tree import FIXED, STOPS, Preset, TreeSettings
from simlab.policies.settings import at_least

_READ_BY = {
    setting: tuple(stop for stop, settings in STOPS.items() if setting in settings)
    for setting in ("threshold", "floor", "step", "rate", "memory", "look_ahead", "cost")
}


@dataclass(frozen=True)
class CalibratedTree(Preset):
    """Best-first on probabilities that a logistic map made of the drafter's, at most ``budget`` drafted tokens.

    The map is fitted on another trace, by depth and class of rank, below the spine and elsewhere: `simlab train
    calibration`. ``stop`` ends a tree: ``fixed`` at the budget, ``survival`` below a path probability of ``threshold``,
    ``ratio`` where expected tokens per second grow no more, ``floor`` the same from ``floor`` nodes on in steps of
    ``step``, by default the floor, ``price`` where a token is not worth its seconds at ``rate``, or at a rate learnt
    with ``memory``. ``look_ahead`` is that of ``caddtree`` under ``ratio``, by default 1, and that of ``price`` under
    ``price``, by default all sizes. All stages of a round count. ``threshold`` is by default that of ``survival``.
    """

    budget: int = 64
    stop: str = FIXED
    table: str = AUTO
    top_k: int = at_least(1, 64)
    threshold: float = 0.02
    floor: int = 32
    step: int | None = None
    rate: float | None = None
    memory: float = 0.95
    look_ahead: int | None = None
    cost: str = AUTO

    source = "TreeSpark 2026, arXiv 2609.22098"
    exactness = "its map exact (from released code), on a diffusion drafter; maps by depth and rank are simlab's"
    reads = "the first top_k candidates at each depth; a fitted calibration; a latency profile for ratio, floor, price"
    variants = (
        "budget=24",
        "stop=survival",
        "stop=ratio",
        "stop=floor,floor=8,step=8",
        "stop=price",
        "stop=price,rate=60",
    )
    tries = ("budget=1..{budget}", "stop=ratio/price,budget={budget}")

    def __post_init__(self) -> None:
        if self.stop not in STOPS:
            raise ValueError(f"stop must be one of {', '.join(STOPS)}; got {self.stop!r}")
        for setting in fields(self):
            readers = _READ_BY.get(setting.name, tuple(STOPS))
            if self.stop not in readers and getattr(self, setting.name) != setting.default:
                raise ValueError(f"{setting.name} is read with stop={' or '.join(readers)} alone; stop is {self.stop}")
        super().__post_init__()
        self.tree()

    def tree_settings(self) -> TreeSettings:
        """Best-first on calibrated probabilities, one of the rules."""
        read = {"edges": "calibrated", "top_k": self.top_k, "table": self.table, "rule": self.stop}
        return {"budget": self.budget, **read, **self.own_settings(*filter(_READ_BY.get, STOPS[self.stop]))}
