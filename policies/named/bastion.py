"""The ratio rule from a floor on, cut to whole steps."""

from dataclasses import dataclass, replace

from simlab.policies.artefacts import AUTO, Artefacts
from simlab.policies.composition import Composition
from simlab.policies.costs.roofline import layer_sizes, roofline_rounds
from simlab.policies.named.tree import FLOOR, STOPS, Preset, TreeSettings
from simlab.policies.rules.budgets import FloorAndStep
from simlab.policies.settings import at_least, one_of

MEASURED, ROOFLINE = "measured", "roofline"

PUBLISHED_WIDTH = 128
"""Candidates that the release reads at each depth."""


@dataclass(frozen=True)
class Bastion(Preset):
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

    budget: int = at_least(1, 512)
    floor: int = at_least(1, 32)
    step: int | None = at_least(1, None, "must be at least 1, or left out for the floor")
    doubling: bool = False
    top_k: int | None = at_least(1, None, "must be at least 1, or left out")
    overhead: bool = True
    cost_model: str = one_of((MEASURED, ROOFLINE), MEASURED, f"must be {MEASURED} or {ROOFLINE}")
    target_config: str = AUTO
    cost: str = AUTO

    source = "BASTION 2026, arXiv 2605.29727"
    exactness = (
        "exact (from released code), but for precision and tie order; with fitted or measured latencies of simlab's "
        "cost files"
    )
    reads = "the first top_k candidates at each depth; a latency profile"
    variants = (
        "",
        "floor=1,step=1,overhead=false",
        "floor=4,doubling=true,top_k=16",
        "floor=1,step=1,cost_model=roofline",
    )
    tries = ("budget={budget},floor=4/8/16/32,step=4/8/16/32",)

    def fitted(self, artefacts: Artefacts) -> "Bastion":
        """With the candidates that the release reads, or as many as the trace at hand is sure to hold."""
        return self if self.top_k is not None else replace(self, top_k=min(PUBLISHED_WIDTH, artefacts.min_width()))

    def tree_settings(self) -> TreeSettings:
        """By measured seconds `tree` has the rule; of how many candidates, is said where the trace decides it."""
        if self.cost_model == ROOFLINE or self.top_k is None:
            return {}
        read = {"top_k": self.top_k, "rule": FLOOR, **self.own_settings(*STOPS[FLOOR])}
        return {"budget": self.budget, **read}

    def compose(self, artefacts: Artefacts) -> Composition:
        """Best-first on the marginals, the ratio rule above a floor."""
        made = Preset.compose(replace(self.fitted(artefacts), cost_model=MEASURED), artefacts)
        if self.cost_model == MEASURED:
            return made
        assert isinstance(made.rule, FloorAndStep)
        where = "the target's configuration" if self.target_config == AUTO else self.target_config
        sizes = layer_sizes(artefacts.target_config(self.target_config), where)
        rule = replace(made.rule, roofline=roofline_rounds(made.rule.cost, sizes, made.rule.stages))
        return Composition(made.order, rule, {**made.artefacts, "target_config": sizes.sizes_id})
