"""A beam on the drafter's own probabilities, reranked to a budget: the shape of EAGLE-2's trees."""

from dataclasses import dataclass

from simlab.policies.named.tree import Preset, TreeSettings
from simlab.policies.settings import at_least


@dataclass(frozen=True)
class Eagle2Beam(Preset):
    """EAGLE-2's beam on marginals: ``beam`` children of each of the ``beam`` best of a depth, then the best of all.

    After the root's children the beam goes ``depth`` steps down, so the deepest node lies one deeper, or at the end
    of the block. The release's total counts the root; ``budget`` does not. The defaults are the total of 60 with which
    Spec-Bench runs EAGLE-2. Its own class default, a total of 59, is `budget=58,depth=5`, and EAGLE-3's of 60 is
    `budget=59,depth=7`. Equal scores go to ancestors and smaller ranks; in half precision the release may keep a child
    without its parent.
    """

    budget: int = at_least(1, 59)
    beam: int = at_least(1, 10)
    depth: int = at_least(0, 5, "must not be negative")

    source = "EAGLE-2 2024, arXiv 2406.16858; its shape on another drafter's marginals"
    exactness = "exact (from released code), but for tie order"
    reads = "the first `beam` candidates at each depth"
    variants = ("budget=24", "budget=24,beam=3,depth=2")
    tries = ("beam=2/4/10,depth={depth},budget=1..{budget}",)

    def tree_settings(self) -> TreeSettings:
        """A beam on the marginals, a fixed budget."""
        beam = {"top_k": self.beam, "width": self.beam, "depth": self.depth}
        return {"budget": self.budget, "order": "beam", **beam}
