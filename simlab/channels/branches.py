"""Branches: what a second drafter says behind the beginnings of the first one's chain, at one root and at many."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from simlab.arrays import Floats, Ints, Longs, read_only
from simlab.grid import STEPS_PER_NAT

# Numbers that a network says of a root before anything is drafted, at one root and at many: no tokens, no laws.


MOST_FEATURES = 64
"""Numbers of a root at most, so that they stay few beside what they are to decide."""

TRAINED_FOR = "routes"
"""The setting of features that were trained for some routes: these as they are typed, with | between them."""


@dataclass(frozen=True, slots=True, eq=False)
class Features:
    """At one root, the numbers of a network that sees the text before it.

    Attributes:
        values: float32 ``[F]``, on the grid.
    """

    values: Floats

    def __post_init__(self) -> None:
        _check_features(self.values[None])


@dataclass(frozen=True, slots=True, eq=False)
class FeatureRows:
    """The numbers at some roots, one after the other.

    Attributes:
        values: float32 ``[N, F]``, on the grid.
    """

    values: Floats

    def __post_init__(self) -> None:
        _check_features(self.values)

    def __len__(self) -> int:
        return len(self.values)

    def starts(self) -> Longs:
        """int64 ``[N + 1]``, where each root begins: a root is one row."""
        return np.arange(len(self.values) + 1, dtype=np.int64)

    def row(self, t: int, start: int) -> Features:
        """The numbers at root ``t``; ``start`` is the same number."""
        return Features(self.values[t])

    def rows(self) -> Iterator[Features]:
        """Those of each root in turn."""
        return (self.row(t, t) for t in range(len(self)))

    def part(self, first: int, last: int, starts: Longs) -> "FeatureRows":
        """From one root up to another, without copying; ``starts`` as `starts` gives them."""
        return FeatureRows(self.values[first:last])


def join_features(parts: Sequence[FeatureRows]) -> FeatureRows:
    """The numbers of several texts, one after the other."""
    if len({part.values.shape[1] for part in parts}) != 1:
        raise ValueError("expected features of one size")
    return FeatureRows(read_only(np.concatenate([part.values for part in parts])))


def features_to_grid(values: npt.ArrayLike) -> Floats:
    """Any finite numbers, rounded to a multiple of ``2**-16``; halves go to even.

    A float32 of 256 or more has no finer steps than that.

    Returns:
        float32, the same shape; never -0.0.

    >>> features_to_grid([1.0, -0.1]).tolist()
    [1.0, -0.100006103515625]
    """
    numbers = np.asarray(values, dtype=np.float64)
    rounded = np.asarray(np.rint(numbers * STEPS_PER_NAT) / STEPS_PER_NAT + 0.0, dtype=np.float32)
    if not np.isfinite(rounded).all():
        raise ValueError("features must be finite numbers")
    return rounded


def _check_features(values: Floats) -> None:
    if values.dtype != np.float32 or values.ndim != 2:
        raise ValueError(f"features must be float32, as many at each root; got {values.dtype} {values.shape}")
    if not np.array_equal(features_to_grid(values), values):
        raise ValueError("features must lie on the grid of 2**-16")


NO_BRANCH = -1
"""In place of a length, where a root has fewer branches than another."""


@dataclass(frozen=True, slots=True, eq=False)
class Branches:
    """At one root, a second drafter's candidates behind the first i tokens of the chain, for some lengths i.

    The chain is the first candidate of each depth of the draft set that is gone on from; its tokens stand there. A
    branch of length i has one row for each of the depths i + 1 to ``depth``.

    Attributes:
        lengths: int32 ``[B]``, rising.
        depth: the last depth of every branch.
        ids: int32 ``[S, K]``, S the sum of ``depth - i``, branch after branch; the most probable first.
        log_probs: float32 ``[S, K]``, on the grid.
    """

    lengths: Ints
    depth: int
    ids: Ints
    log_probs: Floats

    def __post_init__(self) -> None:
        _check(self.lengths[None], self.depth, self.ids, self.log_probs)
        if (self.lengths < 0).any():
            raise ValueError("the length of a branch must be at least 0")

    def first(self, top_k: int) -> "Branches":
        """The first candidates of each row alone."""
        return Branches(self.lengths, self.depth, self.ids[:, :top_k], self.log_probs[:, :top_k])

    def only(self, lengths: Sequence[int]) -> "Branches":
        """The branches of these lengths alone, in any order; one as long as ``depth`` has no rows and is left out."""
        wanted = np.unique(np.array([length for length in lengths if length < self.depth], np.int32))
        missing = np.setdiff1d(wanted, self.lengths)
        if missing.size:
            raise ValueError(f"there is no branch behind {missing[0]} tokens; there are {self.lengths.tolist()}")
        kept = np.repeat(np.isin(self.lengths, wanted), self.depth - self.lengths)
        return Branches(wanted, self.depth, self.ids[kept], self.log_probs[kept])


@dataclass(frozen=True, slots=True, eq=False)
class BranchRows:
    """The branches at some roots, one after the other.

    Attributes:
        lengths: int32 ``[N, B]``, of each root, rising; `NO_BRANCH` behind the last where a root has fewer.
        depth: the last depth of every branch.
        ids: int32 ``[sum S, K]``.
        log_probs: float32 ``[sum S, K]``.
    """

    lengths: Ints
    depth: int
    ids: Ints
    log_probs: Floats

    def __post_init__(self) -> None:
        _check(self.lengths, self.depth, self.ids, self.log_probs)

    def __len__(self) -> int:
        return len(self.lengths)

    def starts(self) -> Longs:
        """int64 ``[N + 1]``, the first row of each root, and the number of all."""
        return np.concatenate([[0], np.cumsum(_num_rows(self.lengths, self.depth))]).astype(np.int64)

    def row(self, t: int, start: int) -> Branches:
        """The branches at root ``t``, whose rows begin at ``start``."""
        lengths = self.lengths[t]
        lengths = lengths[lengths >= 0]
        rows = slice(start, start + int((self.depth - lengths).sum()))
        return Branches(lengths, self.depth, self.ids[rows], self.log_probs[rows])

    def rows(self) -> Iterator[Branches]:
        """Those of each root in turn."""
        starts = self.starts()
        return (self.row(t, int(starts[t])) for t in range(len(self)))

    def part(self, first: int, last: int, starts: Longs) -> "BranchRows":
        """Those from one root up to another, without copying; ``starts`` as `starts` gives them."""
        rows = slice(int(starts[first]), int(starts[last]))
        return BranchRows(self.lengths[first:last], self.depth, self.ids[rows], self.log_probs[rows])


def join_branches(parts: Sequence[BranchRows]) -> BranchRows:
    """The branches of several texts, one after the other."""
    if len({(part.depth, part.ids.shape[1]) for part in parts}) != 1:
        raise ValueError("expected branches of one depth and width")
    most = max(part.lengths.shape[1] for part in parts)
    lengths = [np.pad(part.lengths, ((0, 0), (0, most - part.lengths.shape[1])), constant_values=-1) for part in parts]
    ids, log_probs = np.concatenate([part.ids for part in parts]), np.concatenate([part.log_probs for part in parts])
    return BranchRows(read_only(np.concatenate(lengths)), parts[0].depth, read_only(ids), read_only(log_probs))


def _num_rows(lengths: Ints, depth: int) -> Longs:
    return np.asarray(np.where(lengths >= 0, depth - lengths, 0).sum(axis=1), np.int64)


def _check(lengths: Ints, depth: int, ids: Ints, log_probs: Floats) -> None:
    dtypes = [str(array.dtype) for array in (lengths, ids, log_probs)]
    if dtypes != ["int32", "int32", "float32"]:
        raise ValueError(f"the arrays of branches must be int32, int32, float32; got {', '.join(dtypes)}")
    if lengths.ndim != 2 or ids.ndim != 2 or ids.shape != log_probs.shape:
        raise ValueError(f"lengths, ids and log_probs do not fit: {lengths.shape}, {ids.shape}, {log_probs.shape}")
    before, after = lengths[:, :-1], lengths[:, 1:]
    if (lengths >= depth).any() or (lengths < NO_BRANCH).any() or not ((after > before) | (after == NO_BRANCH)).all():
        raise ValueError(f"the lengths of branches must rise from 0 to below their depth {depth}")
    num = int(_num_rows(lengths, depth).sum())
    if len(ids) != num:
        raise ValueError(f"branches of these lengths have {num} rows; got {len(ids)}")
    if not _falls(log_probs):
        raise ValueError("the log-probabilities of a row must be at most 0 and must not rise")


def _falls(log_probs: npt.NDArray[np.float32]) -> bool:
    return bool((log_probs[:, :1] <= 0).all() and (log_probs[:, 1:] <= log_probs[:, :-1]).all())
