"""Rows of a draft set that were decoded and checked once, in files beside the trace that are mapped into memory.

They lie in ``.decoded`` in the trace's folder or, where that cannot be written, in the cache: for each shard ``.rows``
with the arrays one after the other, and ``.stamp``, which says what they are of and is signed with a number of the
user's own cache: who may write into the folder of a trace cannot have rows of theirs read for those of its files. They
are no part of the trace, may be deleted at any time, and are made again when the shard, the manifest's words on it, the
user or this format is another.
"""

import contextlib
import hmac
import mmap
import os
import shutil
import sys
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import IO, TypeVar

import numpy as np

from simlab.arrays import Floats, Ints
from simlab.errors import SimlabError
from simlab.ids import content_digest
from simlab.recorded import DraftRows
from simlab.traces.fetching.store import alone, cache_dir, stamp_of, store_dir
from simlab.traces.format.files import SEQUENCES, draft_file, local_folder, write_beside
from simlab.traces.format.manifest_entries import as_json
from simlab.traces.format.shards import Shard, found_file, read_draft_rows
from simlab.workers.threads import num_cores

# Work done ahead in threads: a few pieces at once, results in order, memory bounded by the pieces' weights.


Work = TypeVar("Work")
Value = TypeVar("Value")

_MOST_THREADS = 4
"""More do not read faster than one replay takes in, and hold more in memory."""


def work_ahead(pieces: Iterable[tuple[Work, int]], work: Callable[[Work], Value], most_weight: int) -> Generator[Value]:
    """What work makes of each piece, in their order, while whoever takes it is still at the one before.

    Args:
        pieces: each with its weight. A single piece is worked on when it is asked for, without a thread.
        work: called in threads, for pieces that may never be asked for. What it raises is raised where its value
            would stand.
        most_weight: of the pieces that were begun and not yet taken, together, but for one that is heavier alone.
    """
    left = iter(pieces)
    first = list(islice(left, 2))
    if len(first) < 2:
        yield from (work(piece) for piece, _ in first)
        return
    threads = min(num_cores(), _MOST_THREADS)
    begun: deque[tuple[Future[Value], int]] = deque()
    pool = ThreadPoolExecutor(threads)
    try:
        for piece, weight in chain(first, left):
            while begun and (len(begun) > threads or weight + sum(size for _, size in begun) > most_weight):
                yield begun.popleft()[0].result()
            begun.append((pool.submit(work, piece), weight))
        while begun:
            yield begun.popleft()[0].result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


FOLDER = ".decoded"
SWITCH = "SIMLAB_DECODED"
"""The environment variable that, as ``off``, has every shard decoded each time."""

_VERSION = 2
"""Of the layout, and of what rows are checked for: rows of another version are not used."""

_SECRET, _SECRET_BYTES = "decoded.key", 32
"""In the cache: what this user's stamps are signed with."""

_NUMBER_BYTES = 4
_ROW_ARRAYS = 3
_LEAST_BYTES = 1 << 18
"""Rows that take less are decoded in less time than it takes to find a file."""

_FREE_BYTES = 1 << 30
"""So much of a disk stays free."""

_PACKAGED = Path(__file__).resolve().parent
_NO_BACKUP = "Signature: 8a477f597d28d172789f06886806bc55\n# Decoded rows of simlab, safe to delete.\n"


@dataclass(frozen=True, slots=True)
class _DecodedShard:
    """Where the decoded rows of one shard of a draft set are looked for, and what they must be of.

    Attributes:
        key: a content id of all that the rows depend on.
        folders: where they may lie, the best first.
        name: of the files, without their ends.
        num_roots: rows that the shard has.
        depth: of the draft set.
    """

    key: str
    folders: tuple[Path, ...]
    name: str
    num_roots: int
    depth: int

    def mapped(self, shard: Path) -> DraftRows | None:
        """The rows, read-only and read from the disk as they are used; None where there are none of this shard.

        Args:
            shard: the Parquet file. It is not read: its size, times and inode must be those that the stamp has.
        """
        for folder in self.folders:
            # Files that are not as they were written are left alone, whatever they are.
            with contextlib.suppress(OSError, ValueError, SimlabError), self._open(folder) as file:
                if self._is_of(shard, file, folder):
                    return self._map(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        return None

    def keep(self, rows: DraftRows, shard: Path, about: os.stat_result) -> None:
        """Write the rows for whoever reads this shard next; without a place or room for them, nothing.

        Args:
            rows: as they were decoded and checked.
            shard: the Parquet file.
            about: of that file, from before it was read.
        """
        arrays = _arrays(rows)
        num_bytes = sum(array.nbytes for array in arrays)
        if num_bytes < _LEAST_BYTES:
            return
        for folder in self.folders:
            with contextlib.suppress(OSError, SimlabError):
                if self._write(folder, arrays, num_bytes, f"{self.key} {stamp_of(about)}"):
                    return

    def num_bytes(self, shard: Path) -> int:
        """Bytes of the files if they are there and of this shard, else 0."""
        for folder in self.folders:
            with contextlib.suppress(OSError, SimlabError), self._open(folder) as file:
                if self._is_of(shard, file, folder):
                    return os.fstat(file.fileno()).st_size
        return 0

    def _rows(self, folder: Path) -> Path:
        return folder / f"{self.name}.rows"

    def _open(self, folder: Path) -> IO[bytes]:
        """The file of the rows, where it is none of somebody else's choice: no link is followed, no pipe waited for."""
        return open(self._rows(folder), "rb", opener=_unlinked)

    def _is_of(self, shard: Path, rows: IO[bytes], folder: Path) -> bool:
        """Whether the stamp has the key, and both files as they are now."""
        now = _signed(f"{self.key} {stamp_of(shard.stat())} {stamp_of(os.fstat(rows.fileno()))}")
        with open(folder / f"{self.name}.stamp", "rb", opener=_unlinked) as file:
            return hmac.compare_digest(file.read(len(now) + 1), now)

    def _map(self, numbers: mmap.mmap) -> DraftRows:
        shape = (self.num_roots, self.depth)
        size = self.num_roots * self.depth
        listed = (len(numbers) // _NUMBER_BYTES - _ROW_ARRAYS * size) // 2
        at = np.cumsum([0, size, size, size, listed]) * _NUMBER_BYTES
        counts, ranks, ids = (
            np.frombuffer(numbers, np.int32, num, start)
            for num, start in ((size, at[0]), (size, at[1]), (listed, at[3]))
        )
        entropies, log_probs = (
            np.frombuffer(numbers, np.float32, num, start) for num, start in ((size, at[2]), (listed, at[4]))
        )
        return DraftRows(ids, log_probs, counts.reshape(shape), ranks.reshape(shape), entropies.reshape(shape))

    def _write(self, folder: Path, arrays: tuple[Ints | Floats, ...], num_bytes: int, of: str) -> bool:
        """Whether the rows are there now; the stamp is written last, and only if these rows are still in place."""
        stamp = folder / f"{self.name}.stamp"
        if folder.is_symlink() or (stamp.exists() and stamp.stat().st_uid != os.getuid()):
            return False
        folder.mkdir(parents=True, exist_ok=True)
        if shutil.disk_usage(folder).free < num_bytes + _FREE_BYTES:
            return False
        _mark(folder)
        inodes: list[int] = []

        def write(file: IO[bytes]) -> None:
            inodes.append(os.fstat(file.fileno()).st_ino)
            for array in arrays:
                file.write(array.data)

        write_beside(self._rows(folder), write)
        about = self._rows(folder).lstat()
        if [about.st_ino] == inodes:
            signed = _signed(f"{of} {stamp_of(about)}")
            write_beside(stamp, lambda file: file.write(signed))
        return True


def _signed(words: str) -> bytes:
    """The line of a stamp: its words, and what only this user can have made of them.

    Raises:
        OSError: this user's cache cannot be written.
    """
    return f"{words} {hmac.digest(_secret(), words.encode(), 'sha256').hex()}\n".encode()


def _secret() -> bytes:
    path = cache_dir() / _SECRET
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with alone(path.with_name(f".{_SECRET}.lock")):
            if not path.exists():
                write_beside(path, _write_secret)
    with open(path, "rb", opener=_unlinked) as file:
        secret = file.read(_SECRET_BYTES)
        # Whoever else could have written it could sign with it.
        if len(secret) < _SECRET_BYTES or os.fstat(file.fileno()).st_uid != os.getuid():
            raise OSError(f"{path} is no key of this user")
    return secret


def _write_secret(file: IO[bytes]) -> None:
    os.fchmod(file.fileno(), 0o600)
    file.write(os.urandom(_SECRET_BYTES))


def kept_draft_rows(shard: Shard, draft: str) -> DraftRows:
    """What a replay reads of a draft set, for all texts of a shard: mapped if it was kept, else decoded and kept."""
    decoded = _decoded_shard(shard, draft)
    if decoded is None:
        return read_draft_rows(shard, draft)
    path, about = found_file(shard.location, shard.manifest, draft_file(draft, shard.number))
    rows = decoded.mapped(path)
    if rows is None:
        rows = read_draft_rows(shard, draft)
        decoded.keep(rows, path, about)
    return rows


def decoded_rows(shard: Shard, draft: str) -> DraftRows | None:
    """The rows of a shard that are kept decoded, mapped; None where none are, and none are made.

    Raises:
        TraceError: the file of the shard is missing.
    """
    decoded = _decoded_shard(shard, draft)
    file = draft_file(draft, shard.number)
    return None if decoded is None else decoded.mapped(found_file(shard.location, shard.manifest, file)[0])


def decoded_bytes(shard: Shard, draft: str) -> int:
    """Bytes of the rows of a shard that are kept decoded.

    Raises:
        TraceError: the file of the shard is missing.
    """
    decoded = _decoded_shard(shard, draft)
    file = draft_file(draft, shard.number)
    return 0 if decoded is None else decoded.num_bytes(found_file(shard.location, shard.manifest, file)[0])


def _decoded_shard(shard: Shard, draft: str) -> _DecodedShard | None:
    """Where the decoded rows of a shard are, or would be; None where none are kept."""
    manifest, num_roots, name = shard.manifest, sum(shard.num_roots), draft_file(draft, shard.number)
    contents = manifest.contents
    if contents is None or name not in contents.files or num_roots == 0 or os.environ.get(SWITCH) == "off":
        return None
    sha256, draft_set = contents.files[name].sha256, manifest.draft_sets[draft]
    facts = {
        "version": _VERSION,
        "byte_order": sys.byteorder,
        "sha256": sha256,
        "sequences": contents.files[SEQUENCES].sha256,
        "shards": list(contents.shards),
        "shard": shard.number,
        "draft_set": as_json(draft_set),
        "vocab_size": manifest.vocab_size,
    }
    key = content_digest(facts)
    # Counted, and removed, with what was fetched.
    in_cache = store_dir() / sha256 / "decoded"
    folder = local_folder(shard.location)
    is_beside = folder is not None and not folder.is_relative_to(_PACKAGED)
    folders = (folder / FOLDER, in_cache) if is_beside and folder is not None else (in_cache,)
    return _DecodedShard(key, folders, Path(name).stem, num_roots, draft_set.depth)


def _unlinked(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)


def _arrays(rows: DraftRows) -> tuple[Ints | Floats, ...]:
    """What is written, in the order of the file."""
    assert rows.entropies is not None
    ints = [np.ascontiguousarray(array) for array in (rows.counts, rows.true_ranks, rows.ids)]
    floats = [np.ascontiguousarray(array) for array in (rows.entropies, rows.log_probs)]
    return ints[0], ints[1], floats[0], ints[2], floats[1]


def _mark(folder: Path) -> None:
    """Keep a folder out of backups and out of version control."""
    for name, text in (("CACHEDIR.TAG", _NO_BACKUP), (".gitignore", "*\n")):
        if not (folder / name).exists():
            _write_text(folder / name, text)


def _write_text(path: Path, text: str) -> None:
    write_beside(path, lambda file: file.write(text.encode()))
