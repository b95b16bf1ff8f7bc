"""The rounds of one text as columns, for replays that make no object for each round."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from simlab.arrays import Bools, Longs, read_only
from simlab.replay import Round
from simlab.totals import Totals


@dataclass(frozen=True, slots=True, eq=False)
class RoundColumns:
    """The rounds of one text in order, what `Round` says of each but for the tree itself.

    Attributes:
        positions: int64 ``[R]``, the place of each root in the text.
        num_drafted: int64 ``[R]``, the root not counted.
        num_accepted: int64 ``[R]``.
        num_committed: int64 ``[R]``.
        clipped: bool ``[R]``.

    Raises:
        ValueError: the columns are not equally long.
    """

    positions: Longs
    num_drafted: Longs
    num_accepted: Longs
    num_committed: Longs
    clipped: Bools

    def __post_init__(self) -> None:
        for name in ("positions", "num_drafted", "num_accepted", "num_committed"):
            object.__setattr__(self, name, read_only(np.asarray(getattr(self, name), np.int64)))
        object.__setattr__(self, "clipped", read_only(np.asarray(self.clipped, np.bool_)))
        shapes = {column.shape for column in self.columns()}
        if len(shapes) != 1 or self.positions.ndim != 1:
            raise ValueError(f"the columns of rounds must be flat and equally long; got the shapes {sorted(shapes)}")

    def columns(self) -> tuple[Longs, Longs, Longs, Longs, Bools]:
        """All of them, in the order of the attributes."""
        return self.positions, self.num_drafted, self.num_accepted, self.num_committed, self.clipped

    @property
    def num_rounds(self) -> int:
        """R."""
        return len(self.positions)

    def totals(self) -> Totals:
        """The sums over the rounds."""
        drafted, num = int(self.num_drafted.sum()), self.num_rounds
        return Totals(
            num,
            drafted,
            drafted + num,
            int(self.num_accepted.sum()),
            int(self.num_committed.sum()),
            int(self.clipped.sum()),
        )


def columns_of(rounds: Iterable[Round]) -> RoundColumns:
    """Rounds of one text that were made one by one."""
    rows = [(one.position, one.num_drafted, one.num_accepted, one.num_committed, one.clipped) for one in rounds]
    table = np.array(rows, np.int64).reshape(-1, 5)
    return RoundColumns(table[:, 0], table[:, 1], table[:, 2], table[:, 3], table[:, 4] != 0)
