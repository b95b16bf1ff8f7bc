"""Best-first trees of the size with the best ratio of expected tokens to seconds."""

from dataclasses import dataclass

from simlab.policies.artefacts import AUTO
from simlab.policies.named.tree import RATIO, STOPS, Preset, TreeSettings
from simlab.policies.settings import ALL_SIZES, at_least


@dataclass(frozen=True)
class CaDDTree(Preset):
    """Best-first, each round grown until its own expected tokens per second rise no more.

    The first size that brings no more ends it, as published; ``look_ahead`` sizes in a row may bring no more, 0 tries
    all. With ``tile`` the sizes tried are those at which the pass, root included, fills whole tiles. The published
    cost is that of the two models; ``overhead`` adds selecting and committing. The release stops at 1,024 tokens at
    the latest; ``budget`` is 512, as far as traces are exact unless they were recorded for more. Path probabilities
    below 2**-41 count as 0, so where further tokens cost nothing it stops a little earlier than the release.
    """

    budget: int = at_least(1, 512)
    look_ahead: int = at_least(0, 1, ALL_SIZES)
    tile: int = at_least(1, 1)
    overhead: bool = False
    cost: str = AUTO

    source = "CaDDTree 2026, arXiv 2606.01813"
    exactness = (
        "exact (from released code), with measured latencies in place of its convex fit; cost=auto:convex fits them"
    )
    reads = "every kept candidate, up to the exact budget of the trace; a latency profile"
    variants = ("", "look_ahead=0,overhead=true", "look_ahead=3", "tile=8")
    tries = ("budget={budget},look_ahead=0/1/4,overhead=true/false",)

    def tree_settings(self) -> TreeSettings:
        """Best-first on the marginals, the ratio rule."""
        return {"budget": self.budget, "rule": RATIO, **self.own_settings(*STOPS[RATIO])}
