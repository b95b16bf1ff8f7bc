"""Best-first trees of a fixed number of tokens, by the drafter's own probabilities.

Ringel and Romano, "DDTree" (2026), arXiv 2604.12989.
"""

from dataclasses import dataclass
from typing import ClassVar

from simlab.policies.artefacts import Artefacts
from simlab.policies.composition import Composed, Composition, typed_tree
from simlab.policies.edges.models import Marginal
from simlab.policies.orders.best_first import BestFirst
from simlab.policies.rules.budgets import FixedBudget


@dataclass(frozen=True)
class DDTree(Composed):
    """The ``budget`` drafted tokens with the largest path probabilities under the marginals.

    No tree of as many tokens has a larger sum of path probabilities. Smaller budgets are
    prefixes of larger ones. It is OPT-Tree's rule (2024, arXiv 2406.17276) on a block drafter's
    marginals; `calibrated` and `presto` take the same tokens by other scores.
    """

    budget: int

    source: ClassVar[str] = "Ringel and Romano 2026, arXiv 2604.12989"
    exactness: ClassVar[str] = "exact (from released code)"
    reads: ClassVar[str] = "every kept candidate, up to the exact budget of the trace"

    def __post_init__(self) -> None:
        if self.budget < 1:
            raise ValueError(f"budget must be at least 1; got {self.budget}")

    def as_tree(self) -> str:
        """This policy as `tree` composes it."""
        return typed_tree(budget=self.budget)

    def compose(self, artefacts: Artefacts) -> Composition:
        """Best-first on the marginals, a fixed budget."""
        return Composition(BestFirst(Marginal()), FixedBudget(self.budget))
