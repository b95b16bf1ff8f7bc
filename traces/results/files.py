"""Result files: their rows are checked on reading, and have a digest."""

import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TypeAlias

import polars as pl

from simlab.errors import TraceError, UsageError, enumerated
from simlab.traces.format.documents import JsonFields, first_difference
from simlab.traces.format.files import MANIFEST, TableError, check_place, remove_leftovers
from simlab.traces.format.schema import Schema
from simlab.traces.format.tables import read_table, table_facts, write_table
from simlab.traces.results.rows import (
    ADDED,
    Results,
    checked_results,
    find_missing_rows,
    find_row_problem,
    joined_results,
    results_schema,
)
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


# A result file that grows: rows are kept as soon as they are made, so that a killed replay goes on.

_WHAT = ("policy_id", "draft_id", "text_id", "cost_id", "sequence")
"""Predicted rows that agree in these say the same; those of another simlab are replaced."""


class PiecesFolder:
    """A folder beside a file, in which pieces of it wait until it is whole.

    Each piece is there whole or not at all.

    Args:
        path: of the file.
        schema: of its columns.
    """

    def __init__(self, path: Path, schema: Schema) -> None:
        # First: pieces that wait for a file which cannot be written would be left behind.
        check_place(path)
        self.folder = path.with_name(f"{path.name}.parts")
        self._schema = schema
        if self.folder.is_symlink():
            raise TraceError(
                f"{self.folder} is a link, and pieces are written through none; delete it, or go elsewhere"
            )

    def files(self) -> list[Path]:
        """The pieces in the order in which they were added."""
        return sorted(self.folder.glob("part-*.parquet"))

    def add(self, rows: pl.DataFrame) -> Path:
        """Keep one more piece, and say where."""
        files = self.files()
        number = int(files[-1].stem.removeprefix("part-")) + 1 if files else 0
        path = self.folder / f"part-{number:06d}.parquet"
        write_table(path, rows, {})
        return path

    def read(self) -> list[pl.DataFrame]:
        """The rows of all pieces, piece by piece.

        Raises:
            TraceError: one is damaged or of another kind.
        """
        added = {name: value for name, value in ADDED.items() if name in self._schema}
        return [read_table(file, self._schema, added)[0] for file in self.files()]

    def remove(self) -> None:
        """Delete the pieces and their folder."""
        if not self.folder.is_dir():
            return
        for file in self.files():
            file.unlink()
        remove_leftovers(self.folder)
        self.folder.rmdir()


class ResultStore:
    """The result rows of a file, and those that a replay adds to it.

    Args:
        path: the file; it may be there already only with ``resume``.
        resume: whether to go on with what is there.
        part: of what the rows will be a part; None: of nothing.
    """

    def __init__(self, path: Path, resume: bool, part: NotedPart | None = None) -> None:
        self._path, self._parts, self._part = path, PiecesFolder(path, results_schema()), part
        earlier = [path] if path.is_file() else []
        if (earlier or self._parts.files()) and not resume:
            state = "is there already" if earlier else "was begun already"
            raise TraceError(f"{path} {state}; add --resume to go on with it, or give another --out")
        read = [read_unfinished_results(file) for file in earlier]
        self._sequences = {text_id: number for _, known in read for text_id, number in known.items()}
        self._before = joined_results([rows for rows, _ in read] + self._parts.read())
        if part is not None and earlier:
            self._check_part(part, results_part(path))

    def done(self, given: Mapping[str, str], channel_ids: Mapping[str, str]) -> Results:
        """Predicted rows that are there already.

        Args:
            given: values of columns: of which texts, drafter and version.
            channel_ids: the column of that name by the id of each policy that is replayed.
        """
        rows = _predicted(self._before).filter(_of_channels(channel_ids), **given)
        return rows.unique([*_WHAT, "simlab_version"], maintain_order=True)

    def check_alone(self, asked: Collection[tuple[str | None, str]], sequences: Collection[int]) -> None:
        """Refuse to leave other rows in the file of a part, which holds those of one replay.

        Args:
            asked: cost id and policy id of each policy that is replayed.
            sequences: of the part.
        """
        if self._part is None:
            return
        of = pl.all_horizontal(pl.col(name) == self._part.of[name] for name in ("text_id", "draft_id"))
        known = pl.struct(pl.col("cost_id").fill_null(""), "policy_id").is_in(
            [{"cost_id": cost_id or "", "policy_id": policy_id} for cost_id, policy_id in asked]
        )
        own = pl.all_horizontal(of, known, pl.col("sequence").is_in(list(sequences)), pl.col("kind") == "predicted")
        others = self._before.filter(~own.fill_null(value=False))
        if not others.is_empty():
            policy, sequence = others.select("policy", "sequence").row(0)
            raise TraceError(
                f"{self._path} holds {policy} on sequence {sequence}, which is not of part {self._part.part} of this "
                "replay, and the file of a part holds nothing else; give another --out"
            )

    def _check_part(self, part: NotedPart, existing: NotedPart | None) -> None:
        if existing is None or existing.part != part.part:
            held = "a whole replay" if existing is None else f"part {existing.part}"
            raise TraceError(f"{self._path} holds {held}, and this is part {part.part}; give another --out")

    def check_channels(
        self, given: Mapping[str, str], channel_ids: Mapping[str, str], sequences: Collection[int]
    ) -> None:
        """Refuse to leave rows of other channels beside new ones of the same policy.

        Args:
            given: values of columns of what is replayed: of which texts, drafter and version.
            channel_ids: the column of that name by the id of each policy that is replayed.
            sequences: of the replay.
        """
        elsewhere = pl.col("policy_id").is_in(list(channel_ids)) & ~pl.col("sequence").is_in(sequences)
        left = _predicted(self._before).filter(elsewhere, ~_of_channels(channel_ids), _of_texts(given))
        if not left.is_empty():
            policy, sequence = left.select("policy", "sequence").row(0)
            raise TraceError(
                f"{self._path} holds {policy} on sequence {sequence} with other channels, and all rows of a policy are "
                "of the same channels; replay the whole trace (without --limit), or give another --out"
            )

    def partners(self, given: Mapping[str, str], channel_ids: Mapping[str, str], sequences: Collection[int]) -> Results:
        """Predicted rows that stay in the file or stand for new ones: not those of another simlab or head made anew.

        Args:
            given: values of columns of what is replayed: of which texts, drafter and version.
            channel_ids: the column of that name by the id of each policy that is replayed.
            sequences: of the replay.
        """
        policies = pl.col("policy_id").is_in(list(channel_ids))
        asked = pl.all_horizontal(policies, pl.col("sequence").is_in(sequences), _of_texts(given))
        stays = (pl.col("simlab_version") == given["simlab_version"]) & _of_channels(channel_ids)
        return _predicted(self._before).filter(~asked | stays)

    def add(self, rows: Results) -> None:
        """Keep some more rows."""
        self._parts.add(rows)

    def finish(self, rows: Results, sequences: SequenceCounts) -> None:
        """Write the file: the rows of this replay behind those others that were there.

        Args:
            rows: of this replay.
            sequences: of the trace that was replayed.
        """
        old = _predicted(self._before).unique([*_WHAT, "simlab_version"], maintain_order=True)
        same = [pl.col(name).cast(pl.String).fill_null("") for name in _WHAT]
        others = old.join(rows, on=same, how="anti")
        measured = self._before.filter(pl.col("kind") != "predicted")
        together = joined_results([measured, others, rows])
        write_results(self._path, together, {**self._sequences, **sequences}, self._part)
        self._parts.remove()


def _of_texts(given: Mapping[str, str]) -> pl.Expr:
    """Whether a row is of the texts and the drafter that are given, whatever simlab made it."""
    return pl.all_horizontal(pl.col(name) == value for name, value in given.items() if name != "simlab_version")


def _of_channels(channel_ids: Mapping[str, str]) -> pl.Expr:
    """Whether a row is of the channels that its policy would read now; not where the policy is not replayed."""
    now = pl.col("policy_id").replace_strict(dict(channel_ids), default=None, return_dtype=pl.String)
    return (pl.col("channel_ids") == now).fill_null(value=False)


def _predicted(rows: Results) -> Results:
    return rows.filter(pl.col("kind") == "predicted")
