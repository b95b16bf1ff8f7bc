"""Best-first trees that end where paths become too unlikely."""

from dataclasses import dataclass

from simlab.policies.named.tree import SURVIVAL, Preset, TreeSettings
from simlab.policies.settings import PROBABILITY, at_least, between


@dataclass(frozen=True)
class SurvivalThreshold(Preset):
    """Best-first, as long as a path's probability is at least ``threshold``; at most ``budget`` drafted tokens.

    TreeSpark's stop rule on the marginals; there a head's conditional probabilities are calibrated first and 8 children
    of a node are looked at. Its thresholds are a ladder by the number of texts at a time: at temperature 0, 0.02 up to
    4, which is the default here, 0.05 up to 8 and 0.15 beyond; above temperature 0, 0.05 up to 8. Its code without the
    ladder has 0, which stops nothing before ``budget``. The release gives a node 8 children at most, this rule as many
    as reach ``threshold``: at the default trees may differ, at 0.05 and above they hardly can.
    """

    threshold: float = between(0, 1, 0.02, PROBABILITY)
    budget: int = at_least(1, 64)

    source = "TreeSpark 2026, arXiv 2609.22098"
    exactness = "its stop rule exact (from released code), on another edge model"
    reads = "every kept candidate, up to the exact budget of the trace"
    tries = ("threshold=0.01/0.02/0.05/0.1/0.2/0.3/0.5,budget={budget}",)

    def tree_settings(self) -> TreeSettings:
        """Best-first on the marginals, a threshold."""
        return {"budget": self.budget, "rule": SURVIVAL, "threshold": self.threshold}
