"""Best-first trees that end where paths become too unlikely."""

from dataclasses import dataclass
from typing import ClassVar

from simlab.policies.artefacts import Artefacts
from simlab.policies.composition import Composed, Composition, typed_tree
from simlab.policies.edges.models import Marginal
from simlab.policies.orders.best_first import BestFirst
from simlab.policies.rules.budgets import SurvivalBudget


@dataclass(frozen=True)
class SurvivalThreshold(Composed):
    """Best-first, as long as a path's probability is at least ``threshold``; at most ``budget`` drafted tokens.

    TreeSpark's stop rule on the marginals; there a head's conditional probabilities are calibrated first and 8 children
    of a node are looked at. Its thresholds are a ladder by the number of texts at a time: at temperature 0, 0.02 up to
    4, which is the default here, 0.05 up to 8 and 0.15 beyond; above temperature 0, 0.05 up to 8. Its code without the
    ladder has 0, which stops nothing before ``budget``.
    """

    threshold: float = 0.02
    budget: int = 64

    source: ClassVar[str] = "TreeSpark 2026, arXiv 2609.22098"
    exactness: ClassVar[str] = "its stop rule exact (from released code), on another edge model"
    reads: ClassVar[str] = "every kept candidate, up to the exact budget of the trace"

    def __post_init__(self) -> None:
        if self.budget < 1:
            raise ValueError(f"budget must be at least 1; got {self.budget}")
        if not 0 <= self.threshold <= 1:
            raise ValueError(f"threshold must be a probability; got {self.threshold}")

    @staticmethod
    def searched(budget: int, depth: int) -> tuple[str, ...]:
        """What `simlab optimize` tries of it."""
        return (f"threshold=0.01/0.02/0.05/0.1/0.2/0.3/0.5,budget={budget}",)

    def as_tree(self) -> str:
        """This policy as `tree` composes it."""
        return typed_tree(budget=self.budget, rule="survival", threshold=self.threshold)

    def compose(self, artefacts: Artefacts) -> Composition:
        """Best-first on the marginals, a threshold."""
        return Composition(BestFirst(Marginal()), SurvivalBudget(self.budget, self.threshold))
