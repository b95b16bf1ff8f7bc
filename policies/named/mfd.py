"""One tree over the candidates of several drafters, as MFD makes one over its modes."""

from dataclasses import dataclass

from simlab.policies.artefacts import Artefacts
from simlab.policies.composition import Composition
from simlab.policies.named.tree import Preset, TreeSettings
from simlab.policies.orders.best_of_drafts import BestOfDrafts
from simlab.policies.rules.budgets import FixedBudget
from simlab.policies.settings import at_least


@dataclass(frozen=True)
class MFD(Preset):
    """The ``budget`` paths that any of several drafters finds most probable.

    A path scores as the drafter says that gives it the largest probability: MFD has 8 modes of one network for that.
    Here the drafters are that of the draft set and, for each of ``channels`` with | between them, the second drafter of
    a `d2sd` channel, as it drafts behind the root alone; of each, ``top_k`` candidates a depth are read. Every further
    drafter's pass is paid for.
    """

    budget: int = at_least(1, 64)
    channels: str = "d2sd"
    top_k: int = at_least(1, 8)

    source = "MFD 2026, arXiv 2611.13017"
    exactness = (
        "reconstruction (the score is from its model card; drafters stand in for its modes, whose network cannot be "
        "run; ties and whether its budget counts the root are not known)"
    )
    reads = "the first `top_k` candidates at each depth, of the draft set and of each channel of a second drafter"
    variants = ("budget=24", "budget=24,top_k=3")

    def __post_init__(self) -> None:
        super().__post_init__()
        names = self._names()
        if not all(names) or len(set(names)) < len(names):
            raise ValueError(
                f"channels are different names with | between them, such as d2sd|other; got {self.channels}"
            )

    def _names(self) -> tuple[str, ...]:
        return tuple(name.strip() for name in self.channels.split("|"))

    def tree_settings(self) -> TreeSettings:
        """None: its order is in no other policy."""
        return {}

    def compose(self, artefacts: Artefacts) -> Composition:
        """The best of all drafters' paths, a fixed budget."""
        return Composition(BestOfDrafts(self._names(), self.top_k), FixedBudget(self.budget))
