"""A beam on the drafter's own probabilities, reranked to a budget: the shape of EAGLE-2's trees."""

from dataclasses import dataclass
from typing import ClassVar

from simlab.policies.artefacts import Artefacts
from simlab.policies.composition import Composed, Composition, typed_tree
from simlab.policies.edges.models import Marginal
from simlab.policies.orders.beam import Beam
from simlab.policies.rules.budgets import FixedBudget


@dataclass(frozen=True)
class Eagle2Beam(Composed):
    """EAGLE-2's beam on marginals: ``beam`` children of each of the ``beam`` best of a depth, then the best of all.

    After the root's children the beam goes ``depth`` steps down, so the deepest node lies one deeper, or at the end
    of the block. The release's total counts the root; ``budget`` does not. The defaults are the total of 60 with which
    Spec-Bench runs EAGLE-2. Its own class default, a total of 59, is `budget=58,depth=5`, and EAGLE-3's of 60 is
    `budget=59,depth=7`. Equal scores go to ancestors and smaller ranks; in half precision the release may keep a child
    without its parent.
    """

    budget: int = 59
    beam: int = 10
    depth: int = 5

    source: ClassVar[str] = "EAGLE-2 2024, arXiv 2406.16858; its shape on another drafter's marginals"
    exactness: ClassVar[str] = "exact (from released code), but for tie order"
    reads: ClassVar[str] = "the first `beam` candidates at each depth"
    variants: ClassVar[tuple[str, ...]] = ("budget=24", "budget=24,beam=3,depth=2")

    def __post_init__(self) -> None:
        for name in ("budget", "beam"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1; got {getattr(self, name)}")
        if self.depth < 0:
            raise ValueError(f"depth must not be negative; got {self.depth}")

    @staticmethod
    def searched(budget: int, depth: int) -> tuple[str, ...]:
        """What `simlab optimize` tries of it."""
        return (f"beam=2/4/10,depth={depth},budget=1..{budget}",)

    def as_tree(self) -> str:
        """This policy as `tree` composes it."""
        return typed_tree(budget=self.budget, order="beam", top_k=self.beam, width=self.beam, depth=self.depth)

    def compose(self, artefacts: Artefacts) -> Composition:
        """A beam on the marginals, a fixed budget."""
        order = Beam(Marginal(self.beam), width=self.beam, deepest=self.depth + 1)
        return Composition(order, FixedBudget(self.budget))
