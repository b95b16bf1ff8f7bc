"""Files of traces at addresses: fetched once, checked against the manifest, and kept in the user's cache.

A file lies in ``traces/SHA256/NAME`` of the cache, so two traces with the same file share it. The manifest is fetched
each time, since it says which digests the others have. How much is kept is bounded; see `simlab.traces.fetching.store`.
"""

import hashlib
import os
import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from http.client import PARTIAL_CONTENT, HTTPException, HTTPMessage, HTTPResponse
from pathlib import Path
from typing import IO, cast
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import (
    HTTPDefaultErrorHandler,
    HTTPErrorProcessor,
    HTTPHandler,
    HTTPRedirectHandler,
    HTTPSHandler,
    OpenerDirector,
    ProxyHandler,
    Request,
    UnknownHandler,
)

from tqdm import tqdm

from simlab.errors import TraceError, reason_of
from simlab.traces.fetching.addresses import REDIRECT_HOSTS, WebFile, address, packages_for, web_file
from simlab.traces.fetching.store import HeldFile, alone, held, is_intact, lock_of, make_room, store_dir

# The bytes of a file at an address, as they come; nothing is waited for longer than it takes.


TIMEOUT_S = 30.0
"""So long a server may say nothing."""

PATIENCE_S, SLOWEST_BYTES_PER_S = 60.0, 1000.0
"""After so long, a file that comes more slowly than this is given up, over all connections together."""

_CHUNK_BYTES = 1 << 20
_BLOCK_BYTES = 8 << 20


class CutOffError(TraceError):
    """The network failed: what came so far can be kept, and the rest be asked for."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A file that begins to come.

    Attributes:
        start: the byte that it begins at; 0 where the rest alone cannot be had.
        pieces: of it, in order.
    """

    start: int
    pieces: Iterator[bytes]


def answer(location: str | Path, name: str, most_bytes: int, start: int = 0) -> Answer:
    """Ask for a file of the trace at an address.

    Args:
        location: the address.
        name: of the file.
        most_bytes: that it may have.
        start: the byte to begin at, if the server can.
    """
    file = web_file(location, name)
    came = _from_fsspec(location, name, start) if file is None else _from_web(file, location, name, most_bytes, start)
    return Answer(came.start, _at_most(came, location, name, most_bytes))


def _at_most(came: Answer, location: str | Path, name: str, most_bytes: int) -> Iterator[bytes]:
    received = came.start
    for piece in came.pieces:
        received += len(piece)
        if received > most_bytes:
            raise _too_long(location, name, most_bytes)
        yield piece


def not_read(location: str | Path, name: str, reason: str, kind: type[TraceError] = TraceError) -> TraceError:
    """The sentence for a file at an address that could not be read."""
    return kind(
        f"{address(location, name)} could not be read ({reason}); check the address and the network, or download the "
        "folder and open it there."
    )


def _from_web(file: WebFile, location: str | Path, name: str, most_bytes: int, start: int) -> Answer:
    request = Request(file.url, headers={"User-Agent": "simlab", "Accept-Encoding": "identity"})
    if file.token:
        request.add_unredirected_header("Authorization", f"Bearer {file.token}")
    if start:
        request.add_header("Range", f"bytes={start}-")
    with _explained(file, location, name):
        came = _opener(file, location, name).open(request, timeout=TIMEOUT_S)
    begun = start if came.status == PARTIAL_CONTENT and _first_byte(came.headers) == start else 0
    length = num_promised(came)
    promised = None if length is None else begun + length
    if promised is not None and promised > most_bytes:
        came.close()
        raise _too_long(location, name, most_bytes)
    return Answer(begun, _body(came, file, location, name, begun, promised))


def num_promised(came: HTTPResponse) -> int | None:
    """The bytes that an answer says it has; None where it does not say so in a number that can be one."""
    length = came.headers.get("Content-Length", "")
    return int(length) if re.fullmatch(r"\d{1,18}", length, re.ASCII) else None


def _first_byte(headers: HTTPMessage) -> int | None:
    """The byte that a part of a file begins at, as the server says it."""
    match = re.match(r"bytes (\d{1,18})-", headers.get("Content-Range", ""), re.ASCII)
    return None if match is None else int(match[1])


def _body(
    came: HTTPResponse, file: WebFile, location: str | Path, name: str, start: int, promised: int | None
) -> Iterator[bytes]:
    begun, received = time.monotonic(), 0
    with _explained(file, location, name), came:
        # Not `read`, which waits for all of a piece: a server that drips would never be given up.
        while piece := came.read1(_CHUNK_BYTES):
            received += len(piece)
            if _is_too_slow(received, begun):
                raise _too_slow(location, name)
            yield piece
    if promised is not None and start + received < promised:
        reason = f"the connection was cut after {start + received} of {promised} bytes"
        raise not_read(location, name, reason, CutOffError)


def _is_too_slow(received: int, begun: float) -> bool:
    seconds = time.monotonic() - begun
    return seconds > PATIENCE_S and received < SLOWEST_BYTES_PER_S * seconds


def _too_slow(location: str | Path, name: str) -> TraceError:
    return not_read(location, name, f"less than {SLOWEST_BYTES_PER_S:g} bytes a second came", CutOffError)


@contextmanager
def _explained(file: WebFile, location: str | Path, name: str) -> Iterator[None]:
    """Say in one sentence why a server gives nothing."""
    try:
        yield
    except (OSError, HTTPException, ValueError) as error:
        refused = isinstance(error, HTTPError) and error.code < HTTPStatus.INTERNAL_SERVER_ERROR
        raise not_read(location, name, _reason(error, file), TraceError if refused else CutOffError) from error


def _too_long(location: str | Path, name: str, most_bytes: int) -> TraceError:
    return TraceError(
        f"{address(location, name)} sends more than the {most_bytes} bytes that it may have; it was changed or is of "
        "another trace. Ask who published it, or record again."
    )


def _reason(error: Exception, file: WebFile) -> str:
    if isinstance(error, HTTPError):
        error.close()
        return _refusal(error.code, bool(file.others))
    cause = error.reason if isinstance(error, URLError) and isinstance(error.reason, Exception) else error
    if isinstance(cause, TimeoutError):
        return f"no answer within {TIMEOUT_S:g} seconds"
    return _first_line(cause)


def _refusal(code: int, is_hub: bool) -> str:
    """What a server's number means."""
    login = "; log in with `hf auth login` or set HF_TOKEN if it is private" if is_hub else ""
    meant = {401: "no permission: ", 403: "no permission: ", 404: "there is no such file: "}.get(code, "")
    return f"{meant}the server answered {code}{login if code in (401, 403) else ''}"


def _first_line(error: BaseException) -> str:
    return reason_of(error)[:200]


class _AllowedRedirects(HTTPRedirectHandler):
    """Follows to hosts that may answer, and shows the token to the address's own host alone."""

    def __init__(self, file: WebFile, location: str | Path, name: str) -> None:
        self._file, self._location, self._name = file, location, name

    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> Request | None:
        if not self._file.may_be_at(newurl, req.full_url):
            target = urlsplit(newurl)
            raise TraceError(
                f"{address(self._location, self._name)} sends on to {target.scheme}://{target.netloc}, which is not "
                f"followed; allow it with {REDIRECT_HOSTS}={target.netloc} (never from https to http), or download the "
                "folder and open it there."
            )
        followed = super().redirect_request(req, fp, code, msg, headers, newurl)
        if followed is not None and self._file.token and self._file.is_own(newurl):
            followed.add_unredirected_header("Authorization", f"Bearer {self._file.token}")
        return followed


def _opener(file: WebFile, location: str | Path, name: str) -> OpenerDirector:
    """What opens http and https and nothing else, through the proxies of the environment."""
    opener = OpenerDirector()
    known = (ProxyHandler(), HTTPHandler(), HTTPSHandler(), UnknownHandler())
    for handler in (*known, HTTPDefaultErrorHandler(), HTTPErrorProcessor(), _AllowedRedirects(file, location, name)):
        opener.add_handler(handler)
    return opener


def _from_fsspec(location: str | Path, name: str, start: int) -> Answer:
    where = address(location, name)
    scheme = where.partition("://")[0].lower()
    install = packages_for(where)
    try:
        # It is optional, and only these addresses need it.
        import fsspec  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise not_read(location, name, f"{scheme}:// needs packages: pip install {install}") from error
    with _storage_explained(location, name, install):
        system, path = fsspec.url_to_fs(where)
        file = cast(IO[bytes], system.open(path, "rb", block_size=_BLOCK_BYTES))
        begun = file.seek(start) if start and file.seekable() else 0
    return Answer(begun, _read(file, location, name, install))


def _read(file: IO[bytes], location: str | Path, name: str, install: str) -> Iterator[bytes]:
    with _storage_explained(location, name, install), file:
        while piece := file.read(_CHUNK_BYTES):
            yield piece


@contextmanager
def _storage_explained(location: str | Path, name: str, install: str) -> Iterator[None]:
    """Say in one sentence why a storage gives nothing; each kind has its own failures."""
    try:
        yield
    except FileNotFoundError as error:
        raise not_read(location, name, "there is no such file") from error
    except PermissionError as error:
        raise not_read(location, name, f"no permission: {_first_line(error)}") from error
    except (ImportError, ValueError) as error:
        needed = f"; it needs: pip install {install}" if isinstance(error, ImportError) else ""
        raise not_read(location, name, f"{_first_line(error)}{needed}") from error
    except Exception as error:
        raise not_read(location, name, _first_line(error), CutOffError) from error


MOST_MANIFEST_BYTES = 1 << 26
"""A manifest of 100,000 files has less."""

PAUSE_S = 0.5
"""Before the rest is asked for where a connection was cut."""


class NotAsListedError(TraceError):
    """A file at an address that has another length or digest than what lists it says."""


def fetched_text(location: str | Path, name: str) -> str:
    """A small text file at an address, asked for each time.

    Raises:
        TraceError: it cannot be read.
    """
    try:
        return b"".join(answer(location, name, MOST_MANIFEST_BYTES).pieces).decode()
    except UnicodeDecodeError as error:
        raise not_read(location, name, f"it is no text: {error.reason}") from error


def fetched_file(location: str | Path, name: str, num_bytes: int, sha256: str) -> HeldFile:
    """A file of the trace at an address, in the cache; fetched if it is not there yet.

    Args:
        location: the address.
        name: of the file.
        num_bytes: of the file, as the manifest has it.
        sha256: the same.

    Raises:
        TraceError: it cannot be read or kept, or is not what the manifest says (`NotAsListedError`); then it is not in
            the cache.
    """
    if not re.fullmatch(r"[0-9a-f]{64}", sha256):
        raise TraceError(f"the manifest of {location} lists no sha256 of {name}: it is damaged. Copy the trace again.")
    path = store_dir() / sha256 / name
    try:
        file = held(path)
        if not is_intact(file, sha256):
            make_room(num_bytes)
            with alone(lock_of(path.parent)):
                _fetch_unless_there(location, name, num_bytes, sha256, path)
        return file
    except OSError as error:
        raise TraceError(
            f"{address(location, name)} could not be kept in {path.parent} ({error.strerror or error}); free some room "
            "or set SIMLAB_CACHE to another folder, then run again."
        ) from error


def _fetch_unless_there(location: str | Path, name: str, num_bytes: int, sha256: str, path: Path) -> None:
    """Fetch a file that another process has not fetched meanwhile."""
    if is_intact(path, sha256):
        return
    if path.is_file():
        tqdm.write(f"{path} is not as it was fetched; fetching it again", file=sys.stderr)
        path.unlink()
    _fetch(location, name, num_bytes, sha256, path)
    if not is_intact(path, sha256):
        raise TraceError(f"{path} is not read as it was written; check the disk, or set SIMLAB_CACHE.")


def _fetch(location: str | Path, name: str, num_bytes: int, sha256: str, path: Path) -> None:
    """Write a file beside its place, and rename it once it was checked.

    Where the network fails, what came is kept, and the rest is asked for: at once if anything came, else in the next
    run.
    """
    part = path.with_name(f".{name}.part")
    begun, received = time.monotonic(), 0
    try:
        while True:
            before = part.stat().st_size if part.exists() else 0
            try:
                digest = _receive(location, name, num_bytes, part)
            except CutOffError:
                if part.stat().st_size <= before:
                    raise
                received += part.stat().st_size - before
                if _is_too_slow(received, begun):
                    raise _too_slow(location, name) from None
                time.sleep(PAUSE_S)
                continue
            if digest == sha256:
                part.replace(path)
                return
            part.unlink()
            if before == 0:
                raise NotAsListedError(
                    f"{address(location, name)} is damaged or was changed: its sha256 is not the manifest's. Run "
                    "again, ask who published it, or record again."
                )
            # What was left of an earlier fetch may have been of another file.
    except (TraceError, OSError) as error:
        if not isinstance(error, CutOffError) or part.stat().st_size == 0:
            part.unlink(missing_ok=True)
        raise


def _receive(location: str | Path, name: str, num_bytes: int, part: Path) -> str:
    """Fetch what a part lacks; the sha256 of the whole."""
    with part.open("a+b") as file:
        if file.tell() > num_bytes:
            file.truncate(0)
        size = file.seek(0, os.SEEK_END)
        if size < num_bytes or num_bytes == 0:
            coming = answer(location, name, num_bytes, size)
            if coming.start != size:
                file.truncate(0)
            size = _append(coming, file, name, num_bytes)
        if size != num_bytes:
            raise NotAsListedError(
                f"{address(location, name)} has {size} bytes; the manifest says {num_bytes}. It is cut short or of "
                "another trace; run again, ask who published it, or record again."
            )
        file.seek(0)
        return hashlib.file_digest(file, "sha256").hexdigest()


def _append(coming: Answer, file: IO[bytes], name: str, num_bytes: int) -> int:
    """Write what comes at the end of a file; its size then."""
    size = coming.start
    bar = tqdm(total=num_bytes, initial=size, desc=f"fetching {name}", unit="B", unit_scale=True, delay=2, disable=None)
    with bar:
        for piece in coming.pieces:
            file.write(piece)
            size += len(piece)
            bar.update(len(piece))
    file.flush()
    os.fsync(file.fileno())
    return size
