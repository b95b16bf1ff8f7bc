"""Result files: their rows are checked on reading, and have a digest."""

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

from simlab.errors import TraceError
from simlab.traces.format.json_fields import JsonFields
from simlab.traces.format.tables import read_table, table_facts, write_table
from simlab.traces.results.checks import find_missing_rows, find_row_problem
from simlab.traces.results.parts import NotedPart, check_whole, noted_part
from simlab.traces.results.rows import ADDED, Results, checked_results, results_schema

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


def read_results(path: str | Path) -> Results:
    """The rows of a result file, for figures: every policy has the same texts.

    Raises:
        TraceError: the file is missing, damaged, was changed, or holds something else; a row says what cannot be, or
            a policy lacks texts that others have; or it is a part of a replay.
    """
    rows, _ = read_unfinished_results(path)
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
        raise TraceError(f"expected a result file at {path}; there is none. `simlab replay --out FILE` writes one.")
    try:
        rows, facts = read_table(Path(path), results_schema(), ADDED)
        sequences = _sequence_counts(facts)
        checked_results(rows)
        problem = find_row_problem(rows, sequences)
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
