"""A chain, and branches where its rejection is most probable: the shape of D²SD without its second drafter."""

from dataclasses import dataclass
from typing import ClassVar

from simlab.policies.artefacts import Artefacts
from simlab.policies.composition import Composed, Composition, typed_tree
from simlab.policies.orders.chain_orders import EVERY_DEPTH, MISS, BranchedChain
from simlab.policies.rules.budgets import FixedBudget


@dataclass(frozen=True)
class D2SDBoundary(Composed):
    """The chain, and a branch from each of the ``boundaries`` places where it is most probably rejected.

    The shape alone of D²SD: a chain breaks after i tokens with probability r(i), the product of the first i
    probabilities times 1 less the next; at the largest r(i) its second drafter redrafts the rest of the block. Here
    the branch is the second candidate and ``below`` first candidates under it, to the end of the block if it is left
    out, all of the one drafter's marginals. With 0 it is the second candidate alone. The default budget holds the
    chain and four whole branches of a block of 16.
    """

    budget: int = 75
    boundaries: int = 4
    below: int | None = None

    source: ClassVar[str] = "D2SD 2026, arXiv 2606.04446; its boundaries without its second drafter"
    exactness: ClassVar[str] = "reconstruction: the shape only, with second candidates in place of redrafts"
    reads: ClassVar[str] = "the first two candidates at each depth"
    variants: ClassVar[tuple[str, ...]] = ("", "boundaries=2,below=0")

    def __post_init__(self) -> None:
        if self.budget < 1:
            raise ValueError(f"budget must be at least 1; got {self.budget}")
        if self.boundaries < 0:
            raise ValueError(f"boundaries must not be negative; got {self.boundaries}")
        if self.below is not None and self.below < 0:
            raise ValueError(f"below must not be negative, or left out for the rest of the block; got {self.below}")

    @staticmethod
    def searched(budget: int, depth: int) -> tuple[str, ...]:
        """What `simlab optimize` tries of it."""
        return (f"boundaries=1/2/4,budget=1..{min(budget, depth * (depth + 1))}",)

    def as_tree(self) -> str:
        """This policy as `tree` composes it."""
        return typed_tree(budget=self.budget, order="boundaries", boundaries=self.boundaries, below=self.below)

    def compose(self, artefacts: Artefacts) -> Composition:
        """A branched chain, a fixed budget."""
        below = EVERY_DEPTH if self.below is None else self.below
        return Composition(BranchedChain(MISS, num_branches=self.boundaries, below=below), FixedBudget(self.budget))
