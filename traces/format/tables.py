"""Parquet files whose metadata has a digest of their rows, so that a changed value is found on reading."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl

from simlab.errors import TraceError
from simlab.ids import content_digest
from simlab.traces.format.documents import DIGEST, Json, JsonFields, json_fields
from simlab.traces.format.files import FAILURES, column_names, read_frame, unreadable, write_frame
from simlab.traces.format.schema import Schema

ENTRY = "simlab"
"""The key of the metadata under which a JSON object stands."""

NOTHING_ADDED: Mapping[str, pl.Expr] = {}
"""Files of this kind have always had the same columns."""


def write_table(path: Path, rows: pl.DataFrame, facts: Mapping[str, object]) -> None:
    """Write rows, what is said of them, and the digest of both.

    Args:
        path: of the file.
        rows: the table.
        facts: a JSON object.
    """
    signed = {**facts, DIGEST: _digest(facts, rows)}
    write_frame(path, rows, {ENTRY: json.dumps(signed, sort_keys=True, ensure_ascii=False)})


def read_table(
    path: Path, schema: Schema, added: Mapping[str, pl.Expr] = NOTHING_ADDED
) -> tuple[pl.DataFrame, JsonFields]:
    """The rows of a file and what it says of them.

    Args:
        path: of the file.
        schema: its columns.
        added: those that older files do not have, and what stands there instead; the digest is without them.

    Raises:
        TraceError: it cannot be read, has other columns, no digest, or one that does not fit.
    """
    rows, absent = read_columns(path, schema, added)
    facts = table_facts(path)
    if DIGEST not in facts.values:
        raise TraceError(f"{path} has no digest of its rows, so nobody can tell whether it was changed")
    if facts.text(DIGEST) != _digest(facts.values, rows.drop(absent)):
        raise TraceError(f"{path} was changed after it was written: its digest is not that of its rows")
    return rows, facts


def read_columns(path: Path, schema: Schema, added: Mapping[str, pl.Expr]) -> tuple[pl.DataFrame, list[str]]:
    """The rows of a file without a look at its digest, and which of the columns it does not have.

    Raises:
        TraceError: it cannot be read, or has other columns.
    """
    rows = read_frame(path.parent, path.name, schema, added)
    present = column_names(path)
    absent = [name for name in added if name not in present]
    return rows.with_columns(added[name].alias(name) for name in absent), absent


def table_facts(path: Path) -> JsonFields:
    """What a file says of its rows, unchecked; nothing where it says nothing."""
    try:
        return json_fields(pl.read_parquet_metadata(path).get(ENTRY, "{}"), str(path))
    except (*FAILURES, ValueError) as error:
        raise unreadable(path.parent, path.name, error) from error


def rows_digest(rows: pl.DataFrame) -> str:
    """The sha256 of the columns of a table in their order: names, types, nulls and values, little-endian."""
    digest = hashlib.sha256()
    for column in rows:
        digest.update(f"{column.name} {column.dtype} {len(column)}\n".encode())
        for part in _parts(column):
            digest.update(np.ascontiguousarray(part, part.dtype.newbyteorder("<")).data)
    return digest.hexdigest()


def _parts(column: pl.Series) -> list[npt.NDArray[np.generic]]:
    """What stands for a column: where it is null, and its values, of texts their places among the different ones."""
    parts = [column.is_null().to_numpy()] if column.null_count() else []
    if column.dtype == pl.List:
        lengths = column.list.len().fill_null(0).cast(pl.Int64).to_numpy()
        return [*parts, lengths, *_parts(column.filter(pl.Series(lengths > 0)).explode())]
    if column.dtype == pl.String:
        texts = column.drop_nulls().unique(maintain_order=True)
        codes = column.cast(pl.Enum(texts)).to_physical().cast(pl.Int64).fill_null(-1).to_numpy()
        listed = json.dumps(texts.to_list(), ensure_ascii=False).encode()
        return [*parts, codes, np.frombuffer(listed, np.uint8)]
    return [*parts, column.fill_null(strategy="zero").to_numpy()]


def _digest(facts: Mapping[str, object], rows: pl.DataFrame) -> str:
    stated: Json = {key: value for key, value in facts.items() if key != DIGEST}
    return content_digest({"facts": stated, "rows": rows_digest(rows)})
