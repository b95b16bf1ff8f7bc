"""The best nodes of a pool that a scorer judged path by path."""

import math
from dataclasses import dataclass
from typing import ClassVar

from simlab.channels import POOL
from simlab.policies.artefacts import Artefacts
from simlab.policies.composition import Composed, Composition, typed_tree
from simlab.policies.orders.lattice_order import LatticeOrder
from simlab.policies.orders.lattice_sources import PoolSource
from simlab.policies.rules.budgets import FixedBudget
from simlab.policy import ChannelNeed


@dataclass(frozen=True)
class Taps(Composed):
    """The ``budget`` drafted tokens of largest utility: the probability that a scorer gives their path, over a price.

    The nodes are those of a beam over the drafter's marginals, ``beam`` of each depth, and a scorer says how probable
    each is once its parent is right. A path of d tokens has the utility of its probability over 1 + ``depth_price`` d;
    0 is the release's recommended variant. Utilities fall along paths, so that the first ``budget`` nodes are what its
    greedy closure adds. The pools stand in the trace's channel ``channel``; a pool of another beam has other scores, so
    it is refused. The default beam is that of the packaged trace; the release has 48, and a scorer that was trained
    for another target.
    """

    budget: int = 64
    beam: int = 24
    depth_price: float = 0.002
    channel: str = "taps"

    source: ClassVar[str] = "TAPS 2026, arXiv 2606.00487"
    exactness: ClassVar[str] = "tree exact (from released code), but for tie order; the scorer is a reconstruction"
    reads: ClassVar[str] = "the channel of a scorer: a pool of `beam` nodes a depth"
    variants: ClassVar[tuple[str, ...]] = ("budget=24", "budget=24,depth_price=0", "budget=24,depth_price=0.5")

    def __post_init__(self) -> None:
        for name in ("budget", "beam"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1; got {getattr(self, name)}")
        if not 0.0 <= self.depth_price < math.inf:
            raise ValueError(f"depth_price must be a number that is at least 0; got {self.depth_price}")

    @staticmethod
    def searched(budget: int, depth: int) -> tuple[str, ...]:
        """What `simlab optimize` tries of it."""
        return (f"budget=1..{budget}",)

    def as_tree(self) -> str:
        """This policy as `tree` composes it."""
        read: dict[str, int | float | str] = {
            "channel": self.channel,
            "pool_beam": self.beam,
            "depth_price": self.depth_price,
        }
        return typed_tree(budget=self.budget, edges="pool", **read)

    def compose(self, artefacts: Artefacts) -> Composition:
        """Best-first on the scorer's paths, a fixed budget."""
        need = ChannelNeed(self.channel, POOL, equal=(("beam", self.beam),))
        source = PoolSource(need, depth_price=float(self.depth_price))
        return Composition(LatticeOrder(source), FixedBudget(self.budget))
