"""A result file that grows: rows are kept as soon as they are made, so that a killed replay goes on."""

from collections.abc import Mapping
from pathlib import Path

import polars as pl

from simlab.errors import TraceError
from simlab.traces.format.files import read_frame, remove_leftovers, write_frame
from simlab.traces.format.schema import Schema
from simlab.traces.results.rows import ADDED, Results, joined_results, read_results, results_schema, write_results

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
        self.folder = path.with_name(f"{path.name}.parts")
        self._schema = schema

    def files(self) -> list[Path]:
        """The pieces in the order in which they were added."""
        return sorted(self.folder.glob("part-*.parquet"))

    def add(self, rows: pl.DataFrame) -> None:
        """Keep one more piece.

        Raises:
            TraceError: it cannot be written.
        """
        files = self.files()
        number = int(files[-1].stem.removeprefix("part-")) + 1 if files else 0
        write_frame(self.folder / f"part-{number:06d}.parquet", rows)

    def read(self) -> list[pl.DataFrame]:
        """The rows of all pieces, piece by piece.

        Raises:
            TraceError: one is damaged or of another kind.
        """
        added = [name for name in ADDED if name in self._schema]
        return [read_frame(self.folder, one.name, self._schema, added) for one in self.files()]

    def remove(self) -> None:
        """Delete the pieces and their folder."""
        if not self.folder.is_dir():
            return
        for one in self.files():
            one.unlink()
        remove_leftovers(self.folder)
        self.folder.rmdir()


class ResultStore:
    """The result rows of a file, and those that a replay adds to it.

    Args:
        path: the file; it may be there already only with ``resume``.
        resume: whether to go on with what is there.

    Raises:
        TraceError: there is something and ``resume`` is not set, or it holds no result rows.
    """

    def __init__(self, path: Path, resume: bool) -> None:
        self._path, self._parts = path, PiecesFolder(path, results_schema())
        earlier = [path] if path.is_file() else []
        if (earlier or self._parts.files()) and not resume:
            state = "is there already" if earlier else "was begun already"
            raise TraceError(f"{path} {state}; add --resume to go on with it, or give another --out")
        self._before = joined_results([read_results(path) for path in earlier] + self._parts.read())

    def done(self, given: Mapping[str, str]) -> Results:
        """Predicted rows that are there already.

        Args:
            given: values of columns: of which texts, drafter and version.
        """
        return _predicted(self._before).filter(**given).unique([*_WHAT, "simlab_version"], maintain_order=True)

    def add(self, rows: Results) -> None:
        """Keep some more rows.

        Raises:
            TraceError: they cannot be written.
        """
        self._parts.add(rows)

    def finish(self, rows: Results) -> None:
        """Write the file: the rows of this replay behind those others that were there.

        Raises:
            TraceError: it cannot be written.
        """
        old = _predicted(self._before).unique([*_WHAT, "simlab_version"], maintain_order=True)
        same = [pl.col(name).cast(pl.String).fill_null("") for name in _WHAT]
        others = old.join(rows, on=same, how="anti")
        measured = self._before.filter(pl.col("kind") != "predicted")
        write_results(self._path, joined_results([measured, others, rows]))
        self._parts.remove()


def _predicted(rows: Results) -> Results:
    return rows.filter(pl.col("kind") == "predicted")
