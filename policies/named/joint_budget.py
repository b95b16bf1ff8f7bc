"""One budget for all texts of a batch: the drafted tokens with the largest path probabilities among all of them.

DSpark (2026), arXiv 2607.05147, sorts the drafted tokens of all requests by the probability that they are reached, and
admits them in that order. It does so for chains under a confidence head of its own; here it is done for trees under
the drafter's marginals, with a fixed number of tokens.
"""

from dataclasses import dataclass

from simlab.policies.artefacts import Artefacts
from simlab.policies.composition import Composed, Composition
from simlab.policies.edges.models import Marginal
from simlab.policies.orders.best_first import BestFirst
from simlab.policies.rules.budgets import SharedBudget
from simlab.policies.settings import at_least


@dataclass(frozen=True)
class JointBudget(Composed):
    """``budget`` drafted tokens over all texts of a batch, those with the largest path probabilities.

    A text whose drafter is sure of itself gets more of them, one whose drafter is lost fewer, perhaps none. Of equal
    probabilities that of the text which came first is taken. A text alone gets `DDTree`'s tree.
    """

    budget: int = at_least(1)

    source = "DSpark 2026, arXiv 2607.05147"
    exactness = "reconstruction (its sort over a batch, on trees; the marginals in place of its confidence head)"
    reads = "every kept candidate, up to the exact budget of the trace"

    def compose(self, artefacts: Artefacts) -> Composition:
        """Best-first on the marginals, the budget shared out; a text alone gets all of it."""
        return Composition(BestFirst(Marginal()), SharedBudget(self.budget))
