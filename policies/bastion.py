"""The ratio rule from a floor on, cut to whole steps."""

from dataclasses import dataclass
from typing import ClassVar

from simlab.policies.best_first import BestFirst
from simlab.policies.budget_rules import FloorAndStep
from simlab.policies.composition import Composed, Composition
from simlab.policies.edge_models import Marginal
from simlab.policies.round_costs import ALL_STAGES, MODEL_STAGES
from simlab.policies.shelf import AUTO, Shelf


@dataclass(frozen=True)
class Bastion(Composed):
    """Best-first, at least ``floor`` nodes and then as many as the ratio of expected tokens to seconds grows, in steps.

    Sizes of ``floor`` and ``step`` count the root, as published; so does ``doubling``, which allows floor, 2 floor, 4
    floor, ... The release verifies greedily at every temperature; here the target is sampled and matched, so the text
    is the target's. It reads 128 candidates; with ``top_k=128`` so does this, where the trace holds them (`record
    --min-width 128`). Its log-probabilities are of reduced precision and its ties go by age; these are simlab's.
    """

    budget: int = 512
    floor: int = 32
    step: int = 32
    doubling: bool = False
    top_k: int = 64
    overhead: bool = True
    cost: str = AUTO

    source: ClassVar[str] = "BASTION 2026, arXiv 2605.29727"
    exactness: ClassVar[str] = "exact (from released code), but for precision, tie order and width; measured prices"
    reads: ClassVar[str] = "the first top_k candidates at each depth; prices"

    def __post_init__(self) -> None:
        for name in ("budget", "floor", "step", "top_k"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1; got {getattr(self, name)}")

    def compose(self, shelf: Shelf) -> Composition:
        """Best-first on the marginals, the ratio rule above a floor."""
        table, cost_id = shelf.cost(self.cost)
        stages = ALL_STAGES if self.overhead else MODEL_STAGES
        rule = FloorAndStep(self.budget, table, stages, self.floor, self.step, self.doubling)
        return Composition(BestFirst(Marginal(self.top_k)), rule, {"cost": cost_id})
