"""Budgets that the texts of a batch share."""

from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import numpy as np

from simlab.arrays import Doubles, Ints, Longs
from simlab.jit import kernel
from simlab.policies.orders.node_order import OrderLayer
from simlab.policies.rules.budgets import BudgetRule


@runtime_checkable
class SharedRule(BudgetRule, Protocol):
    """A budget rule that looks at all texts of a batch at once; ``most`` is of all of them together."""

    def shares(self, scores: Doubles, contexts: Longs) -> Ints:
        """int32 ``[S]``, how many nodes of each text enter.

        Args:
            scores: float64 ``[S, n + 1]``, path scores of each text's nodes in their order, which never rise, the
                root's first; -inf behind the last. ``n`` is ``most``, or fewer where no tree can be as large.
            contexts: int64 ``[S]``, tokens before each root.
        """
        ...

    def check_batch(self, batch: int) -> None:
        """Refuse a number of texts at a time for which the rule has no prices.

        Raises:
            PolicyError: it has none.
        """
        ...


@dataclass(frozen=True, slots=True)
class SharedBudget:
    """So many over all texts of a batch; for a text alone as `Fixed`."""

    most: int
    needs_scores: bool = field(default=True, init=False)
    needs_probabilities: bool = field(default=True, init=False)
    needs_falling: bool = field(default=True, init=False)

    def sizes(self, layer: OrderLayer, contexts: Longs) -> Ints:
        return np.minimum(layer.num_available, self.most).astype(np.int32)

    def shares(self, scores: Doubles, contexts: Longs) -> Ints:
        return shared_sizes(scores, self.most)

    def check_batch(self, batch: int) -> None:
        pass


@kernel
def shared_sizes(scores: Doubles, budget: int) -> Ints:
    """How many nodes of each text enter when the best of all texts do.

    Args:
        scores: float64 ``[S, n + 1]``, see `SharedRule.shares`.
        budget: drafted tokens of all texts together.

    Returns:
        int32 ``[S]``.
    """
    sizes = np.zeros(scores.shape[0], np.int32)
    for _ in range(budget):
        text = next_text(scores, sizes)
        if text < 0:
            break
        sizes[text] += 1
    return sizes


@kernel
def next_text(scores: Doubles, sizes: Ints) -> int:
    """The text whose next node is the best of all; of several the first, and -1 where no text has one left.

    Args:
        scores: float64 ``[S, n + 1]``, see `shared_sizes`.
        sizes: int32 ``[S]``, nodes of each text that have entered.
    """
    best, best_score = -1, -np.inf
    for text in range(sizes.size):
        if sizes[text] + 1 < scores.shape[1] and scores[text, sizes[text] + 1] > best_score:
            best, best_score = text, scores[text, sizes[text] + 1]
    return best
