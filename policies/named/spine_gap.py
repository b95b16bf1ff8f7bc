"""A whole chain, and what is left of the budget where the drafter hesitates most."""

from dataclasses import dataclass

from simlab.policies.named.tree import Preset, TreeSettings
from simlab.policies.settings import at_least


@dataclass(frozen=True)
class SpineGap(Preset):
    """The whole chain, then second candidates beside it where the first two log-probabilities are closest.

    Published for budgets of 13 to 17, where it was a little better than best-first and worse than a longer chain.
    """

    budget: int = at_least(1, 17)

    source = "a community port of DDTree to Jetson Thor, 2026, by patrickbdevaney (`selective`)"
    exactness = "exact (from released code), but for tie order"
    reads = "the first two candidates at each depth"

    def tree_settings(self) -> TreeSettings:
        """A branched chain, a fixed budget."""
        return {"budget": self.budget, "order": "gap"}

    @classmethod
    def searched(cls, budget: int, depth: int) -> tuple[str, ...]:
        """No budgets beyond two candidates a depth."""
        return (f"budget=1..{min(budget, 2 * depth)}",)
