"""A chain, and branches where its rejection is most probable: the shape of D²SD without its second drafter."""

from dataclasses import dataclass

from simlab.policies.named.tree import Preset, TreeSettings
from simlab.policies.settings import at_least


@dataclass(frozen=True)
class D2SDBoundary(Preset):
    """The chain, and a branch from each of the ``boundaries`` places where it is most probably rejected.

    The shape alone of D²SD: a chain breaks after i tokens with probability r(i), the product of the first i
    probabilities times 1 less the next; at the largest r(i) its second drafter redrafts the rest of the block. Here
    the branch is the second candidate and ``below`` first candidates under it, to the end of the block if it is left
    out, all of the one drafter's marginals. With 0 it is the second candidate alone. The default budget holds the
    chain and four whole branches of a block of 16.
    """

    budget: int = at_least(1, 75)
    boundaries: int = at_least(0, 4, "must not be negative")
    below: int | None = at_least(0, None, "must not be negative, or left out for the rest of the block")

    source = "D2SD 2026, arXiv 2606.04446; its boundaries without its second drafter"
    exactness = "reconstruction: the shape only, with second candidates in place of redrafts"
    reads = "the first two candidates at each depth"
    variants = ("", "boundaries=2,below=0")

    def tree_settings(self) -> TreeSettings:
        """A branched chain, a fixed budget."""
        return {"budget": self.budget, "order": "boundaries", **self.own_settings("boundaries", "below")}

    @classmethod
    def searched(cls, budget: int, depth: int) -> tuple[str, ...]:
        """No budgets beyond the chain and a branch from each of its tokens."""
        return (f"boundaries=1/2/4,budget=1..{min(budget, depth * (depth + 1))}",)
