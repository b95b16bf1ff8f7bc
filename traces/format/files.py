"""Names of the files of a trace, and the only place where they are read and written."""

import contextlib
import fcntl
import hashlib
import os
import re
import secrets
import stat
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import IO
from urllib.parse import unquote, urlparse

import polars as pl

from simlab.errors import TraceError
from simlab.traces.parquet.sizes import check_size
from simlab.untrusted.json_text import file_text, open_file, typed_path

FORMAT_VERSION = 1
"""The trace format that this simlab writes, and the newest that it reads."""

MANIFEST = "manifest.json"
SEQUENCES = "sequences.parquet"
TOKEN_TEXTS = "token_texts.parquet"
RECORDING = "recording.json"
UNFINISHED = "unfinished"

COMPRESSION_LEVEL = 9
QUICK_LEVEL = 1
_ROWS_PER_GROUP = 4096

_RANDOM_BYTES = 6
_PART = r"\.{}(\.[0-9a-f]{{12}})?\.part"
"""A part's name; an older simlab's has no number."""

FAILURES = (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError)


def tokens_file(shard: int) -> str:
    """The file of the target's rows of one shard."""
    return f"tokens-{shard:04d}.parquet"


def draft_file(name: str, shard: int) -> str:
    """The file of one drafter's rows of one shard."""
    return f"draft-{name}-{shard:04d}.parquet"


def channel_file(name: str, shard: int) -> str:
    """The file of one channel's rows of one shard."""
    return f"channel-{name}-{shard:04d}.parquet"


def sequences_file(shard: int) -> str:
    """The sequences of one shard, kept apart until the recording is finished."""
    return f"sequences-{shard:04d}.parquet"


def local_folder(location: str | Path) -> Path | None:
    """The folder on this machine, or None for an address, whose files `simlab.traces.fetching.fetched` keeps here."""
    text = str(location)
    if text.startswith("file://"):
        return Path(unquote(urlparse(text).path))
    return None if "://" in text else Path(os.path.realpath(typed_path(text)))


def read_text(location: str | Path, name: str) -> str:
    """A text file in a folder.

    Raises:
        TraceError: it cannot be read.
    """
    try:
        return file_text(in_folder(location, name))
    except (OSError, UnicodeDecodeError) as error:
        raise unreadable(location, name, error) from error


def read_frame(
    location: str | Path,
    name: str,
    schema: dict[str, pl.DataType],
    added: Collection[str] = (),
    path: Path | None = None,
) -> pl.DataFrame:
    """The named columns of a Parquet file.

    Args:
        location: a folder, or its address.
        name: of the file.
        schema: the columns.
        added: those that older files do not have; they are null there.
        path: where the file lies on this machine; None: in the folder.

    Raises:
        TraceError: it cannot be read, or a column is missing or of another type.
    """
    try:
        where = path or in_folder(location, name)
        check_size(where, schema)
        rows = pl.scan_parquet(where, glob=False)
        columns = rows.collect_schema()
        rows = rows.with_columns(pl.lit(None, schema[name]).alias(name) for name in added if name not in columns)
        for column, dtype in schema.items():
            if columns.get(column) != dtype and (column in columns or column not in added):
                raise ValueError(f"expected the column {column} as {dtype}; found {columns.get(column, 'none')}")
        return rows.select(list(schema)).collect().rechunk()
    except (*FAILURES, ValueError) as error:
        raise unreadable(location, name, error) from error


def column_names(path: Path) -> list[str]:
    """The names of the columns of a Parquet file.

    Raises:
        TraceError: it cannot be read.
    """
    # Every reader says `glob=False`: to polars a path with brackets or stars is a pattern, and other files match it.
    try:
        return pl.scan_parquet(path, glob=False).collect_schema().names()
    except (*FAILURES, ValueError) as error:
        raise unreadable(path.parent, path.name, error) from error


def in_folder(location: str | Path, name: str) -> Path:
    """Where a file lies in a folder on this machine."""
    folder = local_folder(location)
    assert folder is not None, f"{name} at {location} must be fetched first"
    return folder / name


class TableError(TraceError):
    """A file that cannot be read as its table; ``reason`` is what is wrong with it, wherever it lies."""

    def __init__(self, sentence: str, reason: str = "") -> None:
        super().__init__(sentence)
        self.reason = reason


def unreadable(location: str | Path, name: str, error: BaseException) -> TraceError:
    """The sentence for a file that could not be read."""
    if isinstance(error, FileNotFoundError):
        return TraceError(f"{name} is missing from the trace {location}; copy the whole folder again, or record again.")
    if isinstance(error, OSError) and error.strerror:
        return TableError(f"{name} in {location} cannot be read ({error.strerror}).", error.strerror)
    reason = _reason(error)
    return TableError(
        f"{name} in {location} is damaged or not of this format ({reason}); copy it again, or record again.", reason
    )


def _reason(error: BaseException) -> str:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0] if len(lines[0]) <= 200 else f"{lines[0][:200]} ..."


def check_place(path: Path) -> None:
    """Refuse what no file is renamed to: no name at all, or that of a device."""
    if not path.name:
        raise TraceError(f"expected the name of a file to write; got the folder {path}")
    if path.exists() and not path.is_file() and not path.is_dir():
        # Whoever may rename there, as root may in /dev, would put a file in the place of a device.
        raise TraceError(f"{path} is a device, and its place is not taken; give the name of a file")


def write_beside(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Write a file under another name and rename it into place: it is there whole or not at all.

    Each writer makes a part of its own, ``.NAME.RANDOM.part``, which no link can stand in for, and holds a lock on it.
    Parts that nobody holds are of killed writers; whoever next writes the same file removes them.
    """
    check_place(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        remove_leftovers(path.parent, path.name)
        with _own_part(path) as (part, file):
            write(file)
            file.flush()
            os.fsync(file.fileno())
            part.replace(path)
    except FAILURES as error:
        raise TraceError(
            f"{path} could not be written ({_reason(error)}); see that the folder can be written and the disk has "
            "room, then run again."
        ) from error


@contextlib.contextmanager
def _own_part(path: Path) -> Iterator[tuple[Path, IO[bytes]]]:
    """A new file beside another, locked while it is written, and gone afterwards unless it was renamed."""
    while True:
        part = path.with_name(f".{path.name}.{secrets.token_hex(_RANDOM_BYTES)}.part")
        # "x" makes the file, or fails: it neither follows a link nor opens what another made.
        with part.open("xb") as file:
            try:
                if _is_held(file):
                    yield part, file
                    return
            finally:
                with contextlib.suppress(OSError):
                    part.unlink(missing_ok=True)


def _is_held(file: IO[bytes]) -> bool:
    """Lock a new part; False where someone has just taken it for a killed writer's and removes it."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        # No locks in this folder: then nobody can take the part for a killed writer's either.
        return True
    return os.fstat(file.fileno()).st_nlink > 0


def write_frame(
    path: Path, rows: pl.DataFrame, metadata: Mapping[str, str] | None = None, level: int = COMPRESSION_LEVEL
) -> None:
    """Write a Parquet file beside and rename it; equal rows give equal bytes.

    Args:
        path: of the file.
        rows: the table.
        metadata: texts by name that stand in the file beside the rows.
        level: of compression by zstd; a low one writes ten times as fast, a tenth more bytes.
    """

    def write(file: IO[bytes]) -> None:
        rows.rechunk().write_parquet(
            file,
            compression="zstd",
            compression_level=level,
            statistics=False,
            row_group_size=_ROWS_PER_GROUP,
            metadata=None if metadata is None else dict(metadata),
        )

    write_beside(path, write)


def remove_leftovers(folder: Path, name: str | None = None) -> None:
    """Delete what killed writers left half written.

    A part is deleted when its lock is free: the lock of a process ends with the process, on whatever machine of a
    shared folder it ran. Links are left alone, and so is everything where there are no locks.

    Args:
        folder: which is looked through; there may be none.
        name: of one file; None: of all.
    """
    wanted = re.compile(_PART.format(".+" if name is None else re.escape(name)))
    with contextlib.suppress(OSError):
        for path in sorted(folder.iterdir()):
            if wanted.fullmatch(path.name):
                with contextlib.suppress(OSError):
                    _remove_if_free(path)


def _remove_if_free(part: Path) -> None:
    number = os.open(part, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if stat.S_ISREG(os.fstat(number).st_mode):
            fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
            part.unlink()
    finally:
        os.close(number)


def file_sha256(path: Path) -> str:
    """sha256 of a file's bytes, read in chunks."""
    with open_file(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
