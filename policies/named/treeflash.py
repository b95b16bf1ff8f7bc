"""Best-first trees on a first-order head, which scores a token given the token above it."""

from dataclasses import dataclass

from simlab.policies.named.tree import Preset, TreeSettings
from simlab.policies.settings import at_least


@dataclass(frozen=True)
class TreeFlash(Preset):
    """The ``budget`` drafted tokens with the largest path probabilities under a head that knows the token above.

    The head corrects the drafter's law of a depth for each of the first ``previous`` tokens of the depth above; of each
    corrected law the first ``top_k`` tokens are read, and a token that has no law below it ends its path. The defaults
    are what the packaged trace holds. The release has 16 of both, and its tree size of 64 counts the root:
    `budget=63,previous=16,top_k=16`. The laws stand in the trace's channel ``channel``; which head made them, and
    whether it scored the whole vocabulary as published or the drafter's own first candidates alone, is said there
    (`simlab inspect`).
    """

    budget: int = at_least(1, 63)
    previous: int = at_least(1, 6)
    top_k: int = at_least(1, 6)
    channel: str = "treeflash"

    source = "Rheinboldt, Berdoz and Wattenhofer 2026, arXiv 2606.03819"
    exactness = "exact (from released code), but for tie order; the head is one trained for the drafter"
    reads = "the channel of a first-order head: `previous` laws of each depth, `top_k` tokens of each"
    variants = ("budget=24", "budget=24,previous=2,top_k=3")
    tries = ("budget=1..{budget}",)

    def tree_settings(self) -> TreeSettings:
        """Best-first on the head's laws, a fixed budget."""
        read = self.own_settings("channel", "previous", "top_k")
        return {"budget": self.budget, "edges": "transitions", **read}
