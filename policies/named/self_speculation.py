"""A target that drafts for itself: which nodes of its trees carry masks."""

from dataclasses import dataclass
from typing import ClassVar

from simlab.policies.artefacts import Artefacts
from simlab.policies.composition import Composed, Composition, typed_tree
from simlab.policies.edges.models import Marginal
from simlab.policies.named.chain import SpineOrder
from simlab.policies.orders.best_first import BestFirst
from simlab.policies.rules.budgets import FixedBudget

BEST_FIRST, CHAIN = "best-first", "chain"
_ORDERS = (BEST_FIRST, CHAIN)


@dataclass(frozen=True)
class SelfSpeculation(Composed):
    """The ``budget`` most probable tokens of the target's own masks, with masks behind nodes 0 to ``masked``.

    With ``masked=-1`` no node of a tree carries masks: a pass that drafts and one that verifies take turns, which is
    the paper's linear decoding. With ``masked`` at the budget or above all nodes do, its quadratic decoding: every root
    has a draft, and a pass has (n + 1)(k + 1) rows for n drafted tokens and k masks. In between a root has a draft if
    the last accepted node was among the first; the root of a round without one carries masks itself. ``order`` is
    ``best-first`` or ``chain``; others, with a 3-gram or a budget rule, are composed by `tree` with the same setting.

    It is for draft sets of a target with an adapter, whose rows are made before their root is known. The record holds
    the rows of every mode.
    """

    budget: int = 4
    masked: int = 0
    order: str = BEST_FIRST

    source: ClassVar[str] = "Samragh and others 2025, arXiv 2507.11851"
    exactness: ClassVar[str] = (
        "reconstruction: modes as the paper tells them, trees by the masks' own probabilities in place of its sampler; "
        "modes in between are simlab's"
    )
    reads: ClassVar[str] = "the candidates of a draft set that the target made with its own masks"
    variants: ClassVar[tuple[str, ...]] = (
        "budget=24,masked=-1",
        "budget=24,masked=0",
        "budget=24,masked=3",
        "budget=24,masked=24",
        "budget=24,masked=1,order=chain",
    )

    def __post_init__(self) -> None:
        if self.budget < 1:
            raise ValueError(f"budget must be at least 1; got {self.budget}")
        if self.masked < -1:
            raise ValueError(f"masked is the number of a node, or -1 for none; got {self.masked}")
        if self.order not in _ORDERS:
            raise ValueError(f"order is one of {', '.join(_ORDERS)}; got {self.order}")

    def as_tree(self) -> str:
        """This policy as `tree` composes it."""
        return typed_tree(budget=self.budget, order=self.order, masked=self.masked)

    def compose(self, artefacts: Artefacts) -> Composition:
        """One of two orders, a fixed budget, and where masks stand."""
        order = BestFirst(Marginal()) if self.order == BEST_FIRST else SpineOrder()
        return Composition(order, FixedBudget(self.budget), masked=self.masked)
