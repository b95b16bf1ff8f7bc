"""Reading the rows of one shard, and refusing what does not fit the sequences."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import polars as pl

from simlab.arrays import Bools, read_only
from simlab.channels import TargetLawRows
from simlab.errors import TraceError
from simlab.recorded import DraftRows
from simlab.traces.fetching.fetched import fetched_file
from simlab.traces.format.checks import draft_fault, firsts_of, refuse, token_fault
from simlab.traces.format.files import (
    SEQUENCES,
    draft_file,
    file_sha256,
    in_folder,
    local_folder,
    read_frame,
    tokens_file,
    unreadable,
)
from simlab.traces.format.frames import (
    DraftColumns,
    SequenceRecord,
    TokenRows,
    draft_columns_of,
    draft_rows_of,
    floats_of,
    sequences_of,
    spans,
    token_rows_of,
)
from simlab.traces.format.manifest import FileInfo, Manifest
from simlab.traces.format.schema import (
    TARGET_LAW_COLUMNS,
    Schema,
    draft_schema,
    replay_schema,
    sequences_schema,
    tokens_schema,
)
from simlab.traces.parquet.sizes import check_promised, parquet_sizes

_FEW_LISTED = 1 << 24
"""So many candidates are read before anything is known of their counts; they are 128 MiB."""


def read_sequences(location: str | Path, name: str = SEQUENCES, path: Path | None = None) -> list[SequenceRecord]:
    """The texts of a trace, without their other rows; arguments as of `read_frame`.

    Raises:
        TraceError: the file is missing or damaged.
    """
    rows = read_frame(location, name, sequences_schema(), path=path)
    with damage_named(location, name):
        return sequences_of(rows)


@dataclass(frozen=True, slots=True, eq=False)
class Shard:
    """Some texts of a trace, whose rows lie in files of their own.

    Attributes:
        location: a folder, or its address.
        manifest: of the trace; without contents nothing is known of the files yet.
        number: from 0.
        texts: in the order of the trace.
    """

    location: str | Path
    manifest: Manifest
    number: int
    texts: Sequence[SequenceRecord]

    @property
    def num_roots(self) -> list[int]:
        """How many roots each text has."""
        return [len(record.text) - 1 for record in self.texts]


def read_token_rows(shard: Shard) -> Iterator[TokenRows]:
    """The target's rows of each text of a shard.

    Raises:
        TraceError: the file is missing, damaged, or of other texts.
    """
    lengths, name = [len(record.text) for record in shard.texts], tokens_file(shard.number)
    rows = read_rows(shard, name, tokens_schema(shard.manifest.vocab_size), lengths)
    with damage_named(shard.location, name):
        parts = list(token_rows_of(rows, lengths))
    for record, part in zip(shard.texts, parts, strict=True):
        fault = token_fault(part, record.text, shard.manifest.vocab_size)
        refuse(fault, np.array([0, len(record.text)]), [record], f"{name} in {shard.location}")
    return iter(parts)


def read_target_law(shard: Shard) -> TargetLawRows:
    """How sure the target was of each root, for all texts of a shard; no other column of its rows is decoded.

    Raises:
        TraceError: the file is missing, damaged, or of other texts.
    """
    lengths, name = [len(record.text) for record in shard.texts], tokens_file(shard.number)
    whole = tokens_schema(shard.manifest.vocab_size)
    rows = read_rows(shard, name, {column: whole[column] for column in TARGET_LAW_COLUMNS}, lengths)
    with damage_named(shard.location, name):
        # The last token of a text is no root.
        parts = [np.arange(first, last - 1) for first, last in spans(lengths)]
        return TargetLawRows(read_only(floats_of(rows["entropy"])[np.concatenate(parts)]))


def read_draft_rows(shard: Shard, draft: str) -> DraftRows:
    """What a replay reads of a draft set, for all texts of a shard.

    Raises:
        TraceError: the file is missing, damaged, or of other texts.
    """
    return _read_draft(shard, draft, replay_schema(shard.manifest.draft_sets[draft].depth))[1]


def read_draft_columns(shard: Shard, draft: str) -> list[DraftColumns]:
    """All columns of a draft set, for each text of a shard.

    Raises:
        TraceError: the file is missing, damaged, or of other texts.
    """
    read = _read_draft(shard, draft, draft_schema(shard.manifest.draft_sets[draft].depth))
    with damage_named(shard.location, draft_file(draft, shard.number)):
        return list(draft_columns_of(*read, shard.num_roots))


def read_records(shard: Shard, drafts: Sequence[str]) -> Iterator[SequenceRecord]:
    """Each text of a shard with the target's rows, if the trace has any, and all columns of the named draft sets.

    Raises:
        TraceError: a file is missing, damaged, or of other texts.
    """
    columns = {name: iter(read_draft_columns(shard, name)) for name in drafts}
    laws = read_token_rows(shard) if shard.manifest.imported is None else [None] * len(shard.texts)
    for record, tokens in zip(shard.texts, laws, strict=True):
        yield replace(record, tokens=tokens, drafts={name: next(parts) for name, parts in columns.items()})


def checked_file(location: str | Path, manifest: Manifest, name: str) -> Path:
    """A file of a finished trace on this machine, once its size and sha256 are those of the manifest."""
    expected, folder = _file_info(manifest, name, location), local_folder(location)
    if folder is None:
        return fetched_file(location, name, expected.num_bytes, expected.sha256)
    try:
        num_bytes = (folder / name).stat().st_size
        if num_bytes != expected.num_bytes:
            raise TraceError(
                f"{name} in {location} has {num_bytes} bytes; the manifest says {expected.num_bytes}. "
                "The file is cut short or of another trace; copy it again, or record again."
            )
        if file_sha256(folder / name) != expected.sha256:
            raise TraceError(
                f"{name} in {location} is damaged: its sha256 is not the manifest's. Copy it again, or record again."
            )
    except OSError as error:
        raise unreadable(location, name, error) from error
    return folder / name


def found_file(location: str | Path, manifest: Manifest, name: str) -> tuple[Path, os.stat_result]:
    """A file of a finished trace on this machine, fetched if need be, and its size and times; it is not read."""
    folder = local_folder(location)
    path = checked_file(location, manifest, name) if folder is None else folder / name
    try:
        return path, path.stat()
    except OSError as error:
        raise unreadable(location, name, error) from error


def _read_draft(shard: Shard, draft: str, schema: Schema) -> tuple[pl.DataFrame, DraftRows, Bools]:
    """Some columns of a draft set, what a replay reads of them, and where a true rank is stored."""
    name = draft_file(draft, shard.number)
    rows = read_rows(shard, name, schema, shard.num_roots)
    with damage_named(shard.location, name):
        decoded, valid = draft_rows_of(rows)
    fault = draft_fault(decoded, valid, shard.texts, shard.manifest.draft_sets[draft])
    refuse(fault, firsts_of(shard.texts), shard.texts, f"{name} in {shard.location}")
    return rows, decoded, valid


@contextmanager
def damage_named(location: str | Path, name: str) -> Iterator[None]:
    """Say of which file it is that values do not fit."""
    try:
        yield
    except (ValueError, TypeError) as error:
        raise TraceError(f"{name} in {location} is damaged ({error}); copy it again, or record again.") from error


def read_rows(
    shard: Shard, name: str, schema: Schema, lengths: Sequence[int], most_listed: int | None = None
) -> pl.DataFrame:
    """Some columns of a file that has rows for each text, once it is known to be whole and of these texts.

    Args:
        shard: whose file it is.
        name: of the file.
        schema: the columns.
        lengths: the rows of each text.
        most_listed: values that all lists of a column together may have; None: as many as the column ``counts`` says,
            or, where there is none, any number.

    Raises:
        TraceError: the file is missing, damaged, or of other texts.
    """
    location, path = shard.location, None
    if shard.manifest.contents is not None:
        path = checked_file(location, shard.manifest, name)
    listed = check_holds(location, name, schema, sum(lengths), most_listed, path)
    if listed > _FEW_LISTED and "counts" in schema:
        counts = read_frame(location, name, {"counts": schema["counts"]}, path=path)["counts"]
        check_holds(location, name, schema, sum(lengths), int(counts.explode().cast(pl.Int64).sum()), path)
    rows = read_frame(location, name, schema, path=path)
    _check_keys(rows, shard.texts, lengths, f"{name} in {location}")
    if "counts" in schema:
        _check_counts(rows, f"{name} in {location}")
    return rows


def check_holds(
    location: str | Path, name: str, schema: Schema, num_rows: int, most_listed: int | None, path: Path | None = None
) -> int:
    """Refuse a file that holds more or less than it must, before it is read.

    Args:
        location: a folder, or its address.
        name: of the file.
        schema: of the columns that will be read.
        num_rows: how many it must have.
        most_listed: values that all lists of a column together may have; None: any number.
        path: where the file lies on this machine; None: in the folder.

    Returns:
        the most values that the lists of a column have.
    """
    try:
        sizes = parquet_sizes(path or in_folder(location, name))
    except (OSError, ValueError) as error:
        raise unreadable(location, name, error) from error
    listed = [num_values for column, num_values, _ in sizes.columns if isinstance(schema.get(column), pl.List)]
    try:
        check_promised(sizes, num_rows, schema, max(listed, default=0) if most_listed is None else most_listed)
    except ValueError as error:
        raise TraceError(
            f"{name} in {location}: {error}. The file is damaged or of another trace; copy it again, or record again."
        ) from error
    return max(listed, default=0)


def _file_info(manifest: Manifest, name: str, location: str | Path) -> FileInfo:
    files = manifest.held().files
    if name not in files and manifest.imported is not None and name.startswith("tokens-"):
        raise TraceError(
            f"{location} was imported from {manifest.imported.engine}, which did not write what the target says of "
            "each token; record the models with `simlab record` for that."
        )
    if name not in files:
        raise TraceError(f"the manifest of {location} does not list {name}: it is damaged. Copy the trace again.")
    return files[name]


def _check_keys(rows: pl.DataFrame, texts: Sequence[SequenceRecord], lengths: Sequence[int], where: str) -> None:
    sequence = np.repeat(np.array([record.index for record in texts], np.int64), lengths)
    parts = [np.arange(num) for num in lengths]
    position = np.concatenate(parts) if parts else np.zeros(0, np.int64)
    if len(rows) != len(sequence):
        raise TraceError(
            f"{where}: expected {len(sequence)} rows for {len(texts)} texts; found {len(rows)}. "
            "The file is damaged or of another trace; copy it again, or record again."
        )
    if not (np.array_equal(rows["sequence"], sequence) and np.array_equal(rows["position"], position)):
        raise TraceError(
            f"{where}: its rows are not those of the texts in {SEQUENCES}. "
            "The file is of another trace; copy it again, or record again."
        )


def _check_counts(rows: pl.DataFrame, where: str) -> None:
    """A row keeps at least one candidate at each depth, and as many ids and log-probs as it counts."""
    if len(rows) == 0:
        return
    flat = rows["counts"].explode()
    if flat.null_count():
        raise TraceError(f"{where}: counts must not be null. Copy it again, or record again.")
    counts = flat.to_numpy().reshape(len(rows), -1).astype(np.int64)
    total = counts.sum(axis=1)
    lists = [rows[name].list.len().fill_null(-1).to_numpy() for name in ("ids", "log_probs")]
    if counts.min() < 1 or any((lengths != total).any() for lengths in lists):
        raise TraceError(f"{where}: counts do not add up to the lists of candidates. Copy it again, or record again.")
