"""A figure of theirs beside ours, and what a study of released data finds."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from simlab.analysis.compare.averaging import finite
from simlab.analysis.released.files import Quoted
from simlab.analysis.statistics.intervals import UNKNOWN, Interval
from simlab.analysis.table.summaries import Scalar
from simlab.analysis.table.text import aligned, is_known, within_width


@dataclass(frozen=True, slots=True)
class ComparedFigure:
    """One figure, theirs and ours.

    Attributes:
        what: the figure, and what it is of.
        ours: NaN where it cannot be worked out from what was released.
        theirs: None where they print none.
        interval: of ours, 95 %; unknown where it has none.
        digits: decimals to print.
    """

    what: str
    ours: float
    theirs: Quoted | None = None
    interval: Interval = UNKNOWN
    digits: int = 2

    @property
    def difference(self) -> float:
        """Ours less theirs; NaN where either is not there."""
        return math.nan if self.theirs is None else self.ours - self.theirs.value

    @property
    def holds_theirs(self) -> bool | None:
        """Whether the interval of ours holds theirs as they print it; None: one of the two is not there."""
        if self.theirs is None or not is_known(self.interval):
            return None
        half = 0.5 * 10.0**-self.digits
        return self.interval.low - half <= self.theirs.value <= self.interval.high + half

    def row(self) -> dict[str, Scalar]:
        """Flat scalars, as a script reads them; what is not known is None."""
        theirs = self.theirs
        return {
            "what": self.what,
            "theirs": None if theirs is None else theirs.value,
            "ours": finite(self.ours),
            "ours_ci_low": finite(self.interval.low),
            "ours_ci_high": finite(self.interval.high),
            "difference": finite(self.difference),
            "within_interval": self.holds_theirs,
            "theirs_path": None if theirs is None else theirs.path,
            "theirs_sha256": None if theirs is None else theirs.sha256,
            "theirs_where": None if theirs is None else theirs.where,
        }


@dataclass(frozen=True, slots=True)
class Findings:
    """What a study of released data comes to.

    Attributes:
        compared: their figures and ours.
        follows: what follows, in a sentence or two.
        tables: further tables and sentences, as people read them.
        values: further values, as scripts and figures read them.
    """

    compared: tuple[ComparedFigure, ...]
    follows: str
    tables: tuple[str, ...] = ()
    values: Mapping[str, object] = field(default_factory=dict)

    def to_json(self) -> dict[str, object]:
        """What ``--json`` prints of it."""
        return {"figures": [one.row() for one in self.compared], "follows": self.follows, **self.values}

    def text(self) -> str:
        """The comparison, the further tables, what follows, and where their figures stand."""
        parts = [compared_text(self.compared), *self.tables, within_width(f"So: {self.follows}")]
        return "\n\n".join([*parts, *_sources_text(self.compared)])


def compared_text(compared: Sequence[ComparedFigure]) -> str:
    """Theirs, ours, the difference, and whether our interval holds theirs."""
    cells = [["", "theirs", "ours", "[95 %]", "difference", "theirs within"], *map(_cells, compared)]
    return aligned(cells, [True, False, False, True, False, True])


def _cells(one: ComparedFigure) -> list[str]:
    theirs = "" if one.theirs is None else _number(one.theirs.value, one.digits)
    held = {None: "", True: "yes", False: "no"}[one.holds_theirs]
    ends = f"[{_number(one.interval.low, one.digits)}, {_number(one.interval.high, one.digits)}]"
    # Adding 0 makes a zero that is rounded from below one without a sign of its own.
    difference = "" if math.isnan(one.difference) else f"{round(one.difference, one.digits) + 0.0:+,.{one.digits}f}"
    return [one.what, theirs, _number(one.ours, one.digits), ends if is_known(one.interval) else "", difference, held]


def _number(value: float, digits: int) -> str:
    return "-" if math.isnan(value) else f"{value:,.{digits}f}"


def _sources_text(compared: Sequence[ComparedFigure]) -> list[str]:
    """The files that their figures were found in, with digests."""
    found = {one.theirs.path: one.theirs.sha256 for one in compared if one.theirs is not None}
    if not found:
        return []
    return [
        "Theirs were read from:\n" + "\n".join(f"  {path} (sha256 {sha256[:12]})" for path, sha256 in found.items())
    ]
