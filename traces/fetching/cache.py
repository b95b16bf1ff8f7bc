"""The user's cache: where it is, one writer at a time, and whether a file in it is as it was made."""

import fcntl
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import platformdirs


def cache_dir() -> Path:
    """The folder for what was fetched: ``SIMLAB_CACHE``, or the user's cache folder."""
    named = os.environ.get("SIMLAB_CACHE")
    return Path(named) if named else Path(platformdirs.user_cache_dir("simlab"))


@contextmanager
def alone(lock: Path) -> Iterator[None]:
    """Wait until no other process holds this file. The lock of a killed process is free at once."""
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def stamp_of(about: os.stat_result) -> str:
    """Size, times of the last change, and inode of a file, which change whenever anybody writes it."""
    return f"{about.st_size} {about.st_mtime_ns} {about.st_ctime_ns} {about.st_ino}"


def is_intact(path: Path, sha256: str) -> bool:
    """Whether a file is there and has this digest; read whole once, then only if its stamp has changed.

    The stamp is kept beside it, in ``.NAME.checked``: digest, size, times of the last change, and inode, as they were
    when the file was read. It does not see bytes that the disk itself changed, nor a change within the same tick of
    the file system's clock, nor a hand that sets the clock back or writes stamps. Without the stamp the file is read
    again.
    """
    stamp = path.with_name(f".{path.name}.checked")
    try:
        now = f"{sha256} {stamp_of(path.stat())}\n"
        if stamp.is_file() and stamp.read_bytes() == now.encode():
            return True
        with path.open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != sha256:
                return False
    except FileNotFoundError:
        return False
    with suppress(OSError):  # a cache that others filled may be read-only
        stamp.write_text(now, encoding="utf-8")
    return True
