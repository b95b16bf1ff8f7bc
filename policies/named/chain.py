"""A single path: the most probable token at each depth."""

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from simlab.arrays import Doubles, Ints, Shorts
from simlab.draft import Draft
from simlab.jit import kernel
from simlab.policies.artefacts import Artefacts
from simlab.policies.composition import Composed, Composition, typed_tree
from simlab.policies.orders.node_order import OrderedNodes, OrderLayer, empty_layer
from simlab.policies.rules.budgets import FixedBudget
from simlab.policy import Needs
from simlab.recorded import RecordedTexts, Roots

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


@dataclass(frozen=True, slots=True)
class SpineOrder:
    """The first candidates, one below the other, as far as there are any."""

    has_probabilities: bool = field(default=True, init=False)
    scores_fall: bool = field(default=True, init=False)

    @property
    def key(self) -> str:
        """A constant, as there is one chain."""
        return "spine"

    @property
    def needs(self) -> Needs:
        """The first candidate at each depth."""
        return Needs(top_k=1)

    def nodes(self, draft: Draft, most: int) -> OrderedNodes:
        """The first nodes at one root."""
        marginals = draft.drafted()
        tokens = marginals.top_tokens(most)
        numbers = np.arange(len(tokens) + 1, dtype=np.int32)
        firsts = marginals.log_probs[marginals.offsets[: len(tokens)]]
        scores = np.concatenate([[0.0], np.cumsum(firsts, dtype=np.float64)])
        return OrderedNodes(
            np.append(np.int32(draft.root_token), tokens), numbers - 1, numbers, np.zeros_like(numbers), scores
        )

    def layer(self, texts: RecordedTexts, most: int, with_scores: bool) -> OrderLayer:
        """The first nodes at all roots of some texts; scores are only as wide as the deepest chain."""
        roots = texts.drafted()
        deepest = min(most, roots.counts.shape[1])
        layer = empty_layer(roots, deepest, with_scores)
        _fill_layer(roots, deepest, layer.insertions, layer.num_available, layer.score_rows)
        return layer


@dataclass(frozen=True)
class Chain(Composed):
    """The most probable token at each depth: the whole block, or the first ``length`` tokens of it."""

    length: int | None = None

    source: ClassVar[str] = "DFlash 2026, arXiv 2602.06036"
    exactness: ClassVar[str] = "exact (from released code)"
    reads: ClassVar[str] = "the first candidate at each depth"
    variants: ClassVar[tuple[str, ...]] = ("", "length=3")

    def __post_init__(self) -> None:
        if self.length is not None and self.length < 1:
            raise ValueError(f"length must be at least 1, or left out for the whole block; got {self.length}")

    @property
    def budget(self) -> int:
        """``length``; without one the block bounds the chain, and this is only above any block."""
        return LONGEST_BLOCK if self.length is None else self.length

    @staticmethod
    def searched(budget: int, depth: int) -> tuple[str, ...]:
        """What `simlab optimize` tries of it."""
        return (f"length=1..{depth}",)

    def as_tree(self) -> str:
        """This policy as `tree` composes it."""
        return typed_tree(budget=self.budget, order="chain")

    def compose(self, artefacts: Artefacts) -> Composition:
        """First candidates, so many or all."""
        return Composition(SpineOrder(), FixedBudget(self.budget))


@kernel
def _fill_layer(roots: Roots, deepest: int, insertions: Shorts, available: Ints, scores: Doubles) -> None:
    """A row for each root."""
    counts, true_ranks, scored = roots.counts, roots.true_ranks, scores.shape[1] > 0
    for root in range(counts.shape[0]):
        place, is_true = roots.starts[root], True
        if scored:
            scores[root, 0] = 0.0
        for depth in range(deepest):
            if counts[root, depth] == 0:
                break
            is_true = is_true and true_ranks[root, depth] == 0
            if is_true:
                insertions[root, depth] = depth + 1
            available[root] = depth + 1
            if scored:
                scores[root, depth + 1] = scores[root, depth] + roots.log_probs[place]
            place += counts[root, depth]
