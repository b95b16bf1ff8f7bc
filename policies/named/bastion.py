"""The ratio rule from a floor on, cut to whole steps."""

from dataclasses import dataclass, replace
from typing import ClassVar

from simlab.policies.artefacts import AUTO, Artefacts
from simlab.policies.composition import Composed, Composition, typed_tree
from simlab.policies.costs.curves import ALL_STAGES, MODEL_STAGES
from simlab.policies.costs.roofline import layer_sizes, roofline_rounds
from simlab.policies.edges.models import Marginal
from simlab.policies.orders.best_first import BestFirst
from simlab.policies.rules.budgets import FloorAndStep

MEASURED, ROOFLINE = "measured", "roofline"

PUBLISHED_WIDTH = 128
"""Candidates that the release reads at each depth."""


@dataclass(frozen=True)
class Bastion(Composed):
    """Best-first, at least ``floor`` nodes and then as many as the ratio of expected tokens to seconds grows, in steps.

    Sizes of ``floor`` and ``step`` count the root, as published; so does ``doubling``, which allows floor, 2 floor, 4
    floor, ... A ``step`` that is left out is the floor, as in the release. That verifies greedily at every temperature;
    here the target is sampled and matched, so the text is the target's. It reads 128 candidates; so does this where
    the trace holds them (`record --min-width 128`), else as many as it holds at every depth, most often 64, and tables
    name the ``top_k`` that it came to. ``budget`` stands for the release's cap of 8192 nodes; by default it ends with
    the shipped prices. The release's log-probabilities are of reduced precision, and its ties go by age; path
    probabilities below 2**-41 count as 0 here.

    ``cost_model=roofline`` is how the release prices a pass: the larger of alpha_m T_mem + beta_m and alpha_c T_comp +
    beta_c, from the bytes and operations of a dense transformer, the four constants fitted to measured seconds; other
    stages cost their mean. It is fitted to the prices that ``measured`` takes as they are. ``target_config`` has the
    sizes of the target's layers: its config.json, or the folder of its weights.
    """

    budget: int = 512
    floor: int = 32
    step: int | None = None
    doubling: bool = False
    top_k: int | None = None
    overhead: bool = True
    cost_model: str = MEASURED
    target_config: str = AUTO
    cost: str = AUTO

    source: ClassVar[str] = "BASTION 2026, arXiv 2605.29727"
    exactness: ClassVar[str] = (
        "exact (from released code), but for precision and tie order; with fitted or measured latencies of simlab's "
        "cost files"
    )
    reads: ClassVar[str] = "the first top_k candidates at each depth; a latency profile"
    variants: ClassVar[tuple[str, ...]] = (
        "",
        "floor=1,step=1,overhead=false",
        "floor=4,doubling=true,top_k=16",
        "floor=1,step=1,cost_model=roofline",
    )

    def __post_init__(self) -> None:
        for name in ("budget", "floor"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1; got {getattr(self, name)}")
        if self.step is not None and self.step < 1:
            raise ValueError(f"step must be at least 1, or left out for the floor; got {self.step}")
        if self.top_k is not None and self.top_k < 1:
            raise ValueError(f"top_k must be at least 1, or left out; got {self.top_k}")
        if self.cost_model not in (MEASURED, ROOFLINE):
            raise ValueError(f"cost_model must be {MEASURED} or {ROOFLINE}; got {self.cost_model}")

    def fitted(self, artefacts: Artefacts) -> "Bastion":
        """With the candidates that the release reads, or as many as the trace at hand is sure to hold."""
        return self if self.top_k is not None else replace(self, top_k=min(PUBLISHED_WIDTH, artefacts.min_width()))

    @staticmethod
    def searched(budget: int, depth: int) -> tuple[str, ...]:
        """What `simlab optimize` tries of it."""
        return (f"budget={budget},floor=4/8/16/32,step=4/8/16/32",)

    def as_tree(self) -> str:
        """This policy as `tree` composes it."""
        if self.cost_model == ROOFLINE or self.top_k is None:
            return ""
        return typed_tree(
            budget=self.budget,
            top_k=self.top_k,
            rule="floor",
            floor=self.floor,
            step=self.step,
            doubling=self.doubling,
            overhead=self.overhead,
            cost=self.cost,
        )

    def compose(self, artefacts: Artefacts) -> Composition:
        """Best-first on the marginals, the ratio rule above a floor."""
        table, cost_id = artefacts.cost(self.cost)
        stages = ALL_STAGES if self.overhead else MODEL_STAGES
        artefact_ids, roofline = {"cost": cost_id}, None
        if self.cost_model == ROOFLINE:
            where = "the target's configuration" if self.target_config == AUTO else self.target_config
            sizes = layer_sizes(artefacts.target_config(self.target_config), where)
            artefact_ids["target_config"] = sizes.sizes_id
            roofline = roofline_rounds(table, sizes, stages)
        step = self.floor if self.step is None else self.step
        rule = FloorAndStep(
            self.budget, table, stages, floor=self.floor, step=step, doubling=self.doubling, roofline=roofline
        )
        return Composition(BestFirst(Marginal(self.fitted(artefacts).top_k)), rule, artefact_ids)
