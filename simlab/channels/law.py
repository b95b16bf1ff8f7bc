"""How sure the target was of a root: the entropy of the law that its token was chosen from.

Nothing is recorded for it: it stands in the target's rows of every trace, and the runner has the logits at hand.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from simlab.arrays import Floats, Longs, read_only

TARGET = "target"
"""The name and the kind of the target's own law, which policies read as a channel that every trace has."""


@dataclass(frozen=True, slots=True, eq=False)
class TargetLaw:
    """At one root, what the target's law was from which its token was chosen.

    Attributes:
        entropy: float32, nats, at temperature 1.
    """

    entropy: float

    def __post_init__(self) -> None:
        if not np.isfinite(self.entropy):
            raise ValueError(f"the entropy of the target's law must be a number; got {self.entropy}")


@dataclass(frozen=True, slots=True, eq=False)
class TargetLawRows:
    """The target's law at some roots.

    Attributes:
        entropies: float32 ``[N]``, nats.
    """

    entropies: Floats

    def __post_init__(self) -> None:
        if self.entropies.dtype != np.float32 or self.entropies.ndim != 1:
            raise ValueError(f"entropies must be float32 [N]; got {self.entropies.dtype} {self.entropies.shape}")
        if not np.isfinite(self.entropies).all():
            raise ValueError("the entropies of the target's law must be numbers")

    def __len__(self) -> int:
        return len(self.entropies)

    def starts(self) -> Longs:
        """int64 ``[N + 1]``, where each root begins: a root is one number."""
        return np.arange(len(self.entropies) + 1, dtype=np.int64)

    def row(self, t: int, start: int) -> TargetLaw:
        """The law at root ``t``; ``start`` is the same number."""
        return TargetLaw(float(self.entropies[t]))

    def rows(self) -> Iterator[TargetLaw]:
        """The law at each root in turn."""
        return (self.row(t, t) for t in range(len(self)))

    def part(self, first: int, last: int, starts: Longs) -> "TargetLawRows":
        """From one root up to another, without copying; ``starts`` as `starts` gives them."""
        return TargetLawRows(self.entropies[first:last])


def join_laws(parts: Sequence[TargetLawRows]) -> TargetLawRows:
    """The laws of several texts, one after the other."""
    return TargetLawRows(read_only(np.concatenate([part.entropies for part in parts])))
