"""Traces' files in the cache: held while they are read, and the least recently used removed when there are too many."""

import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path, PosixPath
from typing import IO

from simlab.errors import UsageError
from simlab.traces.fetching.cache import alone, cache_dir

MOST = "SIMLAB_CACHE_SIZE"
"""The environment variable of how much of traces is kept: bytes, or such as ``20GB``; a GB has 10^9."""

_USUAL = "50GB"
_SIZE = re.compile(r"(\d{1,15}(?:\.\d{1,6})?) ?([KMGT]?)B?", re.ASCII | re.IGNORECASE)
_FACTORS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_WRITING, _READING = ".lock", ".reading.lock"


class HeldFile(PosixPath):
    """A file in the cache that nobody removes while this value lives, in this process or another.

    Attributes:
        lease: an open file with a shared lock, which goes with this value; None in a cache that cannot be written in.
    """

    lease: IO[bytes] | None = None


@dataclass(frozen=True, slots=True)
class _Entry:
    """A folder of the store: what lies in it in bytes, and when it was last wanted."""

    folder: Path
    num_bytes: int
    used_ns: int


def store_dir() -> Path:
    """The folder of all files, each in a folder with its sha256 as name."""
    return cache_dir() / "traces"


def most_bytes() -> int:
    """So much is kept."""
    typed = os.environ.get(MOST, "").strip() or _USUAL
    found = _SIZE.fullmatch(typed)
    if found is None:
        raise UsageError(f"{MOST} is a number of bytes such as 20GB; got {typed!r}")
    return int(float(found[1]) * _FACTORS[found[2].upper()])


def lock_of(folder: Path) -> Path:
    """The lock of a folder that one has who writes in it; readers have another one."""
    return folder / _WRITING


def held(path: Path) -> HeldFile:
    """A file that is in the store, or was; whether it is there is seen when it is held."""
    found, lock = HeldFile(path), path.parent / _READING
    try:
        if not lock.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            lock.touch()
        found.lease = lock.open("rb")
    except OSError:
        if not path.exists():
            raise
        return found  # in a cache that others filled, and that cannot be written in
    fcntl.flock(found.lease, fcntl.LOCK_SH)
    with suppress(OSError):  # likewise
        os.utime(lock)
    return found


def make_room(num_bytes: int) -> None:
    """Remove the files that nobody has wanted for longest, until so many more bytes are within the limit.

    What is being read or fetched stays, even where it alone is more.
    """
    most, root = most_bytes(), store_dir()
    root.mkdir(parents=True, exist_ok=True)
    with alone(lock_of(root)):
        entries = sorted(_entries(root), key=lambda one: one.used_ns)
        total = num_bytes + sum(one.num_bytes for one in entries)
        for one in entries:
            if total <= most:
                return
            if _is_removed(one.folder):
                total -= one.num_bytes


def _entries(root: Path) -> Iterator[_Entry]:
    """All folders of the store that hold anything."""
    for folder in root.iterdir():
        with suppress(OSError):  # it went meanwhile
            sizes = [path.stat().st_size for path in _contents(folder)]
            if sizes:
                yield _Entry(folder, sum(sizes), _last_used_ns(folder))


def _contents(folder: Path) -> Iterator[Path]:
    """Every file of a folder, however deep, but its locks."""
    return (path for path in folder.rglob("*") if path.is_file() and path.name not in (_WRITING, _READING))


def _last_used_ns(folder: Path) -> int:
    """When somebody held a file of a folder last; 0 for those of an older simlab, which did not write it down."""
    lock = folder / _READING
    return lock.stat().st_mtime_ns if lock.exists() else 0


def _is_removed(folder: Path) -> bool:
    """Empty a folder, unless somebody reads or writes in it. Its locks stay: others may be waiting for them."""
    with ExitStack() as locks:
        for name in (_WRITING, _READING):
            lock = locks.enter_context((folder / name).open("a"))
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
        for path in list(_contents(folder)):
            path.unlink()
    return True
