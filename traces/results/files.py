"""Result files: their rows are checked on reading, and have a digest."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TypeAlias

from simlab.errors import TraceError, UsageError, enumerated
from simlab.traces.format.documents import JsonFields, first_difference
from simlab.traces.format.files import MANIFEST, TableError
from simlab.traces.format.tables import read_table, table_facts, write_table
from simlab.traces.results.checks import find_missing_rows, find_row_problem
from simlab.traces.results.rows import ADDED, Results, checked_results, results_schema
from simlab.workers.parts import Part, missing_parts, parse_part

# What a file says of the work that it is one part of, so that all parts can be put together again.


_PART, _OF = "part", "part_of"


@dataclass(frozen=True, slots=True)
class NotedPart:
    """One part, and in what all parts of the same work agree.

    Attributes:
        part: which one.
        of: the work: ids of what is read, simlab's version, how much there is; JSON.
    """

    part: Part
    of: Mapping[str, object]

    def facts(self) -> dict[str, object]:
        """What stands in the metadata of the file; the only part there is says nothing, since it is the whole."""
        return {} if self.part.is_whole else {_PART: str(self.part), _OF: dict(self.of)}


def noted_part(facts: JsonFields) -> NotedPart | None:
    """What the metadata of a file says of its part; None: it is whole."""
    if _PART not in facts.values:
        return None
    try:
        # Backwards, so that another text is named before the drafts, whose id depends on it.
        of = dict(sorted(facts.inner(_OF).values.items(), reverse=True))
        return NotedPart(parse_part(facts.text(_PART)), of)
    except ValueError as error:
        raise TraceError(f"{facts.where}: {error}") from error


def check_whole(path: str | Path, noted: NotedPart | None) -> None:
    """Refuse a part where the whole is wanted."""
    if noted is not None:
        raise TraceError(
            f"{path} is part {noted.part} alone; put all {noted.part.count} together first: `simlab merge ... --out "
            "FILE`"
        )


def check_together(paths: Sequence[str | Path], noted: Sequence[NotedPart | None]) -> None:
    """Refuse files that are not all the parts of one work.

    Args:
        paths: of the files.
        noted: what each says of its part, at least one that it is one.
    """
    parts = [(path, part) for path, part in zip(paths, noted, strict=True) if part is not None]
    (first_path, first), *others = parts
    wholes = [path for path, part in zip(paths, noted, strict=True) if part is None]
    if wholes:
        raise UsageError(f"{first_path} is a part and {wholes[0]} is none; merge the parts alone, all of them")
    for path, part in others:
        if part.part.count != first.part.count:
            raise UsageError(
                f"{first_path} is one of {first.part.count} parts, and {path} is one of {part.part.count}; merge the "
                "parts of one split"
            )
        _check_same_work(first_path, first.of, path, part.of)
    lacking = missing_parts([part.part for _, part in parts])
    if lacking:
        names = enumerated([str(part) for part in lacking[:9]] + ([f"{len(lacking) - 9} more"] if lacking[9:] else []))
        raise UsageError(f"{names} {'is' if len(lacking) == 1 else 'are'} missing; merge takes all parts at once")


def check_once(paths: Sequence[str | Path], noted: Sequence[NotedPart | None]) -> None:
    """Refuse a part that is named twice; arguments as of `check_together`."""
    parts = sorted((note.part, index) for index, note in enumerate(noted) if note is not None)
    for (part, index), (other, another) in pairwise(parts):
        if part == other:
            raise UsageError(f"{paths[index]} and {paths[another]} are both part {part}; give each part once")


def _check_same_work(
    first: str | Path, existing: Mapping[str, object], other: str | Path, wanted: Mapping[str, object]
) -> None:
    """Refuse two parts of different works, by the name of what differs."""
    differing = first_difference(existing, wanted, f"in {first}", f"in {other}")
    if differing is not None:
        raise UsageError(f"{first} and {other} are parts of different works: they differ in {differing}")


FORMAT = "simlab-results"
FORMAT_VERSION = 1
"""The format of result files that this simlab writes, and the newest that it reads."""

SequenceCounts: TypeAlias = Mapping[str, int]
"""How many sequences the trace of each ``text_id`` holds; a result may have rows of fewer, after ``--limit``."""


def write_results(
    path: Path, rows: Results, sequences: SequenceCounts | None = None, part: NotedPart | None = None
) -> None:
    """Write a result file beside and rename it; `simlab merge` puts several together.

    Args:
        path: of the file.
        rows: result rows.
        sequences: of the traces that they are of; None: not known.
        part: of what the rows are a part; None: of nothing.
    """
    facts = {"format": FORMAT, "format_version": FORMAT_VERSION, "sequences": dict(sequences or {})}
    write_table(path, checked_results(rows), facts | ({} if part is None else part.facts()))


def read_results(path: str | Path, whole: bool = True) -> Results:
    """The rows of a result file, for figures: every policy has the same texts.

    Args:
        path: of the file.
        whole: whether a part of a replay is refused.

    Raises:
        TraceError: the file is missing, damaged, was changed, or holds something else; a row says what cannot be, or
            a policy lacks texts that others have; or it is a part of a replay.
    """
    rows, _ = read_unfinished_results(path)
    if whole:
        check_whole(path, results_part(path))
    missing = find_missing_rows(rows)
    if missing is not None:
        raise TraceError(
            f"{path} is not finished: {missing}; finish it with the same --limit for all: `simlab replay --out "
            f"{shlex.quote(str(path))} --resume ...`"
        )
    return rows


def read_unfinished_results(path: str | Path) -> tuple[Results, SequenceCounts]:
    """The rows of a result file, and how many sequences its traces hold; policies may be of different texts.

    Raises:
        TraceError: as `read_results`, but for lacking texts.
    """
    if not Path(path).is_file():
        instead = "that is a trace (--trace takes it)" if (Path(path) / MANIFEST).is_file() else "there is none"
        raise TraceError(f"expected a result file at {path}; {instead}. `simlab replay --out FILE` writes one.")
    try:
        rows, facts = read_table(Path(path), results_schema(), ADDED)
        sequences = _sequence_counts(facts)
        checked_results(rows)
        problem = find_row_problem(rows, sequences)
    except TableError as error:
        reason = f"{error.reason}; `simlab replay --out FILE` writes one"
        raise TraceError(f"{path} cannot be read as a result file: {reason}.") from error
    except (ValueError, TraceError) as error:
        reason = str(error).removeprefix(f"{path} ").rstrip(".")
        raise TraceError(f"{path} is not a result file of this simlab ({reason}); {_again(path)}.") from error
    if problem is not None:
        raise TraceError(f"{path} holds what no replay and no run gives: {problem}; {_again(path)}.")
    return rows, sequences


def results_part(path: str | Path) -> NotedPart | None:
    """What a result file that was read says of its part; None: it is whole."""
    return noted_part(table_facts(Path(path)))


def _again(path: str | Path) -> str:
    return (
        "make it again with `simlab replay --out FILE`, or, if you wrote it yourself and vouch for it, sign it: "
        f"`simlab inspect {shlex.quote(str(path))} --sign`"
    )


def _sequence_counts(facts: JsonFields) -> SequenceCounts:
    if facts.text("format") != FORMAT or facts.integer("format_version") != FORMAT_VERSION:
        raise ValueError("it is of another format")
    listed = facts.inner("sequences")
    return {text_id: listed.integer(text_id) for text_id in listed.values}
