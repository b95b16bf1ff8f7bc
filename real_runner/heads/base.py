"""The first candidates of a drafter at some roots, as many at every depth: what a head begins with."""

from dataclasses import dataclass

import numpy as np

from simlab.arrays import Floats, Ints
from simlab.draft import Marginals
from simlab.errors import ModelError


@dataclass(frozen=True, slots=True, eq=False)
class BaseCandidates:
    """The first W candidates of each depth, in the order of their ranks.

    Attributes:
        ids: int32 ``[N, D, W]``, in the target's vocabulary.
        log_probs: float32 ``[N, D, W]``, on the grid, under the drafter's whole vocabulary.
    """

    ids: Ints
    log_probs: Floats

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def depth(self) -> int:
        """D, the positions drafted ahead."""
        return int(self.ids.shape[1])

    @property
    def width(self) -> int:
        """W, the candidates of a depth."""
        return int(self.ids.shape[2])

    def part(self, first: int, last: int) -> "BaseCandidates":
        """Those from one root up to another."""
        return BaseCandidates(self.ids[first:last], self.log_probs[first:last])


def base_candidates(ids: Ints, log_probs: Floats, counts: Ints, width: int) -> BaseCandidates:
    """Out of the rows of a draft set, flat as a trace has them.

    Args:
        ids: int32 ``[sum counts]``, root by root, depth by depth.
        log_probs: float32 ``[sum counts]``.
        counts: int32 ``[N, D]``, the candidates kept.
        width: W.
    """
    fewest = int(counts.min(initial=width))
    if fewest < width:
        raise ModelError(
            f"the head reads the first {width} candidates of each depth, and the drafter's rows keep {fewest} at some; "
            f"record them with --min-width {width}, or let the head read fewer"
        )
    starts = np.concatenate([[0], np.cumsum(counts.ravel(), dtype=np.int64)])[:-1]
    places = starts.reshape(*counts.shape, 1) + np.arange(width)
    return BaseCandidates(ids[places], log_probs[places])


def base_of(marginals: Marginals, width: int) -> BaseCandidates:
    """Out of the marginals below one root, as a round has them."""
    return base_candidates(marginals.ids, marginals.log_probs, np.diff(marginals.offsets)[None], width)
