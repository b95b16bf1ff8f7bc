"""A chain that ends before an error in it becomes probable."""

from dataclasses import dataclass

from simlab.policies.named.tree import Preset, TreeSettings
from simlab.policies.settings import PROBABILITY, at_least, between


@dataclass(frozen=True)
class AdaFlash(Preset):
    """The chain before its first token k at which 1 - p_1 p_2 ... p_k exceeds ``threshold``, and at least one token.

    The release counts the root in the length that it verifies, so token k itself is not drafted. There p_j is what a
    trained head says of the chain's j-th token; here it is the drafter's probability of it. Of the two published
    thresholds this is the constant one, 0.3; the other comes from a trained head too. ``budget`` only bounds the
    chain; blocks are shorter.
    """

    budget: int = at_least(1, 64)
    threshold: float = between(0, 1, 0.3, PROBABILITY)

    source = "AdaFlash 2026, arXiv 2607.19223"
    exactness = (
        "the release's rule on the drafter's own probabilities (rule exact, from released code; constant threshold)"
    )
    reads = "the first candidate at each depth"
    revision = 2
    tries = ("budget={depth},threshold=0.3/0.5/0.7/0.8/0.9/0.95/0.98",)

    def tree_settings(self) -> TreeSettings:
        """A chain, cut before the first doubtful token."""
        return {"budget": self.budget, "order": "chain", "rule": "doubt", "threshold": self.threshold}
