"""A chain that ends before an error in it becomes probable."""

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from simlab.arrays import Ints, Longs
from simlab.grid import grid_scalar
from simlab.policies.artefacts import Artefacts
from simlab.policies.composition import Composed, Composition, typed_tree
from simlab.policies.named.chain import SpineOrder
from simlab.policies.orders.node_order import OrderLayer
from simlab.policies.rules.budgets import FixedBudget


@dataclass(frozen=True, slots=True)
class BeforeDoubt:
    """Nodes before the first whose path is wrong with more than some probability, and at least one.

    Attributes:
        most: never more.
        threshold: probability of an error, from 0 to 1; 1 keeps everything.
    """

    most: int
    threshold: float
    needs_scores: bool = field(default=True, init=False)
    needs_probabilities: bool = field(default=True, init=False)
    needs_falling: bool = field(default=True, init=False)

    def sizes(self, layer: OrderLayer, contexts: Longs) -> Ints:
        assert layer.scores is not None
        lowest = grid_scalar(np.log1p(-self.threshold)) if self.threshold < 1.0 else -np.inf
        scores = layer.scores[:, 1 : self.most + 1]
        sure = ((scores >= lowest) & (scores > -np.inf)).sum(axis=1)
        sizes: Ints = np.minimum(np.maximum(sure, 1), FixedBudget(self.most).sizes(layer, contexts)).astype(np.int32)
        return sizes


@dataclass(frozen=True)
class AdaFlash(Composed):
    """The chain before its first token k at which 1 - p_1 p_2 ... p_k exceeds ``threshold``, and at least one token.

    The release counts the root in the length that it verifies, so token k itself is not drafted. There p_j is what a
    trained head says of the chain's j-th token; here it is the drafter's probability of it. Of the two published
    thresholds this is the constant one, 0.3; the other comes from a trained head too. ``budget`` only bounds the
    chain; blocks are shorter.
    """

    budget: int = 64
    threshold: float = 0.3

    source: ClassVar[str] = "AdaFlash 2026, arXiv 2607.19223"
    exactness: ClassVar[str] = (
        "the release's rule on the drafter's own probabilities (rule exact, from released code; constant threshold)"
    )
    reads: ClassVar[str] = "the first candidate at each depth"
    revision: ClassVar[int] = 2

    def __post_init__(self) -> None:
        if self.budget < 1:
            raise ValueError(f"budget must be at least 1; got {self.budget}")
        if not 0 <= self.threshold <= 1:
            raise ValueError(f"threshold must be a probability; got {self.threshold}")

    @staticmethod
    def searched(budget: int, depth: int) -> tuple[str, ...]:
        """What `simlab optimize` tries of it."""
        return (f"budget={depth},threshold=0.3/0.5/0.7/0.8/0.9/0.95/0.98",)

    def as_tree(self) -> str:
        """This policy as `tree` composes it."""
        return typed_tree(budget=self.budget, order="chain", rule="doubt", threshold=self.threshold)

    def compose(self, artefacts: Artefacts) -> Composition:
        """A chain, cut before the first doubtful token."""
        return Composition(SpineOrder(), BeforeDoubt(self.budget, self.threshold))
