"""Best-first trees on a first-order head, which scores a token given the token above it."""

from dataclasses import dataclass
from typing import ClassVar

from simlab.policies.artefacts import Artefacts
from simlab.policies.composition import Composed, Composition, typed_tree
from simlab.policies.orders.lattice_order import LatticeOrder
from simlab.policies.orders.lattice_sources import TransitionSource
from simlab.policies.rules.budgets import FixedBudget


@dataclass(frozen=True)
class TreeFlash(Composed):
    """The ``budget`` drafted tokens with the largest path probabilities under a head that knows the token above.

    The head corrects the drafter's law of a depth for each of the first ``previous`` tokens of the depth above; of each
    corrected law the first ``top_k`` tokens are read, and a token that has no law below it ends its path. The defaults
    are what the packaged trace holds. The release has 16 of both, and its tree size of 64 counts the root:
    `budget=63,previous=16,top_k=16`. The laws stand in the trace's channel ``channel``; which head made them, and
    whether it scored the whole vocabulary as published or the drafter's own first candidates alone, is said there
    (`simlab inspect`).
    """

    budget: int = 63
    previous: int = 6
    top_k: int = 6
    channel: str = "treeflash"

    source: ClassVar[str] = "Rheinboldt, Berdoz and Wattenhofer 2026, arXiv 2606.03819"
    exactness: ClassVar[str] = "exact (from released code), but for tie order; the head is one trained for the drafter"
    reads: ClassVar[str] = "the channel of a first-order head: `previous` laws of each depth, `top_k` tokens of each"
    variants: ClassVar[tuple[str, ...]] = ("budget=24", "budget=24,previous=2,top_k=3")

    def __post_init__(self) -> None:
        for name in ("budget", "previous", "top_k"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1; got {getattr(self, name)}")

    @staticmethod
    def searched(budget: int, depth: int) -> tuple[str, ...]:
        """What `simlab optimize` tries of it."""
        return (f"budget=1..{budget}",)

    def as_tree(self) -> str:
        """This policy as `tree` composes it."""
        read: dict[str, int | str] = {"channel": self.channel, "previous": self.previous, "top_k": self.top_k}
        return typed_tree(budget=self.budget, edges="transitions", **read)

    def compose(self, artefacts: Artefacts) -> Composition:
        """Best-first on the head's laws, a fixed budget."""
        source = TransitionSource(self.channel, previous=self.previous, top_k=self.top_k)
        return Composition(LatticeOrder(source), FixedBudget(self.budget))
