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
from simlab.policies.settings import ALL_SIZES, PROBABILITY, at_least, below_one, between, check_settings

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
    budget: int = at_least(1)
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

    def __post_init__(self) -> None:
        check_settings(self)

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
