"""What all channels share, at one root and at many, one root after the other."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import fields
from typing import Any, ClassVar, Generic, Self, TypeVar, cast

import numpy as np
import numpy.typing as npt

from simlab.arrays import Ints, Longs, Scalar, read_only

TRANSITIONS, POOL, BRANCHES, FEATURES = KINDS = ("transitions", "pool", "branches", "features")

TARGET = "target"
"""The name and the kind of the target's own law, which policies read as a channel that every trace has."""

RootT = TypeVar("RootT", bound="AtRoot")


class AtRoot(ABC):
    """What a channel says at one root."""

    __slots__ = ()
    kind: ClassVar[str]

    @abstractmethod
    def as_rows(self) -> "RootRows[Self]":
        """The rows of this root alone."""

    @abstractmethod
    def emptied(self) -> Self:
        """What stands for this one at a root of which nothing is known, of the same sizes."""


class RootRows(ABC, Generic[RootT]):
    """What a channel says at some roots: a dataclass of arrays, one root after the other along their first axes.

    The first array has one row for each root.
    """

    __slots__ = ()
    kind: ClassVar[str]

    def __len__(self) -> int:
        first, *_ = fields(self)  # type: ignore[arg-type]  # every subclass is a dataclass
        return len(getattr(self, first.name))

    def starts(self) -> Longs:
        """int64 ``[N + 1]``, where each root begins and the last ends; one row each, if a subclass says no more."""
        return np.arange(len(self) + 1, dtype=np.int64)

    @abstractmethod
    def row(self, t: int, start: int) -> RootT:
        """What is said at root ``t``, which begins at ``start``."""

    @abstractmethod
    def part(self, first: int, last: int, starts: Longs) -> Self:
        """From one root up to another, without copying; ``starts`` as `starts` gives them."""

    def rows(self) -> Iterator[RootT]:
        """What is said at each root in turn."""
        starts = self.starts()
        return (self.row(t, int(starts[t])) for t in range(len(self)))

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """The rows of several texts, copied one after the other.

        Raises:
            ValueError: they are not of one size.
        """
        made: Any = cls
        arrays = [[getattr(part, field.name) for part in parts] for field in fields(made)]
        if any(len({array.shape[1:] for array in same}) > 1 for same in arrays):
            raise ValueError(f"expected {cls.kind} of one size")
        return cast(Self, made(*map(concatenated, arrays)))


def concatenated(arrays: Sequence[npt.NDArray[Scalar]]) -> npt.NDArray[Scalar]:
    """Arrays one after the other, read-only."""
    return read_only(np.concatenate(arrays))


def starts_of(sizes: Ints | Longs) -> Longs:
    """int64 ``[N + 1]``, where each of N begins, given their sizes, and where the last ends."""
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
