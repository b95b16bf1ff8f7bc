"""A single path: the most probable token at each depth."""

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from simlab.arrays import Doubles, Floats, Ints, Shorts
from simlab.draft import Draft
from simlab.jit import kernel
from simlab.policies.budget_rules import Fixed
from simlab.policies.composition import Composed, Composition
from simlab.policies.node_order import NEVER, Layer, Nodes
from simlab.policies.shelf import Shelf
from simlab.policy import Needs
from simlab.recorded import RecordedSequence

LONGEST_BLOCK = 2**15
"""Above any block; a chain of no given length names it as its budget, and drafts as deep as the draft is."""


@dataclass(frozen=True, slots=True)
class Spine:
    """The first candidates, one below the other, as far as there are any."""

    has_probabilities: bool = field(default=True, init=False)
    scores_fall: bool = field(default=True, init=False)

    @property
    def key(self) -> str:
        """There is one."""
        return "spine"

    @property
    def needs(self) -> Needs:
        """The first candidate at each depth."""
        return Needs(top_k=1)

    def nodes(self, draft: Draft, most: int) -> Nodes:
        """The first nodes at one root."""
        marginals = draft.drafted()
        tokens = marginals.top_tokens(most)
        numbers = np.arange(len(tokens) + 1, dtype=np.int32)
        firsts = marginals.log_probs[marginals.offsets[: len(tokens)]]
        scores = np.concatenate([[0.0], np.cumsum(firsts, dtype=np.float64)])
        return Nodes(
            np.append(np.int32(draft.root_token), tokens), numbers - 1, numbers, np.zeros_like(numbers), scores
        )

    def layer(self, recorded: RecordedSequence, most: int, with_scores: bool) -> Layer:
        """The same for all roots of a text; as the depth bounds a chain, its scores have no room for more."""
        rows = recorded.rows
        if rows is None:
            raise ValueError("a chain needs a drafter's rows, and none were read")
        num_roots, num_depths = rows.counts.shape
        deepest = min(most, num_depths)
        insertions = np.full((num_roots, num_depths), NEVER, np.uint16)
        available = np.zeros(num_roots, np.int32)
        scores = np.full((num_roots, deepest + 1), -np.inf)
        text = recorded.text.astype(np.int32)
        _fill_layer(rows.ids, rows.log_probs, rows.counts, text, deepest, insertions, available, scores)
        return Layer(insertions, available, scores if with_scores else None)


@dataclass(frozen=True)
class Chain(Composed):
    """The most probable token at each depth: the whole block, or the first ``length`` tokens of it."""

    length: int | None = None

    source: ClassVar[str] = "DFlash 2026, arXiv 2602.06036"
    exactness: ClassVar[str] = "exact (from released code)"
    reads: ClassVar[str] = "the first candidate at each depth"

    def __post_init__(self) -> None:
        if self.length is not None and self.length < 1:
            raise ValueError(f"length must be at least 1, or left out for the whole block; got {self.length}")

    @property
    def budget(self) -> int:
        """``length``; without one the block bounds the chain, and this is only above any block."""
        return LONGEST_BLOCK if self.length is None else self.length

    def compose(self, shelf: Shelf) -> Composition:
        """First candidates, so many or all."""
        return Composition(Spine(), Fixed(self.budget))


@kernel
def _fill_layer(
    ids: Ints,
    log_probs: Floats,
    counts: Ints,
    text: Ints,
    deepest: int,
    insertions: Shorts,
    available: Ints,
    scores: Doubles,
) -> None:
    """A row for each root."""
    start = 0
    for root in range(counts.shape[0]):
        place, is_true = start, True
        scores[root, 0] = 0.0
        for depth in range(deepest):
            if counts[root, depth] == 0:
                break
            is_true = is_true and root + depth + 1 < text.size and ids[place] == text[root + depth + 1]
            if is_true:
                insertions[root, depth] = depth + 1
            available[root] = depth + 1
            scores[root, depth + 1] = scores[root, depth] + log_probs[place]
            place += counts[root, depth]
        start += counts[root].sum()
