"""Recorded sequences in memory: what the replay reads."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from simlab.arrays import Floats, Ints, Longs
from simlab.draft import Marginals, Prompt


@dataclass(frozen=True, slots=True, eq=False)
class DraftRows:
    """The kept candidates of one sequence, a row for each root ``t = 0 .. T-2``.

    Attributes:
        ids: int32 ``[sum K]``, all rows and depths one after the other.
        log_probs: float32 ``[sum K]``, on the grid.
        counts: int32 ``[T - 1, D]``, candidates kept.
        true_ranks: int32 ``[T - 1, D]``, rank of the true token, kept or not; -1 past the end of
            the text or outside the drafter's vocabulary. For bounds and analysis only.
    """

    ids: Ints
    log_probs: Floats
    counts: Ints
    true_ranks: Ints

    def __post_init__(self) -> None:
        if self.counts.ndim != 2 or self.counts.shape != self.true_ranks.shape:
            raise ValueError(
                f"counts {self.counts.shape} and true_ranks {self.true_ranks.shape} must both be [T - 1, D]"
            )
        if self.ids.shape != self.log_probs.shape or self.ids.shape != (int(self.counts.sum(dtype=np.int64)),):
            raise ValueError(
                f"ids {self.ids.shape} and log_probs {self.log_probs.shape} must be as long as counts says"
            )

    def starts(self) -> Longs:
        """int64 ``[T]``, where each row begins in the flat arrays."""
        starts = np.zeros(len(self.counts) + 1, np.int64)
        np.cumsum(self.counts.sum(axis=1, dtype=np.int64), out=starts[1:])
        return starts

    def rows(self) -> Iterator[Marginals]:
        """The marginals of each root in turn."""
        starts = self.starts()
        for t in range(len(self.counts)):
            yield self.row(t, int(starts[t]))

    def row(self, t: int, start: int) -> Marginals:
        """The marginals at root ``t``, which begin at ``start`` in the flat arrays."""
        offsets = np.zeros(self.counts.shape[1] + 1, np.int32)
        np.cumsum(self.counts[t], out=offsets[1:])
        stop = start + int(offsets[-1])
        return Marginals(self.ids[start:stop], self.log_probs[start:stop], offsets)


@dataclass(frozen=True, slots=True, eq=False)
class RecordedSequence:
    """One text of the target and the drafter's rows along it.

    Attributes:
        index: its place in the trace.
        text: int32 ``[T]``; token 0 is the prefill's, the last is a stop token or the last allowed.
        stop_reason: ``stop`` or ``length``.
        rows: None where no draft set was asked for.
    """

    index: int
    prompt: Prompt
    text: Ints
    stop_reason: str
    rows: DraftRows | None

    def __post_init__(self) -> None:
        if self.text.ndim != 1 or len(self.text) == 0:
            raise ValueError(f"a text is a flat array of at least one token; got shape {self.text.shape}")
        if self.rows is not None and len(self.rows.counts) != len(self.text) - 1:
            raise ValueError(
                f"a text of {len(self.text)} tokens needs a row for all but the last; got {len(self.rows.counts)}"
            )
