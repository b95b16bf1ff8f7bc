"""Trees over a drafter's marginals as two serving engines build them, ties as they have them."""

from dataclasses import dataclass

from simlab.policies.named.tree import Preset, TreeSettings
from simlab.policies.orders.engine_first import EDGE_LLM, UNO
from simlab.policies.settings import at_least


@dataclass(frozen=True)
class Uno(Preset):
    """UNO's draft tree: the ``budget`` most probable paths over the first ``top_k`` tokens of each position.

    UNO's nodes count the root, so its V is ``budget`` + 1. A pass that drafts and one that verifies take turns, as in
    `self` with ``masked=-1``, and a text begins with one that drafts.
    """

    budget: int = at_least(1, 31)
    top_k: int = at_least(1, 4)

    source = "UNO 2026, arXiv 2609.04010; ifm-ai/uno at 9018a5d, SGLang 0.5.23"
    exactness = "exact (from released code; that a text begins with a pass that drafts is as read there, not run)"
    reads = "the first `top_k` candidates of a draft set that the target made with its own masks"
    variants = ("budget=24", "budget=24,top_k=2")
    revision = 2

    def tree_settings(self) -> TreeSettings:
        """UNO's order, a fixed budget, and masks behind no node, nor behind the prompt."""
        return {"budget": self.budget, "order": UNO, "top_k": self.top_k, "masked": -2}


@dataclass(frozen=True)
class EdgeLLM(Preset):
    """TensorRT-Edge-LLM's draft tree: the ``budget`` most probable paths over the first ``top_k`` of each depth.

    Its nodes count the root, so ``--specVerifySize`` is ``budget`` + 1. It builds so on the rows of DFlash drafters
    and, with 7 candidates, on those of JetSpec's; its tree of a DSpark head is another, behind that head's own chain.
    """

    budget: int = at_least(1, 31)
    top_k: int = at_least(1, 8)

    source = "TensorRT-Edge-LLM about 0.11, `ddtreeBuild`"
    exactness = "exact (from released code, which was not run: it needs a GPU of its kind)"
    reads = "the first `top_k` candidates at each depth"
    variants = ("budget=24", "budget=24,top_k=2")

    def tree_settings(self) -> TreeSettings:
        """The engine's order and a fixed budget."""
        return {"budget": self.budget, "order": EDGE_LLM, "top_k": self.top_k}
