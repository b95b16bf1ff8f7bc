"""Files of traces at addresses: fetched once, checked against the manifest, and kept in the user's cache.

A file lies in ``traces/SHA256/NAME`` of the cache, so two traces with the same file share it. The manifest is fetched
each time, since it says which digests the others have.
"""

import hashlib
import os
import re
import sys
from pathlib import Path
from typing import IO

from tqdm import tqdm

from simlab.errors import TraceError
from simlab.traces.fetching.addresses import address
from simlab.traces.fetching.cache import alone, cache_dir, is_intact
from simlab.traces.fetching.web import not_read, pieces

MOST_MANIFEST_BYTES = 1 << 26
"""A manifest of 100,000 files has less."""


def fetched_text(place: str | Path, name: str) -> str:
    """A small text file at an address, asked for each time.

    Raises:
        TraceError: it cannot be read.
    """
    try:
        return b"".join(pieces(place, name, MOST_MANIFEST_BYTES)).decode()
    except UnicodeDecodeError as error:
        raise not_read(place, name, f"it is no text: {error.reason}") from error


def fetched_file(place: str | Path, name: str, num_bytes: int, sha256: str) -> Path:
    """Where a file of the trace at an address lies in the cache; fetched if it is not there yet.

    Args:
        place: the address.
        name: of the file.
        num_bytes: of the file, as the manifest has it.
        sha256: likewise.

    Raises:
        TraceError: it cannot be read or kept, or is not what the manifest says; then it is not in the cache.
    """
    if not re.fullmatch(r"[0-9a-f]{64}", sha256):
        raise TraceError(f"the manifest of {place} lists no sha256 of {name}: it is damaged. Copy the trace again.")
    folder = cache_dir() / "traces" / sha256
    path = folder / name
    try:
        if is_intact(path, sha256):
            return path
        folder.mkdir(parents=True, exist_ok=True)
        with alone(folder / ".lock"):
            if not is_intact(path, sha256):
                if path.is_file():
                    tqdm.write(f"{path} is not as it was fetched; fetching it again", file=sys.stderr)
                    path.unlink()
                _fetch(place, name, num_bytes, sha256, path)
                if not is_intact(path, sha256):
                    raise TraceError(f"{path} is not read as it was written; check the disk, or set SIMLAB_CACHE.")
    except OSError as error:
        raise TraceError(
            f"{address(place, name)} could not be kept in {folder} ({error.strerror or error}); free some room or set "
            "SIMLAB_CACHE to another folder, then run again."
        ) from error
    return path


def _fetch(place: str | Path, name: str, num_bytes: int, sha256: str, path: Path) -> None:
    """Write a file beside its place, where a killed fetch may have left one, and rename it once it was checked."""
    part = path.with_name(f".{name}.part")
    part.unlink(missing_ok=True)
    try:
        with part.open("xb") as file:
            _receive(place, name, num_bytes, sha256, file)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def _receive(place: str | Path, name: str, num_bytes: int, sha256: str, file: IO[bytes]) -> None:
    digest, received = hashlib.sha256(), 0
    with tqdm(total=num_bytes, desc=f"fetching {name}", unit="B", unit_scale=True, delay=2) as bar:
        for piece in pieces(place, name, num_bytes):
            file.write(piece)
            digest.update(piece)
            received += len(piece)
            bar.update(len(piece))
    where = address(place, name)
    if received != num_bytes:
        raise TraceError(
            f"{where} has {received} bytes; the manifest says {num_bytes}. It is cut short or of another trace; run "
            "again, ask who published it, or record again."
        )
    if digest.hexdigest() != sha256:
        raise TraceError(
            f"{where} is damaged or was changed: its sha256 is not the manifest's. Run again, ask who published it, or "
            "record again."
        )
