"""A whole chain, and what is left of the budget where the drafter hesitates most."""

from dataclasses import dataclass
from typing import ClassVar

from simlab.policies.artefacts import Artefacts
from simlab.policies.composition import Composed, Composition, typed_tree
from simlab.policies.orders.chain_orders import GAP, BranchedChain
from simlab.policies.rules.budgets import FixedBudget


@dataclass(frozen=True)
class SpineGap(Composed):
    """The whole chain, then second candidates beside it where the first two log-probabilities are closest.

    Published for budgets of 13 to 17, where it was a little better than best-first and worse than a longer chain.
    """

    budget: int = 17

    source: ClassVar[str] = "a community port of DDTree to Jetson Thor, 2026, by patrickbdevaney (`selective`)"
    exactness: ClassVar[str] = "exact (from released code), but for tie order"
    reads: ClassVar[str] = "the first two candidates at each depth"

    def __post_init__(self) -> None:
        if self.budget < 1:
            raise ValueError(f"budget must be at least 1; got {self.budget}")

    @staticmethod
    def searched(budget: int, depth: int) -> tuple[str, ...]:
        """What `simlab optimize` tries of it."""
        return (f"budget=1..{min(budget, 2 * depth)}",)

    def as_tree(self) -> str:
        """This policy as `tree` composes it."""
        return typed_tree(budget=self.budget, order="gap")

    def compose(self, artefacts: Artefacts) -> Composition:
        """A branched chain, a fixed budget."""
        return Composition(BranchedChain(GAP), FixedBudget(self.budget))
