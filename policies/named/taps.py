"""The best nodes of a pool that a scorer judged path by path."""

from dataclasses import dataclass

from simlab.policies.named.tree import Preset, TreeSettings
from simlab.policies.settings import at_least


@dataclass(frozen=True)
class Taps(Preset):
    """The ``budget`` drafted tokens of largest utility: the probability that a scorer gives their path, over a price.

    The nodes are those of a beam over the drafter's marginals, ``beam`` of each depth, and a scorer says how probable
    each is once its parent is right. A path of d tokens has the utility of its probability over 1 + ``depth_price`` d;
    0 is the release's recommended variant. Utilities fall along paths, so that the first ``budget`` nodes are what its
    greedy closure adds. The pools stand in the trace's channel ``channel``; a pool of another beam has other scores, so
    it is refused. The default beam is that of the packaged trace; the release has 48, and a scorer that was trained
    for another target.
    """

    budget: int = at_least(1, 64)
    beam: int = at_least(1, 24)
    depth_price: float = at_least(0, 0.002, "must be a number that is at least 0")
    channel: str = "taps"

    source = "TAPS 2026, arXiv 2606.00487"
    exactness = "tree exact (from released code), but for tie order; the scorer is a reconstruction"
    reads = "the channel of a scorer: a pool of `beam` nodes a depth"
    variants = ("budget=24", "budget=24,depth_price=0", "budget=24,depth_price=0.5")
    tries = ("budget=1..{budget}",)

    def tree_settings(self) -> TreeSettings:
        """Best-first on the scorer's paths, a fixed budget."""
        read = {"channel": self.channel, "pool_beam": self.beam, "depth_price": self.depth_price}
        return {"budget": self.budget, "edges": "pool", **read}
