"""Budget rules by the names that settings give them, for policies that take any of them."""

from collections.abc import Mapping
from typing import Protocol

from simlab.policies.artefacts import Artefacts
from simlab.policies.composition import Composition
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
STOPS = (FIXED, SURVIVAL, RATIO, FLOOR, PRICE)

READ_BY: Mapping[str, tuple[str, ...]] = {
    "threshold": (SURVIVAL,),
    "floor": (FLOOR,),
    "step": (FLOOR,),
    "rate": (PRICE,),
    "memory": (PRICE,),
    "look_ahead": (RATIO, PRICE),
    "cost": (RATIO, FLOOR, PRICE),
}
"""The rules that read a setting."""


class StopSettings(Protocol):
    """A policy's settings of its budget rule: those of `simlab.policies.named.calibrated`, which says what they do."""

    @property
    def budget(self) -> int: ...

    @property
    def threshold(self) -> float: ...

    @property
    def floor(self) -> int: ...

    @property
    def step(self) -> int | None: ...

    @property
    def rate(self) -> float | None: ...

    @property
    def memory(self) -> float: ...

    @property
    def look_ahead(self) -> int | None: ...

    @property
    def cost(self) -> str: ...


def check_stop(settings: StopSettings) -> None:
    """Refuse settings without sense.

    Raises:
        ValueError: naming the setting.
    """
    step = settings.floor if settings.step is None else settings.step
    for name, value in {"budget": settings.budget, "floor": settings.floor, "step": step}.items():
        if value < 1:
            raise ValueError(f"{name} must be at least 1; got {value}")
    if not 0 <= settings.threshold <= 1:
        raise ValueError(f"threshold must be a probability; got {settings.threshold}")
    if settings.rate is not None and not 0 <= settings.rate < float("inf"):
        raise ValueError(f"rate must be tokens per second, at least 0; got {settings.rate}")
    if not 0 <= settings.memory < 1:
        raise ValueError(f"memory must be from 0 to below 1; got {settings.memory}")
    if settings.look_ahead is not None and settings.look_ahead < 0:
        raise ValueError(f"look_ahead must be at least 1, or 0 for all sizes; got {settings.look_ahead}")


def stop_rule(
    stop: str, settings: StopSettings, artefacts: Artefacts, order: NodeOrder
) -> tuple[BudgetRule | OnlinePrice, dict[str, str]]:
    """The rule of a name, and the content ids of what it was measured with.

    Args:
        stop: one of `STOPS`.
        settings: that were checked.
        artefacts: with prices, where the rule weighs seconds.
        order: of the nodes; what its channels take is in every round that the rule weighs.

    Raises:
        CostError: the prices do not say what a channel of the order takes.
    """
    if stop == FIXED:
        return FixedBudget(settings.budget), {}
    if stop == SURVIVAL:
        return SurvivalBudget(settings.budget, settings.threshold), {}
    cost, cost_id = artefacts.cost(settings.cost)
    cost = cost.charged(Composition(order, FixedBudget(settings.budget)))
    artefact_ids = {"cost": cost_id}
    if stop == RATIO:
        look_ahead = 1 if settings.look_ahead is None else settings.look_ahead or FULL_SCAN
        return BestRatio(settings.budget, cost, look_ahead=look_ahead), artefact_ids
    if stop == FLOOR:
        step = settings.floor if settings.step is None else settings.step
        return FloorAndStep(settings.budget, cost, floor=settings.floor, step=step), artefact_ids
    look_ahead = settings.look_ahead or FULL_SCAN
    if settings.rate is None:
        return OnlinePrice(settings.budget, cost, settings.memory, look_ahead=look_ahead), artefact_ids
    return FixedPrice(settings.budget, cost, settings.rate, look_ahead=look_ahead), artefact_ids
