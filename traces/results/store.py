"""A result file that grows: rows are kept as soon as they are made, so that a killed replay goes on."""

from collections.abc import Collection, Mapping
from pathlib import Path

import polars as pl

from simlab.errors import TraceError
from simlab.traces.format.files import check_place, remove_leftovers
from simlab.traces.format.schema import Schema
from simlab.traces.format.tables import read_table, write_table
from simlab.traces.results.files import NotedPart, SequenceCounts, read_unfinished_results, results_part, write_results
from simlab.traces.results.rows import ADDED, Results, joined_results, results_schema

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
