"""A single path: the most probable token at each depth."""

from dataclasses import dataclass
from typing import ClassVar

from simlab.draft import Draft
from simlab.policy import Needs, Stateless
from simlab.tree import DraftTree

LONGEST_BLOCK = 2**15
"""Above any block; a chain of no given length names it as its budget, and drafts as deep as the draft is."""


@dataclass(frozen=True, slots=True)
class Chain(Stateless):
    """The most probable token at each depth: the whole block, or the first ``length`` tokens of it."""

    length: int | None = None

    source: ClassVar[str] = "DFlash 2026, arXiv 2602.06036"
    exactness: ClassVar[str] = "exact (from released code)"
    reads: ClassVar[str] = "the first candidate at each depth"

    def __post_init__(self) -> None:
        if self.length is not None and self.length < 1:
            raise ValueError(f"length must be at least 1, or left out for the whole block; got {self.length}")

    @property
    def needs(self) -> Needs:
        return Needs(top_k=1)

    @property
    def budget(self) -> int:
        """``length``; without one the block bounds the chain, and this is only above any block."""
        return LONGEST_BLOCK if self.length is None else self.length

    def select(self, draft: Draft, state: None = None) -> DraftTree:
        marginals = draft.drafted()
        length = marginals.depth if self.length is None else self.length
        return DraftTree.chain(draft.root_token, marginals.top_tokens(length))
