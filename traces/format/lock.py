"""One writer at a time: what goes on with earlier work, or grows, is locked from the first look to the last byte."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from simlab.errors import InUseError, TraceError

_PATIENCE_S = 0.2
"""For a writer that is just ending."""


def lock_file(path: Path) -> Path:
    """Where the lock of a file lies: beside it, hidden."""
    return path.parent / f".{path.name}.lock"


@contextlib.contextmanager
def exclusive_lock(path: Path | None, option: str = "--out", patience_s: float = _PATIENCE_S) -> Iterator[None]:
    """Hold a file, so that no other simlab writes it meanwhile, on this machine or, in a shared folder, on another.

    A folder is held by its most telling file, whether or not that is there yet. The lock is the system's: that of a
    killed process is free at once. The lock file, ``.NAME.lock``, is removed at the end; one that a killed process left
    is empty, keeps nobody out, and is removed by the next writer.

    Args:
        path: of the file; its folder is made. None: nothing is held.
        option: under which it was named.
        patience_s: how long another simlab is waited for.
    """
    if path is None:
        yield
        return
    if path.parent.is_file():
        raise TraceError(f"{option} names the file {path.parent}; expected a folder")
    # A policy file may go to another folder meanwhile.
    lock_path = lock_file(path).absolute()
    made = [parent for parent in lock_path.parents if not parent.exists()]
    ids: list[os.stat_result] = []
    lock = FileLock(
        lock_file(path),
        timeout=patience_s,
        fallback_to_soft=False,
        on_acquired=lambda number: ids.append(os.fstat(number)),
    )
    try:
        _acquire(lock, path, option)
        try:
            yield
        finally:
            # While it is held: who waits for it finds that the file has no name any more, and makes a new one.
            _remove(lock_path, ids[0])
            lock.release()
    finally:
        for folder in made:
            with contextlib.suppress(OSError):
                folder.rmdir()


def _acquire(lock: FileLock, path: Path, option: str) -> None:
    was_there = os.path.lexists(lock_file(path))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except Timeout as error:
        raise InUseError(
            f"another simlab is writing {path}; wait until it is done, or give another {option}"
        ) from error
    except OSError as error:
        if not was_there:
            with contextlib.suppress(OSError):
                lock_file(path).unlink()
        raise TraceError(
            f"{path} cannot be kept from other writers, since its lock {lock_file(path)} cannot be had "
            f"({error.strerror or error}); give another {option}, in a folder that can be written and locked"
        ) from error


def _remove(path: Path, ours: os.stat_result) -> None:
    """Delete the lock file, unless someone did so before and another has made a new one."""
    with contextlib.suppress(OSError):
        if os.path.samestat(path.lstat(), ours):
            path.unlink()
