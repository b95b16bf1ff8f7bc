"""Names of the files of a trace, and the only place where they are read and written."""

import contextlib
import hashlib
import os
from collections.abc import Callable, Collection
from pathlib import Path
from typing import IO
from urllib.parse import unquote, urlparse

import polars as pl

from simlab.errors import TraceError

FORMAT_VERSION = 1
"""The trace format that this simlab writes, and the newest that it reads."""

MANIFEST = "manifest.json"
SEQUENCES = "sequences.parquet"
RECORDING = "recording.json"
UNFINISHED = "unfinished"

_COMPRESSION_LEVEL = 9
_ROWS_PER_GROUP = 4096
_CHUNK_BYTES = 1 << 20

FAILURES = (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError)


def tokens_file(shard: int) -> str:
    """The file of the target's rows of one shard."""
    return f"tokens-{shard:04d}.parquet"


def draft_file(name: str, shard: int) -> str:
    """The file of one drafter's rows of one shard."""
    return f"draft-{name}-{shard:04d}.parquet"


def sequences_file(shard: int) -> str:
    """The sequences of one shard, kept apart until the recording is finished."""
    return f"sequences-{shard:04d}.parquet"


def local_folder(place: str | Path) -> Path | None:
    """The folder on this machine, or None for an address that only polars can read."""
    text = str(place)
    if text.startswith("file://"):
        return Path(unquote(urlparse(text).path))
    return None if "://" in text else Path(text).expanduser().resolve()


def address(place: str | Path, name: str) -> str:
    """Where a file of a trace lies, in a form that polars reads."""
    folder = local_folder(place)
    return str(folder / name) if folder is not None else f"{str(place).rstrip('/')}/{name}"


def read_text(place: str | Path, name: str) -> str:
    """A text file, line by line through polars, so that ``hf://`` works as a folder does.

    Raises:
        TraceError: it cannot be read.
    """
    try:
        lines = pl.scan_csv(
            address(place, name),
            has_header=False,
            separator="\x01",
            quote_char=None,
            schema={"line": pl.String},
            glob=False,
        ).collect()
    except FAILURES as error:
        raise unreadable(place, name, error) from error
    return "\n".join(line or "" for line in lines["line"])


def read_frame(
    place: str | Path, name: str, schema: dict[str, pl.DataType], added: Collection[str] = ()
) -> pl.DataFrame:
    """The named columns of a Parquet file.

    Args:
        place: a folder, or its address.
        name: of the file.
        schema: the columns.
        added: those that older files do not have; they are null there.

    Raises:
        TraceError: it cannot be read, or a column is missing or of another type.
    """
    try:
        rows = pl.scan_parquet(address(place, name), glob=False)
        found = rows.collect_schema()
        rows = rows.with_columns(pl.lit(None, schema[name]).alias(name) for name in added if name not in found)
        for column, dtype in schema.items():
            if found.get(column) != dtype and (column in found or column not in added):
                raise TraceError(
                    f"{name} in {place}: expected the column {column} as {dtype}; found {found.get(column, 'none')}. "
                    "The file is not of this trace format; copy it from the original trace, or record again."
                )
        return rows.select(list(schema)).collect().rechunk()
    except FAILURES as error:
        raise unreadable(place, name, error) from error


def unreadable(place: str | Path, name: str, error: BaseException) -> TraceError:
    """The sentence for a file that could not be read."""
    if local_folder(place) is None:
        return TraceError(
            f"{address(place, name)} could not be read ({_reason(error)}); check the address and the network, "
            "or download the folder and open it there."
        )
    if isinstance(error, FileNotFoundError):
        return TraceError(f"{name} is missing from the trace {place}; copy the whole folder again, or record again.")
    return TraceError(
        f"{name} in {place} is damaged or not of this format ({_reason(error)}); copy it again, or record again."
    )


def _reason(error: BaseException) -> str:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0] if len(lines[0]) <= 200 else f"{lines[0][:200]} ..."


def write_beside(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Write a file under another name and rename it into place: it is there whole or not at all.

    Raises:
        TraceError: the file cannot be written, for example because the disk is full.
    """
    part = path.with_name(f".{path.name}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with part.open("wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except FAILURES as error:
        raise TraceError(
            f"{path} could not be written ({_reason(error)}); see that the folder can be written and the disk has "
            "room, then run again."
        ) from error
    finally:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)


def write_frame(path: Path, rows: pl.DataFrame) -> None:
    """Write a Parquet file beside and rename it; equal rows give equal bytes."""

    def write(file: IO[bytes]) -> None:
        rows.rechunk().write_parquet(
            file,
            compression="zstd",
            compression_level=_COMPRESSION_LEVEL,
            statistics=False,
            row_group_size=_ROWS_PER_GROUP,
        )

    write_beside(path, write)


def remove_leftovers(folder: Path) -> None:
    """Delete what a killed writer left half written."""
    for path in folder.glob(".*.part"):
        path.unlink(missing_ok=True)


def file_sha256(path: Path) -> str:
    """sha256 of a file's bytes, read in chunks."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()
