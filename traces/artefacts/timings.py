"""Timings of passes as people have them: CSV with a line of names, or a JSON list of objects.

A column is known by its name, and the unit is a part of it: ``latency_ms``, ``seconds``, ``num_tokens``. What no name
says is not guessed: a column that is not known and not the same in all rows is refused. Lines of CSV that begin with #
are remarks; they say where the figures come from and stay in the cost file. Rows of one cell are samples of it.
"""

import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

from simlab.cost.stages import LEAST_S, MOST_S
from simlab.errors import CostError, named_or_listed, reason_of
from simlab.limits import MOST_COUNT, finite_number, shown, whole_number
from simlab.traces.artefacts.cost import MOST_DRAFTED
from simlab.untrusted.json_text import file_text, parse_json

PUBLISHED = Path(str(files("simlab.traces"))) / "data" / "published"
"""Where the published timings lie that are shipped with simlab."""

ROOT_INCLUDED, DRAFTED_ONLY, WHOLE_PASS = "root-included", "drafted-only", "whole-pass"
COUNTS = (ROOT_INCLUDED, DRAFTED_ONLY, WHOLE_PASS)
"""What the column of sizes counts: tokens of each text's pass, the root among them; drafted tokens, one fewer; or
tokens of the whole pass of a batch, all roots among them."""

SECONDS, MILLISECONDS, MICROSECONDS = "s", "ms", "us"
UNITS = {SECONDS: 1.0, MILLISECONDS: 1e-3, MICROSECONDS: 1e-6}
"""How many seconds each unit has."""

_SIZES = {
    "nodes": ("nodes", "num_nodes"),
    "tokens": ("tokens", "num_tokens", "n_tokens", "pass_tokens", "verify_tokens"),
    "drafted": ("drafted", "num_drafted", "drafted_tokens", "draft_tokens", "num_draft_tokens"),
}
_CONTEXT = ("context", "context_len", "context_length", "ctx", "ctx_len", "kv_len", "seq_len", "sequence_length")
_BATCH = ("batch", "batch_size", "bs", "concurrency", "num_requests", "num_seqs")
_TIME = ("time", "latency", "duration", "verify", "pass")
_STAGES = ("draft", "select", "commit")
_EXPECTED = (
    "expected names with commas between them: a size (num_tokens, nodes or num_drafted), a time with its unit "
    "(latency_ms or seconds), and where they were varied batch_size and context"
)
_FASTEST_S, _SLOWEST_S = 2e-5, 1.0
"""A fastest pass outside of these is a question of units: a launch takes longer, and no engine serves more slowly."""


class PassTiming(NamedTuple):
    """Seconds of one measured pass of the target.

    Attributes:
        nodes: its size, counted as `PassTimings.counts` says.
        context: tokens before the root; 0: not stated.
        batch: texts at a time.
        seconds: of the pass.
        stages: seconds of other stages of the round, where columns have them.
    """

    nodes: int
    context: int
    batch: int
    seconds: float
    stages: Mapping[str, float] = {}


@dataclass(frozen=True, slots=True)
class PassTimings:
    """What a file of timings holds.

    Attributes:
        name: of the file.
        remarks: its lines that begin with #, put together, and columns that are the same in all rows.
        rows: at least one.
        within: stages whose seconds are in those of the rows, undivided; they cost nothing beside.
        counts: what sizes count, where the name of their column says so: one of `COUNTS`, or ``tokens``, which is
            root-included or whole-pass; empty: it does not.
    """

    name: str
    remarks: tuple[str, ...]
    rows: tuple[PassTiming, ...]
    within: tuple[str, ...] = ()
    counts: str = field(default="")


def published_timings() -> list[Path]:
    """The published timings that are shipped with simlab, by name."""
    return sorted(PUBLISHED.glob("*.csv"))


def read_timings(path: str | Path, unit: str | None = None) -> PassTimings:
    """Timings from CSV or JSON.

    Args:
        path: a file, or the name of one that comes with simlab.
        unit: of its times, one of `UNITS`; None: as their names say.

    Raises:
        CostError: it cannot be read, or a row is no timing; the sentence says which.
    """
    shipped = {timing.stem: timing for timing in published_timings()}
    file = Path(path) if Path(path).exists() else shipped.get(str(path), Path(path))
    try:
        text = file_text(file, "utf-8-sig")
    except FileNotFoundError as error:
        listed = f"{', '.join(shipped)} come with simlab"
        raise CostError(
            f"expected timings at {path}; there are none{named_or_listed(str(path), shipped, listed)}"
        ) from error
    except (OSError, UnicodeDecodeError) as error:
        raise CostError(f"{path} could not be read ({reason_of(error)}); expected CSV or JSON") from error
    is_json = text.lstrip()[:1] in ("[", "{")
    remarks, rows = ((), _json_rows(text, path)) if is_json else _csv_rows(text, path)
    if not rows:
        raise CostError(f"{path} has no rows; {_EXPECTED}")
    names = _Names(list(dict.fromkeys(name for _, row in rows for name in row)), str(path), unit)
    for where, row in rows:
        if missing := set(names.given) - {*row, names.batch}:
            raise CostError(f"{path}, {where} has no {', '.join(sorted(missing))}, and other rows have")
    timings = tuple(names.timing(row, f"{path}, {where}") for where, row in rows)
    passes = PassTimings(file.name, (*remarks, *names.same_everywhere(rows)), timings, (), names.counts)
    _check_unit(passes, str(path), names)
    return passes


class _Names:
    """What the columns of a file are, by their names.

    Args:
        given: the names, in order.
        path: of the file, for messages.
        unit: of all its times; None: as each name says.
    """

    def __init__(self, given: Sequence[str], path: str, unit: str | None) -> None:
        self.given, self._path, self.unit = given, path, unit
        plain = {name: re.sub(r"[^a-z0-9]+", "_", name.lower().replace("µ", "u")).strip("_") for name in given}
        self._context = self._one_of(plain, _CONTEXT, "contexts")
        self.batch = self._one_of(plain, _BATCH, "batch sizes")
        sizes = {kind: self._one_of(plain, names, "sizes") for kind, names in _SIZES.items()}
        kinds = [kind for kind, name in sizes.items() if name is not None]
        times = {name: parsed for name in given if (parsed := self._time(plain[name])) is not None}
        passes = [name for name, (stage, _) in times.items() if stage == "verify"]
        if len(kinds) != 1 or len(passes) != 1:
            raise CostError(f"{path} has {', '.join(given) or 'no names'}; {_EXPECTED}")
        (kind,), (self._seconds,) = kinds, passes
        self._size = str(sizes[kind])
        self.counts = {"nodes": "", "tokens": "tokens", "drafted": DRAFTED_ONLY}[kind]
        self._times = times
        self.unknown = [
            name for name in given if name not in {self._size, self._context, self.batch} and name not in times
        ]

    @property
    def time_name(self) -> str:
        """The column of the pass's times."""
        return self._seconds

    def _one_of(self, plain: Mapping[str, str], known: Sequence[str], what: str) -> str | None:
        columns = [name for name, word in plain.items() if word in known]
        if len(columns) > 1:
            raise CostError(f"{self._path} has the columns {', '.join(columns)}, all of {what}; leave all but one out")
        return columns[0] if columns else None

    def _time(self, word: str) -> tuple[str, str] | None:
        """The stage that a column of times is of, and its unit; None: it is no such column."""
        match = re.fullmatch(
            rf"(?:(?P<stage>{'|'.join((*_STAGES, *_TIME))})_?)?(?:time_|latency_)?"
            r"(?P<unit>seconds|secs?|s|milliseconds|msecs?|ms|microseconds|usecs?|us)?",
            word,
        )
        if match is None or not word:
            return None
        stage, typed = match["stage"], match["unit"]
        unit = {"m": MILLISECONDS, "u": MICROSECONDS}.get((typed or "")[:1], SECONDS)
        unit = MICROSECONDS if (typed or "").startswith("micro") else unit
        if typed is None and self.unit is None:
            raise CostError(
                f"{self._path}: the column {word} says no unit; call it {word}_ms or {word}_s, or give --unit ms"
            )
        return (stage if stage in _STAGES else "verify"), self.unit or unit

    def timing(self, row: Mapping[str, object], where: str) -> PassTiming:
        """The timing of a row."""
        needed = [self._size, *self._times, *filter(None, (self._context,))]
        missing = [name for name in needed if row.get(name) in (None, "")]
        if missing:
            raise CostError(f"{where} has no {', '.join(missing)}; {_EXPECTED}")
        seconds = {stage: self._in_seconds(row, name, unit, where) for name, (stage, unit) in self._times.items()}
        return PassTiming(
            _whole(row, self._size, 0, where),
            0 if self._context is None else _whole(row, self._context, 1, where),
            1 if self.batch is None else _whole(row, self.batch, 1, where),
            seconds.pop("verify"),
            seconds,
        )

    def _in_seconds(self, row: Mapping[str, object], name: str, unit: str, where: str) -> float:
        try:
            seconds = finite_number(str(row[name])) * UNITS[unit]
        except ValueError:
            seconds = 0.0
        if not LEAST_S <= seconds <= MOST_S:
            raise CostError(
                f"{where}: {name} must be a number, in seconds from {LEAST_S:g} to {MOST_S:g}; got "
                f"{shown(str(row[name]))}"
            )
        return seconds

    def same_everywhere(self, rows: Sequence[tuple[str, Mapping[str, object]]]) -> Iterator[str]:
        """A remark on each column that is not known and has one value; another is refused."""
        for name in self.unknown:
            values = {str(row[name]) for _, row in rows}
            if len(values) > 1:
                raise CostError(
                    f"{self._path}: what the column {name} means is not known, and it has {len(values):,} values; "
                    f"{_EXPECTED}. Leave it out, or make a file for each value"
                )
            yield f"{name}: {values.pop()} in all rows"


def _check_unit(timings: PassTimings, path: str, names: _Names) -> None:
    """Ask for the unit where the fastest pass takes as long, or as short, as no pass does."""
    fastest = min(row.seconds for row in timings.rows)
    if names.unit is None and not _FASTEST_S <= fastest <= _SLOWEST_S:
        raise CostError(
            f"the fastest pass in {path} takes {fastest:g} s, if {names.time_name} is in the unit of its name; is that "
            "so? Say the unit: --unit ms, or --unit s where these are seconds"
        )


def _csv_rows(text: str, path: str | Path) -> tuple[tuple[str, ...], list[tuple[str, Mapping[str, object]]]]:
    lines = [(number, line.strip()) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
    remark = " ".join(line.lstrip("# ") for _, line in lines if line.startswith("#"))
    rows = [(number, next(csv.reader([line]))) for number, line in lines if not line.startswith("#")]
    names = [name.strip() for name in rows[0][1]] if rows else []
    if len(set(names)) < len(names):
        raise CostError(f"{path} names a column twice in its first line: {', '.join(names)}")
    for number, row in rows:
        if len(row) != len(names):
            raise CostError(
                f"{path}, line {number} has {len(row)} cells, and the first line names {len(names)}; write commas "
                "between cells, and points in numbers"
            )
    return (remark,) if remark else (), [
        (f"line {number}", dict(zip(names, (cell.strip() for cell in row), strict=True))) for number, row in rows[1:]
    ]


def _json_rows(text: str, path: str | Path) -> Sequence[tuple[str, Mapping[str, object]]]:
    try:
        values = parse_json(text)
    except ValueError as error:
        raise CostError(f"{path} is not JSON ({error}); expected a list of objects, one for each pass") from error
    if not isinstance(values, list) or not all(isinstance(value, dict) for value in values):
        raise CostError(f"{path} is not a list of objects; expected [{{num_tokens, latency_ms, ...}}, ...]")
    return [(f"entry {number}", value) for number, value in enumerate(values, 1)]


def _whole(row: Mapping[str, object], name: str, least: int, where: str) -> int:
    """A whole number, typed as one; 1 where nothing is typed."""
    value = row.get(name)
    text = "1" if value in (None, "") else str(value)
    try:
        return whole_number(text, least, MOST_DRAFTED if least == 0 else MOST_COUNT)
    except ValueError as error:
        raise CostError(f"{where}: {name}: {error}") from error
