"""A single path: the most probable token at each depth."""

from dataclasses import dataclass
from typing import ClassVar

from simlab.draft import Draft
from simlab.policy import Needs, Stateless
from simlab.tree import DraftTree

LONGEST_BLOCK = 64
"""No block drafter in use drafts this many tokens ahead; it bounds a chain of no given length."""


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
        return LONGEST_BLOCK if self.length is None else self.length

    def select(self, draft: Draft, state: None = None) -> DraftTree:
        return DraftTree.chain(draft.root_token, draft.drafted().top_tokens(self.budget))
