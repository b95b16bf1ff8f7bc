"""Which of a drafter's candidates a trace keeps.

Depth d keeps at least ``min_width`` ranks, and every rank that the exact best-first tree of
``exact_budget`` drafted tokens reads there. Nothing here imports torch.
"""

from dataclasses import dataclass

import numpy as np

from simlab.arrays import Floats, Ints
from simlab.draft import Marginals
from simlab.policies.orders.best_first import ranks_used


@dataclass(frozen=True, slots=True)
class KeptCandidates:
    """How many candidates of each depth a trace keeps: see the module."""

    min_width: int = 64
    exact_budget: int = 512

    @property
    def most(self) -> int:
        """No depth keeps more."""
        return max(self.min_width, self.exact_budget)


def kept_counts(ids: Ints, log_probs: Floats, kept: KeptCandidates) -> Ints:
    """int32 ``[D]``, candidates kept at each depth, out of the first ranks ``[D, K]``."""
    depth, width = ids.shape
    offsets = np.arange(0, depth * width + 1, width, dtype=np.int32)
    used = ranks_used(Marginals(ids.ravel(), log_probs.ravel(), offsets), kept.exact_budget)
    counts: Ints = np.minimum(np.maximum(used, kept.min_width), width).astype(np.int32)
    return counts
