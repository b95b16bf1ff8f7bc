"""A target that drafts for itself: which nodes of its trees carry masks."""

from dataclasses import dataclass

from simlab.policies.composition import MASKED, NOT_EVEN_THE_PROMPT
from simlab.policies.named.tree import Preset, TreeSettings
from simlab.policies.settings import at_least, one_of


@dataclass(frozen=True)
class SelfSpeculation(Preset):
    """The ``budget`` most probable tokens of the target's own masks, with masks behind nodes 0 to ``masked``.

    With ``masked=-1`` no node of a tree carries masks: a pass that drafts and one that verifies take turns, which is
    the paper's linear decoding. With ``masked`` at the budget or above all nodes do, its quadratic decoding: every root
    has a draft, and a pass has (n + 1)(k + 1) rows for n drafted tokens and k masks. In between a root has a draft if
    the last accepted node was among the first; the root of a round without one carries masks itself. ``masked=-2`` is
    -1 without masks behind the prompt, so that a text begins with a round that drafts nothing, as UNO's. ``order`` is
    ``best-first`` or ``chain``; others, with a 3-gram or a budget rule, are composed by `tree` with the same setting.

    It is for draft sets of a target with an adapter, whose rows are made before their root is known. The record holds
    the rows of every mode.
    """

    budget: int = at_least(1, 4)
    masked: int = at_least(NOT_EVEN_THE_PROMPT, 0, MASKED)
    order: str = one_of(("best-first", "chain"), "best-first")

    source = "Samragh and others 2025, arXiv 2507.11851"
    exactness = (
        "reconstruction: modes as the paper tells them, trees by the masks' own probabilities in place of its sampler; "
        "modes in between are simlab's"
    )
    reads = "the candidates of a draft set that the target made with its own masks"
    variants = (
        "budget=24,masked=-2",
        "budget=24,masked=-1",
        "budget=24,masked=0",
        "budget=24,masked=3",
        "budget=24,masked=24",
        "budget=24,masked=1,order=chain",
    )

    def tree_settings(self) -> TreeSettings:
        """One of two orders, a fixed budget, and where masks stand."""
        return self.own_settings("budget", "order", "masked")
