"""Reading the rows of one shard, and refusing what does not fit the sequences."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl

from simlab.errors import TraceError
from simlab.recorded import DraftRows
from simlab.traces.format.files import (
    SEQUENCES,
    draft_file,
    file_sha256,
    local_folder,
    read_frame,
    tokens_file,
    unreadable,
)
from simlab.traces.format.frames import draft_columns_of, draft_rows_of, sequences_of, token_rows_of
from simlab.traces.format.manifest import FileInfo, Manifest
from simlab.traces.format.records import SequenceRecord, TokenRows
from simlab.traces.format.schema import Schema, draft_schema, replay_schema, sequences_schema, tokens_schema


def read_sequences(place: str | Path, name: str = SEQUENCES) -> list[SequenceRecord]:
    """The texts of a trace, without their other rows.

    Raises:
        TraceError: the file is missing or damaged.
    """
    try:
        return sequences_of(read_frame(place, name, sequences_schema()))
    except (ValueError, TypeError) as error:
        raise TraceError(f"{name} in {place} is damaged ({error}); copy it again, or record again.") from error


def read_token_rows(
    place: str | Path, manifest: Manifest, shard: int, texts: Sequence[SequenceRecord]
) -> Iterator[TokenRows]:
    """The target's rows of each text of a shard.

    Raises:
        TraceError: the file is missing, damaged, or of other texts.
    """
    lengths = [len(record.text) for record in texts]
    rows = _read_rows(place, manifest, tokens_file(shard), tokens_schema(manifest.vocab_size), texts, lengths)
    return token_rows_of(rows, lengths)


def read_draft_rows(
    place: str | Path, manifest: Manifest, draft: str, shard: int, texts: Sequence[SequenceRecord]
) -> DraftRows:
    """What a replay reads of a draft set, for all texts of a shard.

    Raises:
        TraceError: the file is missing, damaged, or of other texts.
    """
    lengths = [len(record.text) - 1 for record in texts]
    schema = replay_schema(manifest.draft_sets[draft].depth)
    rows = _read_rows(place, manifest, draft_file(draft, shard), schema, texts, lengths)
    return draft_rows_of(rows)


def read_records(
    place: str | Path, manifest: Manifest, drafts: Sequence[str], shard: int, texts: Sequence[SequenceRecord]
) -> Iterator[SequenceRecord]:
    """Each text of a shard with the target's rows and all columns of the named draft sets.

    Raises:
        TraceError: a file is missing, damaged, or of other texts.
    """
    lengths = [len(record.text) - 1 for record in texts]
    columns = {}
    for name in drafts:
        schema = draft_schema(manifest.draft_sets[name].depth)
        rows = _read_rows(place, manifest, draft_file(name, shard), schema, texts, lengths)
        columns[name] = draft_columns_of(rows, lengths)
    for record, tokens in zip(texts, read_token_rows(place, manifest, shard, texts), strict=True):
        yield replace(record, tokens=tokens, drafts={name: next(parts) for name, parts in columns.items()})


def verify_file(place: str | Path, name: str, expected: FileInfo) -> None:
    """Compare a file with its size and sha256 in the manifest; an address is not compared.

    Raises:
        TraceError: it is missing or differs.
    """
    folder = local_folder(place)
    if folder is None:
        return
    try:
        num_bytes = (folder / name).stat().st_size
        if num_bytes != expected.num_bytes:
            raise TraceError(
                f"{name} in {place} has {num_bytes} bytes; the manifest says {expected.num_bytes}. "
                "The file is cut short or of another trace; copy it again, or record again."
            )
        if file_sha256(folder / name) != expected.sha256:
            raise TraceError(
                f"{name} in {place} is damaged: its sha256 is not the manifest's. Copy it again, or record again."
            )
    except OSError as error:
        raise unreadable(place, name, error) from error


def _read_rows(
    place: str | Path,
    manifest: Manifest,
    name: str,
    schema: Schema,
    texts: Sequence[SequenceRecord],
    lengths: Sequence[int],
) -> pl.DataFrame:
    if manifest.contents is not None:
        verify_file(place, name, file_info(manifest, name, place))
    rows = read_frame(place, name, schema)
    _check_keys(rows, texts, lengths, f"{name} in {place}")
    if "ids" in schema:
        _check_counts(rows, f"{name} in {place}")
    return rows


def file_info(manifest: Manifest, name: str, place: str | Path) -> FileInfo:
    """What the manifest of a finished trace says about a file.

    Raises:
        TraceError: it does not name the file.
    """
    files = manifest.held().files
    if name not in files:
        raise TraceError(f"the manifest of {place} does not list {name}: it is damaged. Copy the trace again.")
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
    counts = rows["counts"].explode().to_numpy().reshape(len(rows), -1).astype(np.int64)
    total = counts.sum(axis=1)
    lists = [rows[name].list.len().fill_null(-1).to_numpy() for name in ("ids", "log_probs")]
    if counts.min() < 1 or any((lengths != total).any() for lengths in lists):
        raise TraceError(f"{where}: counts do not add up to the lists of candidates. Copy it again, or record again.")
