"""Best-first trees of a fixed number of tokens, by the drafter's own probabilities.

Ringel and Romano, "DDTree" (2026), arXiv 2604.12989.
"""

from dataclasses import dataclass

from simlab.policies.named.tree import Preset, TreeSettings
from simlab.policies.settings import at_least


@dataclass(frozen=True)
class DDTree(Preset):
    """The ``budget`` drafted tokens with the largest path probabilities under the marginals.

    No tree of as many tokens has a larger sum of path probabilities. Smaller budgets are
    prefixes of larger ones. It is OPT-Tree's rule (2024, arXiv 2406.17276) on a block drafter's
    marginals; `calibrated` and `presto` take the same tokens by other scores.
    """

    budget: int = at_least(1)

    source = "Ringel and Romano 2026, arXiv 2604.12989"
    exactness = "exact (from released code)"
    reads = "every kept candidate, up to the exact budget of the trace"

    def tree_settings(self) -> TreeSettings:
        """Best-first on the marginals, a fixed budget."""
        return {"budget": self.budget}
