"""Numbers of a root, at one root and at many: features that a network makes of it, and how sure the target was of it.

Features are made before anything is drafted; they are no tokens and no laws. For the target's law nothing is recorded:
its entropy stands in the target's rows of every trace, and the runner has the logits at hand.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from simlab.arrays import Floats, Longs
from simlab.channels.root_rows import FEATURES, TARGET, AtRoot, RootRows
from simlab.grid import STEPS_PER_NAT

MOST_FEATURES = 64
"""Numbers of a root at most, so that they stay few beside what they are to decide."""

TRAINED_FOR = "routes"
"""The setting of features that were trained for some routes: these as they are typed, with | between them."""


@dataclass(frozen=True, slots=True, eq=False)
class Features(AtRoot):
    """At one root, the numbers of a network that sees the text before it.

    Attributes:
        values: float32 ``[F]``, on the grid.
    """

    kind: ClassVar = FEATURES
    values: Floats

    def __post_init__(self) -> None:
        _check_features(self.values[None])

    def as_rows(self) -> "FeatureRows":
        """The numbers of this root alone."""
        return FeatureRows(self.values[None])

    def emptied(self) -> "Features":
        """As many numbers, all 0."""
        return Features(np.zeros_like(self.values))


@dataclass(frozen=True, slots=True, eq=False)
class FeatureRows(RootRows[Features]):
    """The numbers at some roots, one after the other.

    Attributes:
        values: float32 ``[N, F]``, on the grid.
    """

    kind: ClassVar = FEATURES
    values: Floats

    def __post_init__(self) -> None:
        _check_features(self.values)

    def row(self, t: int, start: int) -> Features:
        """The numbers at root ``t``; ``start`` is the same number."""
        return Features(self.values[t])

    def part(self, first: int, last: int, starts: Longs) -> "FeatureRows":
        """From one root up to another, without copying; ``starts`` as `starts` gives them."""
        return FeatureRows(self.values[first:last])


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


@dataclass(frozen=True, slots=True, eq=False)
class TargetLaw(AtRoot):
    """At one root, what the target's law was from which its token was chosen.

    Attributes:
        entropy: float32, nats, at temperature 1.
    """

    kind: ClassVar = TARGET
    entropy: float

    def __post_init__(self) -> None:
        if not np.isfinite(self.entropy):
            raise ValueError(f"the entropy of the target's law must be a number; got {self.entropy}")

    def as_rows(self) -> "TargetLawRows":
        """The law at this root alone."""
        return TargetLawRows(np.array([self.entropy], np.float32))

    def emptied(self) -> "TargetLaw":
        """The law of a target that was sure: an entropy of 0."""
        return TargetLaw(0.0)


@dataclass(frozen=True, slots=True, eq=False)
class TargetLawRows(RootRows[TargetLaw]):
    """The target's law at some roots.

    Attributes:
        entropies: float32 ``[N]``, nats.
    """

    kind: ClassVar = TARGET
    entropies: Floats

    def __post_init__(self) -> None:
        if self.entropies.dtype != np.float32 or self.entropies.ndim != 1:
            raise ValueError(f"entropies must be float32 [N]; got {self.entropies.dtype} {self.entropies.shape}")
        if not np.isfinite(self.entropies).all():
            raise ValueError("the entropies of the target's law must be numbers")

    def row(self, t: int, start: int) -> TargetLaw:
        """The law at root ``t``; ``start`` is the same number."""
        return TargetLaw(float(self.entropies[t]))

    def part(self, first: int, last: int, starts: Longs) -> "TargetLawRows":
        """From one root up to another, without copying; ``starts`` as `starts` gives them."""
        return TargetLawRows(self.entropies[first:last])
