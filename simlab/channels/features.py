"""Numbers that a network says of a root before anything is drafted, at one root and at many: no tokens, no laws."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from simlab.arrays import Floats, Longs, read_only
from simlab.grid import STEPS_PER_NAT

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
        _check(self.values[None])


@dataclass(frozen=True, slots=True, eq=False)
class FeatureRows:
    """The numbers at some roots, one after the other.

    Attributes:
        values: float32 ``[N, F]``, on the grid.
    """

    values: Floats

    def __post_init__(self) -> None:
        _check(self.values)

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
    if len({one.values.shape[1] for one in parts}) != 1:
        raise ValueError("expected features of one size")
    return FeatureRows(read_only(np.concatenate([one.values for one in parts])))


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


def _check(values: Floats) -> None:
    if values.dtype != np.float32 or values.ndim != 2:
        raise ValueError(f"features must be float32, as many at each root; got {values.dtype} {values.shape}")
    if not np.array_equal(features_to_grid(values), values):
        raise ValueError("features must lie on the grid of 2**-16")
