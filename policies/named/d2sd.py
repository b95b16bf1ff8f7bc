"""A chain, redrafted by a second drafter where it is most probably rejected."""

from dataclasses import dataclass

from simlab.policies.artefacts import Artefacts
from simlab.policies.composition import Composition
from simlab.policies.named.tree import Preset, TreeSettings
from simlab.policies.orders.lattice_sources import BranchSource
from simlab.policies.orders.redraft_order import RedraftOrder
from simlab.policies.rules.budgets import FixedBudget
from simlab.policies.settings import at_least


@dataclass(frozen=True)
class D2SD(Preset):
    """The chain, and a second drafter's chain behind each of the ``branches`` places where it is likeliest to break.

    The chain breaks right behind its first i tokens with probability r(i), the product of their probabilities times 1
    less the next. At the largest r(i) a second drafter, which sees these i tokens in its block, drafts the rest anew;
    the tree merges the chain and the first tokens of these redrafts. ``whole`` adds the redraft behind the whole chain,
    for a second drafter of a longer block. The default budget holds a chain of 15 and four redrafts.

    Two ways are ours. With ``exclude`` a redraft does not begin with the chain's own next token: it is for the case
    that this one was rejected. With a ``width`` the tree is best-first instead: at a boundary the chain's token has its
    probability c, the first ``width`` other candidates of the redraft share 1 - c, and below them ``width`` candidates
    a depth are read. The redrafts stand in the trace's channel ``channel``.
    """

    budget: int = at_least(1, 75)
    branches: int = at_least(0, 4, "must not be negative")
    whole: bool = False
    exclude: bool = False
    width: int | None = at_least(1, None, "must be at least 1, or left out for first tokens alone")
    channel: str = "d2sd"

    source = "D2SD 2026, arXiv 2606.04446"
    exactness = (
        "exact (from released code, round by round), but for the order in which a budget cuts; `exclude` and `width` "
        "are simlab's"
    )
    reads = "the chain, and the channel of a second drafter: redrafts behind beginnings of the chain"
    variants = (
        "budget=24",
        "budget=24,branches=2,exclude=true",
        "budget=24,branches=2,whole=true",
        "budget=24,width=3",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.width is not None and self.exclude:
            raise ValueError("with a width the chain's token stands beside the redraft's, so leave out exclude")

    @classmethod
    def searched(cls, budget: int, depth: int) -> tuple[str, ...]:
        """No budgets of first tokens beyond the chain and a redraft behind each of its tokens."""
        return (
            f"branches=1/2/4,budget=1..{min(budget, depth * (depth + 1))}",
            f"branches=2/4,width=2/4,budget=1..{budget}",
        )

    def tree_settings(self) -> TreeSettings:
        """With a width best-first on the redrafts; else its order is in no other policy."""
        if self.width is None:
            return {}
        read = {"channel": self.channel, "branches": self.branches, "whole": self.whole or None, "top_k": self.width}
        return {"budget": self.budget, "edges": "redrafts", **read}

    def compose(self, artefacts: Artefacts) -> Composition:
        """Chain and redrafts, a fixed budget."""
        if self.width is not None:
            return super().compose(artefacts)
        source = BranchSource(self.channel, count=self.branches, whole=self.whole, top_k=2 if self.exclude else 1)
        return Composition(RedraftOrder(source, self.exclude), FixedBudget(self.budget))
