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
        by_formula: what our code makes of their formulas, where they print no figure; else NaN.
        same_records: whether theirs is of the very records that ours is worked out from, so that both should be equal;
            else of others, so that it should lie within the interval.
    """

    what: str
    ours: float
    theirs: Quoted | None = None
    interval: Interval = UNKNOWN
    digits: int = 2
    by_formula: float = math.nan
    same_records: bool = True

    @property
    def difference(self) -> float:
        """Ours less theirs; NaN where either is not there."""
        return self.ours - (self.by_formula if self.theirs is None else self.theirs.value)

    @property
    def as_printed(self) -> bool | None:
        """Whether ours is theirs as they print it; None: theirs is not there, or is of other records."""
        if self.theirs is None or not self.same_records or math.isnan(self.ours):
            return None
        return abs(self.difference) <= self._rounding

    @property
    def is_within(self) -> bool | None:
        """Whether our interval holds theirs as printed; None: one of them is not there, or records are the same."""
        if self.theirs is None or self.same_records or not is_known(self.interval):
            return None
        return self.interval.low - self._rounding <= self.theirs.value <= self.interval.high + self._rounding

    @property
    def verdict(self) -> str:
        """How theirs agrees, in a word or two; empty where that is not known."""
        if self.as_printed is not None:
            return "as printed" if self.as_printed else "differs"
        return {None: "", True: "within", False: "outside"}[self.is_within]

    @property
    def _rounding(self) -> float:
        """Half of the last digit that is printed, and what is lost in binary."""
        return 0.5 * 10.0**-self.digits * (1 + 1e-9)

    def row(self) -> dict[str, Scalar]:
        """Flat scalars, as a script reads them; what is not known is None."""
        theirs = self.theirs
        return {
            "what": self.what,
            "theirs": None if theirs is None else theirs.value,
            "theirs_by_formula": finite(self.by_formula),
            "ours": finite(self.ours),
            "ours_ci_low": finite(self.interval.low),
            "ours_ci_high": finite(self.interval.high),
            "difference": finite(self.difference),
            "as_printed": self.as_printed,
            "within_interval": self.is_within,
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
    """Theirs, ours, the difference, and whether they agree."""
    cells = [["", "theirs", "ours", "[95 %]", "difference", ""], *map(_cells, compared)]
    lines = [aligned(cells, [True, False, False, True, False, True])]
    if any(not math.isnan(one.by_formula) for one in compared):
        lines.append("* worked out from their formulas by our code; they print no such figure")
    return "\n".join(lines)


def _cells(one: ComparedFigure) -> list[str]:
    by_formula = "" if math.isnan(one.by_formula) else f"{_number(one.by_formula, one.digits)}*"
    theirs = by_formula if one.theirs is None else _number(one.theirs.value, one.digits)
    low, high = _number(one.interval.low, one.digits), _number(one.interval.high, one.digits)
    ends = f"[{low}, {high}]" if is_known(one.interval) else ""
    # Adding 0 makes a zero that is rounded from below one without a sign of its own.
    difference = "" if math.isnan(one.difference) else f"{round(one.difference, one.digits) + 0.0:+,.{one.digits}f}"
    return [one.what, theirs, _number(one.ours, one.digits), ends, difference, one.verdict]


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
