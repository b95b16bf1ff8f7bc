"""Dynamic trees of an EAGLE-3 head, reranked to a budget."""

from dataclasses import dataclass

from simlab.channels.rows import num_beam_nodes
from simlab.policies.named.tree import Preset, TreeSettings
from simlab.policies.settings import at_least


@dataclass(frozen=True)
class Eagle3(Preset):
    """EAGLE-3's trees: the best ``budget`` of all nodes that a head's beam looked at; no DFlash drafter runs.

    The head says the root's ``top_k`` first tokens; then, ``steps`` times, the ``beam`` best nodes of a depth go
    through it and ``top_k`` tokens are kept behind each. The tree is the best-scored part of this pool. The release's
    total of 60 counts the root; ``budget`` does not. Equal scores go to ancestors and smaller ranks; in half precision
    the release may keep a child without its parent. The pools stand in the trace's channel ``channel``; one that went
    more steps is cut to ``steps``, and one of another ``beam`` or ``top_k`` is refused.
    """

    budget: int = at_least(1, 59)
    beam: int = at_least(1, 10)
    top_k: int = at_least(1, 10)
    steps: int = at_least(1, 7)
    channel: str = "eagle3"

    source = "EAGLE-3 2025, arXiv 2503.01840; its tree is EAGLE-2's, arXiv 2406.16858"
    exactness = "exact (from released code), but for tie order"
    reads = "the channel of an EAGLE-3 head: `top_k` tokens behind `beam` nodes in each of `steps` passes"
    variants = ("budget=24", "budget=24,steps=3")
    tries = ("steps=3/5/7,budget=1..{budget}",)

    def __post_init__(self) -> None:
        super().__post_init__()
        num_nodes = num_beam_nodes(self.beam, self.top_k, self.steps)
        if self.budget > num_nodes:
            raise ValueError(
                f"a pool of beam={self.beam}, top_k={self.top_k} and steps={self.steps} has {num_nodes} nodes; got "
                f"budget={self.budget}; give a smaller one, or more steps"
            )

    def tree_settings(self) -> TreeSettings:
        """Best-first on the pool, a fixed budget."""
        read = {"channel": self.channel, "pool_beam": self.beam, "top_k": self.top_k, "steps": self.steps}
        return {"budget": self.budget, "edges": "eagle3", **read}
