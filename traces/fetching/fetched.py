"""Files of traces at addresses: fetched once, checked against the manifest, and kept in the user's cache.

A file lies in ``traces/SHA256/NAME`` of the cache, so two traces with the same file share it. The manifest is fetched
each time, since it says which digests the others have. How much is kept is bounded; see `simlab.traces.fetching.store`.
"""

import hashlib
import os
import re
import sys
import time
from pathlib import Path
from typing import IO

from tqdm import tqdm

from simlab.errors import TraceError
from simlab.traces.fetching.addresses import address
from simlab.traces.fetching.cache import alone, is_intact
from simlab.traces.fetching.store import HeldFile, held, lock_of, make_room, store_dir
from simlab.traces.fetching.web import Answer, CutOffError, answer, not_read

MOST_MANIFEST_BYTES = 1 << 26
"""A manifest of 100,000 files has less."""

PAUSE_S = 0.5
"""Before the rest is asked for where a connection was cut."""


class NotAsListedError(TraceError):
    """A file at an address that has another length or digest than what lists it says."""


def fetched_text(place: str | Path, name: str) -> str:
    """A small text file at an address, asked for each time.

    Raises:
        TraceError: it cannot be read.
    """
    try:
        return b"".join(answer(place, name, MOST_MANIFEST_BYTES).pieces).decode()
    except UnicodeDecodeError as error:
        raise not_read(place, name, f"it is no text: {error.reason}") from error


def fetched_file(place: str | Path, name: str, num_bytes: int, sha256: str) -> HeldFile:
    """A file of the trace at an address, in the cache; fetched if it is not there yet.

    Args:
        place: the address.
        name: of the file.
        num_bytes: of the file, as the manifest has it.
        sha256: likewise.

    Raises:
        TraceError: it cannot be read or kept, or is not what the manifest says (`NotAsListedError`); then it is not in
            the cache.
    """
    if not re.fullmatch(r"[0-9a-f]{64}", sha256):
        raise TraceError(f"the manifest of {place} lists no sha256 of {name}: it is damaged. Copy the trace again.")
    path = store_dir() / sha256 / name
    try:
        found = held(path)
        if not is_intact(found, sha256):
            make_room(num_bytes)
            with alone(lock_of(path.parent)):
                _fetch_unless_there(place, name, num_bytes, sha256, path)
        return found
    except OSError as error:
        raise TraceError(
            f"{address(place, name)} could not be kept in {path.parent} ({error.strerror or error}); free some room or "
            "set SIMLAB_CACHE to another folder, then run again."
        ) from error


def _fetch_unless_there(place: str | Path, name: str, num_bytes: int, sha256: str, path: Path) -> None:
    """Fetch a file that another process has not fetched meanwhile."""
    if is_intact(path, sha256):
        return
    if path.is_file():
        tqdm.write(f"{path} is not as it was fetched; fetching it again", file=sys.stderr)
        path.unlink()
    _fetch(place, name, num_bytes, sha256, path)
    if not is_intact(path, sha256):
        raise TraceError(f"{path} is not read as it was written; check the disk, or set SIMLAB_CACHE.")


def _fetch(place: str | Path, name: str, num_bytes: int, sha256: str, path: Path) -> None:
    """Write a file beside its place, and rename it once it was checked.

    Where the network fails, what came is kept, and the rest is asked for: at once if anything came, else in the next
    run.
    """
    part = path.with_name(f".{name}.part")
    try:
        while True:
            before = part.stat().st_size if part.exists() else 0
            try:
                digest = _receive(place, name, num_bytes, part)
            except CutOffError:
                if part.stat().st_size <= before:
                    raise
                time.sleep(PAUSE_S)
                continue
            if digest == sha256:
                part.replace(path)
                return
            part.unlink()
            if before == 0:
                raise NotAsListedError(
                    f"{address(place, name)} is damaged or was changed: its sha256 is not the manifest's. Run again, "
                    "ask who published it, or record again."
                )
            # What was left of an earlier fetch may have been of another file.
    except (TraceError, OSError) as error:
        if not isinstance(error, CutOffError) or part.stat().st_size == 0:
            part.unlink(missing_ok=True)
        raise


def _receive(place: str | Path, name: str, num_bytes: int, part: Path) -> str:
    """Fetch what a part lacks; the sha256 of the whole."""
    with part.open("a+b") as file:
        if file.tell() > num_bytes:
            file.truncate(0)
        size = file.seek(0, os.SEEK_END)
        if size < num_bytes or num_bytes == 0:
            coming = answer(place, name, num_bytes, size)
            if coming.start != size:
                file.truncate(0)
            size = _append(coming, file, name, num_bytes)
        if size != num_bytes:
            raise NotAsListedError(
                f"{address(place, name)} has {size} bytes; the manifest says {num_bytes}. It is cut short or of "
                "another trace; run again, ask who published it, or record again."
            )
        file.seek(0)
        return hashlib.file_digest(file, "sha256").hexdigest()


def _append(coming: Answer, file: IO[bytes], name: str, num_bytes: int) -> int:
    """Write what comes at the end of a file; its size then."""
    size = coming.start
    bar = tqdm(total=num_bytes, initial=size, desc=f"fetching {name}", unit="B", unit_scale=True, delay=2)
    with bar:
        for piece in coming.pieces:
            file.write(piece)
            size += len(piece)
            bar.update(len(piece))
    file.flush()
    os.fsync(file.fileno())
    return size
