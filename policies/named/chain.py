"""A single path: the most probable token at each depth."""

from dataclasses import dataclass

from simlab.policies.named.tree import Preset, TreeSettings
from simlab.policies.settings import at_least

LONGEST_BLOCK = 2**15
"""Above any block; a chain of no given length names it as its budget, and drafts as deep as the draft is."""


def most_drafted(budget: int, depth: int) -> int:
    """The most tokens that a policy of this budget drafts in a round.

    A chain of no given length names a budget above any block, and drafts as deep as the draft is.

    Args:
        budget: of the policy.
        depth: positions that the drafter fills.

    >>> most_drafted(LONGEST_BLOCK, 7), most_drafted(40_000, 7)
    (7, 40000)
    """
    return depth if budget == LONGEST_BLOCK else budget


@dataclass(frozen=True)
class Chain(Preset):
    """The most probable token at each depth: the whole block, or the first ``length`` tokens of it."""

    length: int | None = at_least(1, None, "must be at least 1, or left out for the whole block")

    source = "DFlash 2026, arXiv 2602.06036"
    exactness = "exact (from released code)"
    reads = "the first candidate at each depth"
    variants = ("", "length=3")
    tries = ("length=1..{depth}",)

    @property
    def budget(self) -> int:
        """``length``; without one the block bounds the chain, and this is only above any block."""
        return LONGEST_BLOCK if self.length is None else self.length

    def tree_settings(self) -> TreeSettings:
        """First candidates, so many or all."""
        return {"budget": self.budget, "order": "chain"}
