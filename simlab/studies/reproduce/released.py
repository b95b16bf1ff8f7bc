"""Files that others released: which files, at which commit, with which digests; their figures beside ours.

A release is some files of a public repository at one commit; none of them comes with simlab. Each is checked by its
digest before it is read, so what it holds is known: a study prints figures, and what follows from them stands on its
page. A figure of theirs is quoted with its file, the digest of that file, and where in it the figure stands.
"""

import csv
import hashlib
import math
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib.resources import files
from itertools import zip_longest
from pathlib import Path
from typing import Any

import polars as pl
from tqdm import tqdm

from simlab.analysis.statistics.intervals import finite
from simlab.analysis.table.estimates import Estimate
from simlab.analysis.table.text import aligned, is_known, within_width
from simlab.errors import SimlabError, TraceError, UsageError
from simlab.traces.fetching.fetched import NotAsListedError, fetched_file
from simlab.traces.fetching.store import fetched_ahead
from simlab.untrusted.json_text import file_text, open_file, parse_json

_MANIFESTS = Path(str(files("simlab.analysis"))) / "data" / "releases"

Row = dict[str, Any]
"""What a table prints or JSON holds of a row."""

Schema = Mapping[str, pl.DataType | type[pl.DataType]]
"""Columns of a table and what they hold."""


@dataclass(frozen=True, slots=True)
class Release:
    """Files of a public repository at one commit.

    Attributes:
        name: of the manifest.
        repository: ``owner/name`` on GitHub.
        commit: 40 hexadecimal digits.
        licence: what the repository says, or that it says nothing.
        files: bytes and hexadecimal SHA-256 by path in the repository; bytes 0: not known, and it is not fetched.
    """

    name: str
    repository: str
    commit: str
    licence: str
    files: Mapping[str, tuple[int, str]]

    @property
    def source(self) -> str:
        """What a reader would cite."""
        return f"github.com/{self.repository}, commit {self.commit[:7]} ({self.licence})"

    @property
    def commands(self) -> tuple[str, ...]:
        """What gets a clone of it."""
        folder = self.repository.rpartition("/")[2]
        return (f"git clone https://github.com/{self.repository}", f"git -C {folder} checkout {self.commit}")

    def with_commands(self, refusal: SimlabError) -> SimlabError:
        """A refusal that says how to get a clone."""
        for command in self.commands:
            refusal.add_note(command)
        return refusal


@dataclass(frozen=True, slots=True)
class Quoted:
    """A figure of others, from their own file.

    Attributes:
        value: as it stands there.
        path: the file, in their repository.
        sha256: of the file.
        where: in the file, such as a line or a row.
    """

    value: float
    path: str
    sha256: str
    where: str


def read_release(name: str) -> Release:
    """A release that simlab knows."""
    path = _MANIFESTS / f"{name}.json"
    if not path.is_file():
        raise SimlabError(f"the list of files of {name} is missing from {path}; install simlab again")
    listed = parse_json(file_text(path))
    assert isinstance(listed, dict)
    digests = {key: (file["bytes"], file["sha256"]) for key, file in listed["files"].items()}
    return Release(name, listed["repository"], listed["commit"], listed["licence"], digests)


@dataclass(frozen=True, eq=False, slots=True)
class ReleasedFiles:
    """The files of a release, in a folder or at an address; each is checked before it is read.

    Attributes:
        release: which.
        location: a clone, a folder with the same paths, or an address; None: where it was released.
    """

    release: Release
    location: str | Path | None = None
    _checked: dict[str, Path] = field(default_factory=dict, init=False)

    def path(self, name: str) -> Path:
        """A file on this machine, as it was released; a file at an address is fetched into the cache.

        Args:
            name: its path in the repository.

        Raises:
            SimlabError: it cannot be had, or is not as it was released.
            ValueError: it is none of the release.
        """
        if name not in self.release.files:
            raise ValueError(f"{name} is no file of {self.release.name}")
        if name not in self._checked:
            address = f"https://raw.githubusercontent.com/{self.release.repository}/{self.release.commit}"
            where = str(address if self.location is None else self.location)
            if not where.strip():
                raise UsageError("--data is empty; expected a clone of the repository, or an address")
            self._checked[name] = self._fetched(where, name) if "://" in where else self._in_folder(Path(where), name)
        return self._checked[name]

    def names(self, *starts: str, end: str = "") -> list[str]:
        """Paths that begin and end so, in order."""
        return sorted(name for name in self.release.files if name.startswith(starts) and name.endswith(end))

    def have(self, names: Sequence[str], progress: bool | None = None) -> None:
        """Check many files at once, and fetch those that are not here.

        Args:
            names: their paths in the repository.
            progress: whether a bar is shown; None: on a terminal.
        """
        shown = sys.stderr.isatty() if progress is None else progress
        # Small files of a far host: several are asked for at a time.
        ready = fetched_ahead(names, lambda name: [partial(self.path, name)])
        for _ in tqdm(ready, total=len(names), desc="released files", unit="file", delay=1, disable=not shown):
            pass

    def text(self, name: str) -> str:
        """A whole file as text; its encoding is UTF-8."""
        return file_text(self.path(name))

    def value(self, name: str) -> Row:
        """The object of a JSON file."""
        return _object(self.text(name))

    def objects(self, name: str) -> list[Row]:
        """The objects of a file of JSON lines."""
        return [_object(line) for line in self.text(name).rstrip("\n").split("\n")]

    def frame(self, name: str, schema: Schema) -> pl.DataFrame:
        """The objects of a file of JSON lines as a table with these columns; null where a line has none."""
        return pl.DataFrame(self.objects(name), schema=dict(schema))

    def rows(self, name: str) -> list[dict[str, str]]:
        """The rows of a CSV file with a heading."""
        return list(csv.DictReader(self.text(name).splitlines()))

    def quoted_cell(self, name: str, column: str, **row: str) -> Quoted:
        """A number in the only row of a CSV file that has these values."""
        (matching,) = [
            candidate for candidate in self.rows(name) if all(candidate[key] == value for key, value in row.items())
        ]
        where = ", ".join(f"{key} {value}" for key, value in row.items())
        return self.quoted(name, float(matching[column]), f"{column} of {where}")

    def quoted_pattern(self, name: str, pattern: str) -> Quoted:
        """The only number in a text file that a pattern finds.

        Args:
            name: of the file.
            pattern: a regular expression with one group, the number.
        """
        text = self.text(name)
        (match,) = re.finditer(pattern, text, re.MULTILINE)
        line = text.count("\n", 0, match.start(1)) + 1
        return self.quoted(name, float(match[1].replace(",", "")), f"line {line}")

    def quoted(self, name: str, value: float, where: str) -> Quoted:
        """A figure that was read from a file."""
        return Quoted(value, name, self.release.files[name][1], where)

    def _in_folder(self, folder: Path, name: str) -> Path:
        path, expected = folder / name, self.release.files[name][1]
        if not path.is_file():
            lack = f"has no {name}" if folder.is_dir() else "is no folder" if folder.exists() else "does not exist"
            clone = f"expected a clone of github.com/{self.release.repository} at commit {self.release.commit[:7]}"
            raise self.release.with_commands(UsageError(f"{folder} {lack}; {clone}"))
        with open_file(path) as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        if digest != expected:
            refusal = UsageError(
                f"{path} is not as it was released: its sha256 begins with {digest[:12]}, expected {expected[:12]}; "
                f"check out commit {self.release.commit[:7]}"
            )
            raise self.release.with_commands(refusal)
        return path

    def _fetched(self, where: str, name: str) -> Path:
        folder, _, last = name.rpartition("/")
        num_bytes, sha256 = self.release.files[name]
        try:
            return fetched_file(f"{where.rstrip('/')}/{folder}".rstrip("/"), last, num_bytes, sha256)
        except NotAsListedError as error:
            refusal = SimlabError(f"{where}/{name} is not as it was released; give a clone with --data:")
            raise self.release.with_commands(refusal) from error
        except TraceError as error:
            refusal = SimlabError(f"{str(error).rstrip('.')}; or give a clone with --data:")
            raise self.release.with_commands(refusal) from error


def _object(text: str) -> Row:
    value = parse_json(text)
    assert isinstance(value, dict)
    return value


@dataclass(frozen=True, slots=True)
class ComparedFigure:
    """A figure, theirs and ours.

    Attributes:
        what: the figure, and what it is of.
        ours: NaN where it cannot be worked out from what was released.
        theirs: None where they print none.
        digits: decimals to print.
        by_formula: what our code makes of their formulas, where they print no figure; else NaN.
        same_records: whether theirs is of the very records that ours is worked out from, so that both should be equal;
            else of others, so that it should lie within the interval.
    """

    what: str
    ours: Estimate
    theirs: Quoted | None = None
    digits: int = 2
    by_formula: float = math.nan
    same_records: bool = True

    @property
    def difference(self) -> float:
        """Ours less theirs; NaN where either is not there."""
        return self.ours.value - (self.by_formula if self.theirs is None else self.theirs.value)

    @property
    def as_printed(self) -> bool | None:
        """Whether ours is theirs as they print it; None: theirs is not there, or is of other records."""
        if self.theirs is None or not self.same_records or math.isnan(self.ours.value):
            return None
        return abs(self.difference) <= self._rounding

    @property
    def is_within(self) -> bool | None:
        """Whether our interval holds theirs as printed; None: one of them is not there, or records are the same."""
        ends = self.ours.interval
        if self.theirs is None or self.same_records or not is_known(ends):
            return None
        return ends.low - self._rounding <= self.theirs.value <= ends.high + self._rounding

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

    def row(self) -> Row:
        """Flat scalars, as a script reads them; what is not known is None."""
        theirs = self.theirs
        return {
            "what": self.what,
            "theirs": None if theirs is None else theirs.value,
            "theirs_by_formula": finite(self.by_formula),
            **self.ours.row("ours", digits=None),
            "difference": finite(self.difference),
            "as_printed": self.as_printed,
            "within_interval": self.is_within,
            "theirs_path": None if theirs is None else theirs.path,
            "theirs_sha256": None if theirs is None else theirs.sha256,
            "theirs_where": None if theirs is None else theirs.where,
        }

    def cells(self) -> Row:
        """The figure as a table prints it."""

        def shown(value: float) -> str:
            return "-" if math.isnan(value) else f"{value:,.{self.digits}f}"

        ends, theirs = self.ours.interval, "" if self.theirs is None else shown(self.theirs.value)
        # Adding 0 makes a zero that is rounded from below zero without a sign of its own.
        difference = (
            "" if math.isnan(self.difference) else f"{round(self.difference, self.digits) + 0.0:+,.{self.digits}f}"
        )
        return {
            "what": self.what,
            "theirs": theirs if math.isnan(self.by_formula) else f"{shown(self.by_formula)}*",
            "ours": shown(self.ours.value),
            "ends": f"[{shown(ends.low)}, {shown(ends.high)}]" if is_known(ends) else "",
            "difference": difference,
            "verdict": self.verdict,
        }


@dataclass(frozen=True, slots=True)
class Findings:
    """What a study of released data comes to.

    Attributes:
        compared: their figures and ours.
        tables: further tables and sentences, as people read them.
        values: further values, as scripts and figures read them.
    """

    compared: Sequence[ComparedFigure]
    tables: Sequence[str] = ()
    values: Mapping[str, object] = field(default_factory=dict)

    def to_json(self) -> Row:
        """What ``--json`` prints of it."""
        return {"figures": [figure.row() for figure in self.compared], **self.values}

    def text(self) -> str:
        """The comparison, the further tables, and where their figures stand."""
        sources = {figure.theirs.path: figure.theirs.sha256 for figure in self.compared if figure.theirs is not None}
        listed = [f"  {path} (sha256 {sha256[:12]})" for path, sha256 in sources.items()]
        parts = [compared_text(self.compared), *self.tables]
        return "\n\n".join([*parts, *(["\n".join(["Theirs were read from:", *listed])] if listed else [])])


def compared_text(compared: Sequence[ComparedFigure]) -> str:
    """Theirs, ours, the difference, and whether they agree."""
    headings = {"": "what", "theirs": "theirs", "ours": "ours", "[95 %]": "ends", "difference": "difference"}
    shown = [(heading, f"{{{name}}}") for heading, name in [*headings.items(), ("", "verdict")]]
    text = table("lrrlrl", shown, (figure.cells() for figure in compared))
    if any(not math.isnan(figure.by_formula) for figure in compared):
        return f"{text}\n* worked out from their formulas by our code; they print no such figure"
    return text


def columns(line: str) -> list[tuple[str, str]]:
    """Heading and template of each column of `table`, with ``=`` between the two and ``|`` between columns.

    >>> columns("rounds = {rounds:,} | per text = {share:.1f} | = {note}")
    [('rounds', '{rounds:,}'), ('per text', '{share:.1f}'), ('', '{note}')]
    """
    cells = (f"{cell} ".rpartition("= ") for cell in line.split(" | "))
    return [(heading.strip(" "), template.strip(" ")) for heading, _, template in cells]


def table(sides: str, shown: str | Sequence[tuple[str, str]], rows: Iterable[Mapping[str, Any]], note: str = "") -> str:
    """Rows as lines under a heading, and a note below them.

    >>> print(table("lr", "method = {name} | rounds = {rounds:,}", [{"name": "ar", "rounds": 1234}], "A note."))
    method  rounds
    ar       1,234
    A note.

    Args:
        sides: for each column ``l`` or ``r``, where its cells stand; the last letter holds for further columns.
        shown: the columns, as `columns` gives or reads them; a heading may have two lines.
        rows: values by the names in the templates.
        note: sentences.
    """
    parts = columns(shown) if isinstance(shown, str) else shown
    above = zip_longest(*(heading.split("\n") for heading, _ in parts), fillvalue="")
    cells = [[template.format_map(row) for _, template in parts] for row in rows]
    text = aligned([*above, *cells], [side == "l" for side in sides.ljust(len(parts), sides[-1])])
    return f"{text}\n{within_width(note)}" if note else text


def flat(row: Mapping[str, Any], digits: int | None = 5) -> Row:
    """A row as JSON has it: an estimate becomes its value and the ends of its interval, with so many decimals."""
    values: Row = {}
    for name, value in row.items():
        values |= value.row(name, digits=digits) if isinstance(value, Estimate) else {name: value}
    return values
