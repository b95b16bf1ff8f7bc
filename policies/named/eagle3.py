"""Dynamic trees of an EAGLE-3 head, reranked to a budget."""

from dataclasses import dataclass
from typing import ClassVar

from simlab.channels import POOL
from simlab.channels.rows import num_beam_nodes
from simlab.policies.artefacts import Artefacts
from simlab.policies.composition import Composed, Composition, typed_tree
from simlab.policies.orders.lattice_order import LatticeOrder
from simlab.policies.orders.lattice_sources import PoolSource
from simlab.policies.rules.budgets import FixedBudget
from simlab.policy import ChannelNeed


@dataclass(frozen=True)
class Eagle3(Composed):
    """EAGLE-3's trees: the best ``budget`` of all nodes that a head's beam looked at; no DFlash drafter runs.

    The head says the root's ``top_k`` first tokens; then, ``steps`` times, the ``beam`` best nodes of a depth go
    through it and ``top_k`` tokens are kept behind each. The tree is the best-scored part of this pool. The release's
    total of 60 counts the root; ``budget`` does not. Equal scores go to ancestors and smaller ranks; in half precision
    the release may keep a child without its parent. The pools stand in the trace's channel ``channel``; one that went
    more steps is cut to ``steps``, and one of another ``beam`` or ``top_k`` is refused.
    """

    budget: int = 59
    beam: int = 10
    top_k: int = 10
    steps: int = 7
    channel: str = "eagle3"

    source: ClassVar[str] = "EAGLE-3 2025, arXiv 2503.01840; its tree is EAGLE-2's, arXiv 2406.16858"
    exactness: ClassVar[str] = "exact (from released code), but for tie order"
    reads: ClassVar[str] = (
        "the channel of an EAGLE-3 head: `top_k` tokens behind `beam` nodes in each of `steps` passes"
    )
    variants: ClassVar[tuple[str, ...]] = ("budget=24", "budget=24,steps=3")

    def __post_init__(self) -> None:
        for name in ("budget", "beam", "top_k", "steps"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1; got {getattr(self, name)}")
        num_nodes = num_beam_nodes(self.beam, self.top_k, self.steps)
        if self.budget > num_nodes:
            raise ValueError(
                f"a pool of beam={self.beam}, top_k={self.top_k} and steps={self.steps} has {num_nodes} nodes; got "
                f"budget={self.budget}; give a smaller one, or more steps"
            )

    @staticmethod
    def searched(budget: int, depth: int) -> tuple[str, ...]:
        """What `simlab optimize` tries of it."""
        return (f"steps=3/5/7,budget=1..{budget}",)

    def as_tree(self) -> str:
        """This policy as `tree` composes it."""
        read: dict[str, int | str] = {
            "channel": self.channel,
            "pool_beam": self.beam,
            "top_k": self.top_k,
            "steps": self.steps,
        }
        return typed_tree(budget=self.budget, edges="eagle3", **read)

    def compose(self, artefacts: Artefacts) -> Composition:
        """Best-first on the pool, a fixed budget."""
        source = eagle3_source(self.channel, self.beam, self.top_k, self.steps)
        return Composition(LatticeOrder(source), FixedBudget(self.budget))


def eagle3_source(channel: str, beam: int, top_k: int, steps: int) -> PoolSource:
    """The pools of an EAGLE-3 head, for which no drafter runs."""
    need = ChannelNeed(channel, POOL, least=(("steps", steps),), equal=(("beam", beam), ("top_k", top_k)))
    return PoolSource(need, reads_draft=False)
