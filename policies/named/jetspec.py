"""Trees on paths that a block drafter was run behind, as JetSpec's paper describes them."""

from dataclasses import dataclass

from simlab.channels import POOL
from simlab.policies.artefacts import Artefacts
from simlab.policies.composition import Composition
from simlab.policies.named.tree import Preset, TreeSettings
from simlab.policies.orders.lattice_order import BestPaths, LatticeOrder, WholeFamilies
from simlab.policies.orders.lattice_sources import PoolSource
from simlab.policies.rules.budgets import FixedBudget
from simlab.policies.settings import at_least, one_of
from simlab.policy import ChannelNeed

FAMILIES, BEST = "expand-parent", "best-first"


@dataclass(frozen=True)
class JetSpec(Preset):
    """Up to ``budget`` drafted tokens of a pool in which every token is scored given its whole path.

    Depth by depth, a causal head is run again behind the ``beam`` most probable paths, whose tokens fill the first
    slots of its block, and ``width`` tokens are kept behind each. ``order`` is the shape that JetSpec released, in
    which a node's children enter together, or ``best-first``. The pools stand in the trace's channel ``channel``. The
    release builds trees on the rows of one pass: that is `expand-parent` on the head's own draft set.
    """

    budget: int = at_least(1, 254)
    beam: int = at_least(1, 10)
    width: int = at_least(1, 7)
    order: str = one_of((FAMILIES, BEST), FAMILIES)
    channel: str = "jetspec"

    source = "JetSpec 2026, arXiv 2606.18394"
    exactness = "reconstruction (from the paper's text: scores given the path were not released; the beam is simlab's)"
    reads = "the channel of a drafter that runs behind `beam` paths a depth, with `width` tokens behind each"
    variants = ("budget=24", "budget=24,order=best-first")
    tries = ("order=expand-parent/best-first,budget=1..{budget}",)

    def tree_settings(self) -> TreeSettings:
        """On its channel the same trees; `tree` does not ask how many tokens were kept behind a path."""
        width = self.width if self.order == FAMILIES else None
        read = {"width": width, "channel": self.channel, "pool_beam": self.beam}
        return {"budget": self.budget, "edges": "pool", "order": self.order, **read}

    def compose(self, artefacts: Artefacts) -> Composition:
        """The shape on the pool, a fixed budget."""
        need = ChannelNeed(self.channel, POOL, equal=(("beam", self.beam), ("top_k", self.width)))
        shape = WholeFamilies(self.width) if self.order == FAMILIES else BestPaths()
        return Composition(LatticeOrder(PoolSource(need), shape), FixedBudget(self.budget))
