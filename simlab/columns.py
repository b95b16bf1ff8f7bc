"""The rounds of one text as columns, for replays that make no object for each round."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from simlab.arrays import Bools, Longs, read_only
from simlab.recorded import RecordedTexts
from simlab.sequence_replay import Round, Totals


@dataclass(frozen=True, slots=True, eq=False)
class RoundColumns:
    """The rounds of one text in order, what `Round` says of each but for the tree itself.

    Attributes:
        positions: int64 ``[R]``, the place of each root in the text.
        num_drafted: int64 ``[R]``, the root not counted.
        num_accepted: int64 ``[R]``.
        num_committed: int64 ``[R]``.
        clipped: bool ``[R]``.
        num_requested: int64 ``[R]``, branches that were asked for, where a round pays for those; else None.
        routes: int64 ``[R]``, which of a router's routes served each round; None: the policy is no router.
    """

    positions: Longs
    num_drafted: Longs
    num_accepted: Longs
    num_committed: Longs
    clipped: Bools
    num_requested: Longs | None = None
    routes: Longs | None = None

    def __post_init__(self) -> None:
        for name in ("positions", "num_drafted", "num_accepted", "num_committed"):
            object.__setattr__(self, name, read_only(np.asarray(getattr(self, name), np.int64)))
        object.__setattr__(self, "clipped", read_only(np.asarray(self.clipped, np.bool_)))
        further = {"num_requested": self.num_requested, "routes": self.routes}
        for name, column in further.items():
            if column is not None:
                object.__setattr__(self, name, read_only(np.asarray(column, np.int64)))
        shapes = {array.shape for array in (*self.columns(), self.num_requested, self.routes) if array is not None}
        if len(shapes) != 1 or self.positions.ndim != 1:
            raise ValueError(f"the columns of rounds must be flat and equally long; got the shapes {sorted(shapes)}")

    def columns(self) -> tuple[Longs, Longs, Longs, Longs, Bools]:
        """Those that every policy has, in the order of the attributes."""
        return self.positions, self.num_drafted, self.num_accepted, self.num_committed, self.clipped

    def of_route(self, route: int) -> "RoundColumns":
        """The rounds that one of a router's routes served.

        Raises:
            ValueError: it is not known which routes served.
        """
        if self.routes is None and self.num_rounds == 0:
            return self
        if self.routes is None:
            raise ValueError("these rounds are of no router")
        mask, asked = self.routes == route, self.num_requested
        return RoundColumns(
            positions=self.positions[mask],
            num_drafted=self.num_drafted[mask],
            num_accepted=self.num_accepted[mask],
            num_committed=self.num_committed[mask],
            clipped=self.clipped[mask],
            num_requested=None if asked is None else asked[mask],
        )

    @property
    def num_rounds(self) -> int:
        """The number of rounds, R."""
        return len(self.positions)

    def totals(self) -> Totals:
        """The sums over the rounds."""
        drafted, num = int(self.num_drafted.sum()), self.num_rounds
        return Totals(
            rounds=num,
            drafted=drafted,
            verified=drafted + num,
            accepted=int(self.num_accepted.sum()),
            committed=int(self.num_committed.sum()),
            clipped=int(self.clipped.sum()),
        )


def columns_of(rounds: Iterable[Round]) -> RoundColumns:
    """Rounds of one text that were made one by one."""
    listed = list(rounds)
    asked = [round_.num_requested for round_ in listed if round_.num_requested is not None]
    routes = [round_.route for round_ in listed if round_.route is not None]
    return RoundColumns(
        positions=np.array([round_.position for round_ in listed], np.int64),
        num_drafted=np.array([round_.num_drafted for round_ in listed], np.int64),
        num_accepted=np.array([round_.num_accepted for round_ in listed], np.int64),
        num_committed=np.array([round_.num_committed for round_ in listed], np.int64),
        clipped=np.array([round_.clipped for round_ in listed], np.bool_),
        num_requested=np.array(asked, np.int64) if asked else None,
        routes=np.array(routes, np.int64) if routes else None,
    )


@dataclass(frozen=True, slots=True, eq=False)
class TextRounds:
    """The rounds of one policy on some texts, one text after the other.

    Attributes:
        roots: int64 ``[R]``, at which root of all texts each round starts.
        num_drafted: int64 ``[R]``, the root not counted.
        num_accepted: int64 ``[R]``.
        ends: int64 ``[S]``, how many rounds there are up to the end of each text.
        num_requested: int64 ``[R]``, branches that were asked for, where a round pays for those; else None.
        routes: int64 ``[R]``, which of a router's routes served each round; None: the policy is no router.
    """

    roots: Longs
    num_drafted: Longs
    num_accepted: Longs
    ends: Longs
    num_requested: Longs | None = None
    routes: Longs | None = None

    def of_route(self, route: int) -> "TextRounds":
        """The rounds that one of a router's routes served.

        Raises:
            ValueError: it is not known which routes served.
        """
        if self.routes is None and len(self.roots) == 0:
            return self
        if self.routes is None:
            raise ValueError("these rounds are of no router")
        mask, asked = self.routes == route, self.num_requested
        ends = np.concatenate([[0], np.cumsum(mask)])[self.ends].astype(np.int64)
        parts = self.roots[mask], self.num_drafted[mask], self.num_accepted[mask]
        return TextRounds(*parts, ends, None if asked is None else asked[mask])

    def columns(self, texts: RecordedTexts) -> list[RoundColumns]:
        """The rounds of each text."""
        lasts = texts.roots.firsts[1:]
        starts = [0, *self.ends[:-1].tolist()]
        return [
            self._columns(slice(start, end), int(first), int(last))
            for start, end, first, last in zip(starts, self.ends.tolist(), texts.roots.firsts, lasts, strict=False)
        ]

    def _columns(self, part: slice, first: int, last: int) -> RoundColumns:
        roots, accepted = self.roots[part], self.num_accepted[part]
        left = last - roots
        committed, clipped = np.minimum(accepted + 1, left), accepted == left
        asked, routes = (None if array is None else array[part] for array in (self.num_requested, self.routes))
        return RoundColumns(roots - first, self.num_drafted[part], accepted, committed, clipped, asked, routes)


def rounds_of_texts(rounds_by_text: Iterable[RoundColumns], texts: RecordedTexts) -> TextRounds:
    """The rounds of each text, as those of all of them."""
    parts = list(rounds_by_text)
    firsts = texts.roots.firsts[:-1].tolist()
    asked = [part.num_requested for part in parts if part.num_requested is not None]
    routes = [part.routes for part in parts if part.routes is not None]
    return TextRounds(
        _joined([part.positions + first for part, first in zip(parts, firsts, strict=True)]),
        _joined([part.num_drafted for part in parts]),
        _joined([part.num_accepted for part in parts]),
        np.cumsum([part.num_rounds for part in parts], dtype=np.int64),
        _joined(asked) if asked else None,
        _joined(routes) if routes else None,
    )


def _joined(parts: list[Longs]) -> Longs:
    return np.concatenate([np.empty(0, np.int64), *parts])
