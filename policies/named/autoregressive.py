"""Plain decoding: the reference for every speedup."""

from dataclasses import dataclass
from typing import ClassVar

from simlab.draft import Draft
from simlab.policy import Needs, Stateless
from simlab.tree import DraftTree


@dataclass(frozen=True, slots=True)
class Autoregressive(Stateless):
    """Autoregressive decoding: no drafter, one token per round."""

    source: ClassVar[str] = "autoregressive decoding"
    exactness: ClassVar[str] = "exact (by definition)"
    reads: ClassVar[str] = "nothing; no drafter is run"

    @property
    def needs(self) -> Needs:
        return Needs(draft=False)

    @property
    def budget(self) -> int:
        return 0

    def select(self, draft: Draft, state: None = None) -> DraftTree:
        return DraftTree.root_only(draft.root_token)
