"""When a tree ends: the budget rules of single texts by their names, with the settings that each of them reads."""

from collections.abc import Mapping
from dataclasses import dataclass

from simlab.policies.artefacts import AUTO, Artefacts
from simlab.policies.costs.curves import ALL_STAGES, MODEL_STAGES
from simlab.policies.orders.node_order import NodeOrder
from simlab.policies.rules.budgets import (
    FULL_SCAN,
    BestRatio,
    BudgetRule,
    FixedBudget,
    FixedPrice,
    FloorAndStep,
    SurvivalBudget,
)
from simlab.policies.rules.online_price import OnlinePrice

FIXED, SURVIVAL, RATIO, FLOOR, PRICE = "fixed", "survival", "ratio", "floor", "price"

STOPS: Mapping[str, tuple[str, ...]] = {
    FIXED: (),
    SURVIVAL: ("threshold",),
    RATIO: ("look_ahead", "tile", "overhead", "cost"),
    FLOOR: ("floor", "step", "doubling", "overhead", "cost"),
    PRICE: ("rate", "memory", "look_ahead", "cost"),
}
"""The settings that each rule reads beside its budget."""


@dataclass(frozen=True)
class Stop:
    """A budget rule as it is set.

    Attributes:
        name: one of `STOPS`.
        budget: never more drafted tokens.
        threshold: ``survival``: the least path probability.
        floor: ``floor``: so many nodes enter whatever they cost.
        step: ``floor``: sizes beyond it; None: the floor.
        doubling: ``floor``: sizes are floor, 2 floor, 4 floor, ...
        rate: ``price``: tokens per second; None: it is learnt.
        memory: ``price``: how much of its running means is kept.
        look_ahead: sizes in a row that may bring no more; 0: all; None: 1 under ``ratio``, all under ``price``.
        tile: ``ratio``: sizes whose pass fills whole tiles of so many tokens.
        overhead: whether all stages of a round count, or those of the two models alone.
        cost: the latency profile.
    """

    name: str
    budget: int
    threshold: float = 0.02
    floor: int = 32
    step: int | None = None
    doubling: bool = False
    rate: float | None = None
    memory: float = 0.95
    look_ahead: int | None = None
    tile: int = 1
    overhead: bool = True
    cost: str = AUTO

    def __post_init__(self) -> None:
        step = self.floor if self.step is None else self.step
        for name, value in {"budget": self.budget, "floor": self.floor, "step": step, "tile": self.tile}.items():
            if value < 1:
                raise ValueError(f"{name} must be at least 1; got {value}")
        if not 0 <= self.threshold <= 1:
            raise ValueError(f"threshold must be a probability; got {self.threshold}")
        if self.rate is not None and not 0 <= self.rate < float("inf"):
            raise ValueError(f"rate must be tokens per second, at least 0; got {self.rate}")
        if not 0 <= self.memory < 1:
            raise ValueError(f"memory must be from 0 to below 1; got {self.memory}")
        if self.look_ahead is not None and self.look_ahead < 0:
            raise ValueError(f"look_ahead must be at least 1, or 0 for all sizes; got {self.look_ahead}")

    def made(self, artefacts: Artefacts, order: NodeOrder) -> tuple[BudgetRule | OnlinePrice, dict[str, str]]:
        """The rule, and the ids of what it was measured with.

        Args:
            artefacts: with prices, where the rule weighs seconds.
            order: of the nodes; what its channels take is in every round that the rule weighs.
        """
        if self.name == FIXED:
            return FixedBudget(self.budget), {}
        if self.name == SURVIVAL:
            return SurvivalBudget(self.budget, self.threshold), {}
        measured, cost_id = artefacts.cost(self.cost)
        cost = measured.charged(order)
        artefact_ids, stages = {"cost": cost_id}, ALL_STAGES if self.overhead else MODEL_STAGES
        if self.name == RATIO:
            look_ahead = 1 if self.look_ahead is None else self.look_ahead or FULL_SCAN
            return BestRatio(self.budget, cost, stages, look_ahead=look_ahead, tile=self.tile), artefact_ids
        if self.name == FLOOR:
            step = self.floor if self.step is None else self.step
            rule = FloorAndStep(self.budget, cost, stages, floor=self.floor, step=step, doubling=self.doubling)
            return rule, artefact_ids
        look_ahead = self.look_ahead or FULL_SCAN
        if self.rate is None:
            return OnlinePrice(self.budget, cost, self.memory, look_ahead=look_ahead), artefact_ids
        return FixedPrice(self.budget, cost, self.rate, look_ahead=look_ahead), artefact_ids
