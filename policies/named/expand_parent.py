"""The shape that JetSpec released: trees that take all children of a node at once."""

from dataclasses import dataclass

import numpy as np

from simlab.policies.artefacts import Artefacts
from simlab.policies.composition import Composition
from simlab.policies.named.tree import Preset, TreeSettings
from simlab.policies.orders.expand_parent import ExpandParent
from simlab.policies.rules.budgets import FixedBudget
from simlab.policies.settings import at_least

NO_CAPS, BY_GAP = "none", "top2gap"


@dataclass(frozen=True)
class ExpandParentTree(Preset):
    """The best node so far takes its ``width`` first candidates as children, all at once, up to ``budget`` tokens.

    The release counts the root: its benchmark's budget of 255 is 254 here. ``caps`` are the most children by depth:
    ``none``, ``top2gap``, or a list such as "7,7,1" for its histograms, which leaves deeper depths at ``width``, and
    "7,7,1.." for its templates, which goes on with the last. ``top2gap`` allows round(width * sigmoid(-gap_slope *
    (gap - gap_middle))), at least 1, with the gap in nats between the first two log-probabilities; its benchmark has
    a slope of 2. The drafter's own block bounds the depth. `jetspec-extended` adds the release's chain extension, which
    runs the drafter once more behind its own chain.
    """

    budget: int = at_least(1, 254)
    width: int = at_least(1, 7)
    caps: str = NO_CAPS
    gap_slope: float = 1.0
    gap_middle: float = 1.0

    source = "JetSpec 2026, arXiv 2606.18394"
    exactness = "shape exact (from released code), but for precision and tie order; without its chain extension"
    reads = "the first `width` candidates at each depth"
    variants = (
        "budget=24",
        "budget=24,caps=top2gap",
        'budget=24,caps="4,3,1"',
        'budget=24,caps="4,2.."',
    )
    tries = ("width=2/3/4/7,budget=1..{budget}",)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (np.isfinite(self.gap_slope) and np.isfinite(self.gap_middle)):
            raise ValueError(f"gap_slope and gap_middle must be numbers; got {self.gap_slope} and {self.gap_middle}")
        self._listed()

    def tree_settings(self) -> TreeSettings:
        """Without caps `tree` has the shape."""
        read = {"order": "expand-parent", "width": self.width}
        return {"budget": self.budget, **read} if self.caps == NO_CAPS else {}

    def compose(self, artefacts: Artefacts) -> Composition:
        """The shape with its caps, a fixed budget."""
        gap = (self.gap_slope, self.gap_middle) if self.caps == BY_GAP else None
        return Composition(ExpandParent(self.width, self._listed(), gap), FixedBudget(self.budget))

    def _listed(self) -> tuple[int, ...]:
        """The caps of a list, those of all deeper depths as the last one."""
        if self.caps in (NO_CAPS, BY_GAP):
            return ()
        try:
            listed = tuple(int(cap) for cap in self.caps.removesuffix("..").split(","))
        except ValueError:
            listed = (0,)
        if min(listed) < 1:
            raise ValueError(f'caps must be {NO_CAPS}, {BY_GAP}, or numbers from 1 such as "7,7,1.."; got {self.caps}')
        listed = tuple(min(cap, self.width) for cap in listed)
        return listed if self.caps.endswith("..") else (*listed, self.width)
