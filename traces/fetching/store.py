"""Traces' files in the cache: held while they are read, and the least recently used removed when there are too many."""

import fcntl
import hashlib
import os
import re
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path, PosixPath
from queue import SimpleQueue
from typing import IO, TypeVar

import platformdirs

from simlab.errors import UsageError

# What comes next is fetched while something is worked on: a few at a time, and not far ahead.


THREADS = 4
"""So many files are fetched at a time."""

ITEMS_AHEAD = 2
"""So many items, such as shards, are fetched before they are wanted."""

T = TypeVar("T")
Fetch = Callable[[], object]


def fetched_ahead(items: Sequence[T], fetches: Callable[[T], Sequence[Fetch]]) -> Iterator[T]:
    """Each item once its files are there, while those of the next are fetched.

    What a fetch gives back is kept until the item behind is asked for, so that a held file stays in the cache.

    Args:
        items: in the order in which they are wanted.
        fetches: from an item to what fetches its files; a failure of these is raised when the item's turn comes.
    """
    waiting: deque[list[Future[object]]] = deque()
    fetchers = _Fetchers()
    try:
        for index, item in enumerate(items):
            for later in items[index + len(waiting) : index + 1 + ITEMS_AHEAD]:
                waiting.append([fetchers.submit(fetch) for fetch in fetches(later)])
            files = [future.result() for future in waiting[0]]
            yield item
            waiting.popleft()
            del files
    finally:
        fetchers.stop()


class _Fetchers:
    """Threads that fetch, and that nobody waits for: a program that ends leaves them behind, and what came is kept."""

    def __init__(self) -> None:
        self._asked: SimpleQueue[tuple[Future[object], Fetch] | None] = SimpleQueue()
        self._num = 0

    def submit(self, fetch: Fetch) -> Future[object]:
        """Have something fetched by a thread that is free."""
        if self._num < THREADS:
            self._num += 1
            threading.Thread(target=self._work, name="simlab-fetch", daemon=True).start()
        future: Future[object] = Future()
        self._asked.put((future, fetch))
        return future

    def stop(self) -> None:
        """Begin nothing more, and end the threads."""
        while not self._asked.empty():
            self._asked.get()
        for _ in range(self._num):
            self._asked.put(None)

    def _work(self) -> None:
        while (asked := self._asked.get()) is not None:
            future, fetch = asked
            try:
                future.set_result(fetch())
            except BaseException as error:  # noqa: BLE001 - raised where the result is asked for
                future.set_exception(error)
            del asked, future, fetch


# The user's cache: where it is, one writer at a time, and whether a file in it is as it was made.


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


def store_dir() -> Path:
    """The folder of all files, each in a folder with its sha256 as name."""
    return cache_dir() / "traces"


def most_bytes() -> int:
    """So much is kept."""
    typed = os.environ.get(MOST, "").strip() or _USUAL
    match = _SIZE.fullmatch(typed)
    if match is None:
        raise UsageError(f"{MOST} is a number of bytes such as 20GB; got {typed!r}")
    return int(float(match[1]) * _FACTORS[match[2].upper()])


def lock_of(folder: Path) -> Path:
    """The lock of a folder that one has who writes in it; readers have another one."""
    return folder / _WRITING


def held(path: Path) -> HeldFile:
    """A file that is in the store, or was; whether it is there is seen when it is held."""
    file, lock = HeldFile(path), path.parent / _READING
    try:
        if not lock.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            lock.touch()
        file.lease = lock.open("rb")
    except OSError:
        if not path.exists():
            raise
        return file  # in a cache that others filled, and that cannot be written in
    fcntl.flock(file.lease, fcntl.LOCK_SH)
    with suppress(OSError):  # likewise
        os.utime(lock)
    return file


def make_room(num_bytes: int) -> None:
    """Remove the files that nobody has wanted for longest, until so many more bytes are within the limit.

    What is being read or fetched stays, even where it alone is more.
    """
    most, root = most_bytes(), store_dir()
    root.mkdir(parents=True, exist_ok=True)
    with alone(lock_of(root)):
        entries = sorted(_entries(root))
        total = num_bytes + sum(own_bytes for _, _, own_bytes in entries)
        for _, folder, own_bytes in entries:
            if total <= most:
                return
            if _is_removed(folder):
                total -= own_bytes


def _entries(root: Path) -> Iterator[tuple[int, Path, int]]:
    """All folders of the store that hold anything: when each was last wanted, where it is, and the bytes in it."""
    for folder in root.iterdir():
        with suppress(OSError):  # it went meanwhile
            sizes = [path.stat().st_size for path in _contents(folder)]
            if sizes:
                yield _last_used_ns(folder), folder, sum(sizes)


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
