"""The bytes of a file at an address, as they come; nothing is waited for longer than it takes."""

import re
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

from simlab.errors import TraceError, reason_of
from simlab.traces.fetching.addresses import REDIRECT_HOSTS, WebFile, address, web_file

TIMEOUT_S = 30.0
"""So long a server may say nothing."""

PATIENCE_S, SLOWEST_BYTES_PER_S = 60.0, 1000.0
"""After so long, an answer that comes more slowly than this is given up."""

_CHUNK_BYTES = 1 << 20
_BLOCK_BYTES = 8 << 20
_S3 = '"simlab[s3]"'
_INSTALL = {
    "s3": _S3,
    "s3a": _S3,
    "gs": "gcsfs",
    "gcs": "gcsfs",
    "az": "adlfs",
    "abfs": "adlfs",
    "abfss": "adlfs",
}
"""What brings fsspec and what it needs, by the scheme of an address."""


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


def answer(place: str | Path, name: str, most_bytes: int, start: int = 0) -> Answer:
    """Ask for a file of the trace at an address.

    Args:
        place: the address.
        name: of the file.
        most_bytes: that it may have.
        start: the byte to begin at, if the server can.
    """
    file = web_file(place, name)
    found = _from_fsspec(place, name, start) if file is None else _from_web(file, place, name, most_bytes, start)
    return Answer(found.start, _at_most(found, place, name, most_bytes))


def _at_most(found: Answer, place: str | Path, name: str, most_bytes: int) -> Iterator[bytes]:
    received = found.start
    for piece in found.pieces:
        received += len(piece)
        if received > most_bytes:
            raise _too_long(place, name, most_bytes)
        yield piece


def not_read(place: str | Path, name: str, reason: str, kind: type[TraceError] = TraceError) -> TraceError:
    """The sentence for a file at an address that could not be read."""
    return kind(
        f"{address(place, name)} could not be read ({reason}); check the address and the network, or download the "
        "folder and open it there."
    )


def _from_web(file: WebFile, place: str | Path, name: str, most_bytes: int, start: int) -> Answer:
    request = Request(file.url, headers={"User-Agent": "simlab", "Accept-Encoding": "identity"})
    if file.token:
        request.add_unredirected_header("Authorization", f"Bearer {file.token}")
    if start:
        request.add_header("Range", f"bytes={start}-")
    with _explained(file, place, name):
        came = _opener(file, place, name).open(request, timeout=TIMEOUT_S)
    begun = start if came.status == PARTIAL_CONTENT and _first_byte(came.headers) == start else 0
    said = came.headers.get("Content-Length", "")
    promised = begun + int(said) if said.isdecimal() else None
    if promised is not None and promised > most_bytes:
        came.close()
        raise _too_long(place, name, most_bytes)
    return Answer(begun, _body(came, file, place, name, begun, promised))


def _first_byte(headers: HTTPMessage) -> int | None:
    """The byte that a part of a file begins at, as the server says it."""
    found = re.match(r"bytes (\d{1,18})-", headers.get("Content-Range", ""), re.ASCII)
    return None if found is None else int(found[1])


def _body(
    came: HTTPResponse, file: WebFile, place: str | Path, name: str, start: int, promised: int | None
) -> Iterator[bytes]:
    begun, received = time.monotonic(), 0
    with _explained(file, place, name), came:
        # Not `read`, which waits for all of a piece: a server that drips would never be given up.
        while piece := came.read1(_CHUNK_BYTES):
            received += len(piece)
            seconds = time.monotonic() - begun
            if seconds > PATIENCE_S and received < SLOWEST_BYTES_PER_S * seconds:
                raise not_read(place, name, f"less than {SLOWEST_BYTES_PER_S:g} bytes a second came", CutOffError)
            yield piece
    if promised is not None and start + received < promised:
        said = f"the connection was cut after {start + received} of {promised} bytes"
        raise not_read(place, name, said, CutOffError)


@contextmanager
def _explained(file: WebFile, place: str | Path, name: str) -> Iterator[None]:
    """Say in one sentence why a server gives nothing."""
    try:
        yield
    except (OSError, HTTPException, ValueError) as error:
        refused = isinstance(error, HTTPError) and error.code < HTTPStatus.INTERNAL_SERVER_ERROR
        raise not_read(place, name, _reason(error, file), TraceError if refused else CutOffError) from error


def _too_long(place: str | Path, name: str, most_bytes: int) -> TraceError:
    return TraceError(
        f"{address(place, name)} sends more than the {most_bytes} bytes that it may have; it was changed or is of "
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

    def __init__(self, file: WebFile, place: str | Path, name: str) -> None:
        self._file, self._place, self._name = file, place, name

    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> Request | None:
        if not self._file.may_be_at(newurl, req.full_url):
            there = urlsplit(newurl)
            raise TraceError(
                f"{address(self._place, self._name)} sends on to {there.scheme}://{there.netloc}, which is not "
                f"followed; allow it with {REDIRECT_HOSTS}={there.netloc} (never from https to http), or download the "
                "folder and open it there."
            )
        followed = super().redirect_request(req, fp, code, msg, headers, newurl)
        if followed is not None and self._file.token and self._file.is_own(newurl):
            followed.add_unredirected_header("Authorization", f"Bearer {self._file.token}")
        return followed


def _opener(file: WebFile, place: str | Path, name: str) -> OpenerDirector:
    """What opens http and https and nothing else, through the proxies of the environment."""
    opener = OpenerDirector()
    known = (ProxyHandler(), HTTPHandler(), HTTPSHandler(), UnknownHandler())
    for handler in (*known, HTTPDefaultErrorHandler(), HTTPErrorProcessor(), _AllowedRedirects(file, place, name)):
        opener.add_handler(handler)
    return opener


def _from_fsspec(place: str | Path, name: str, start: int) -> Answer:
    where = address(place, name)
    scheme = where.partition("://")[0].lower()
    install = _INSTALL.get(scheme, "fsspec")
    try:
        # It is optional, and only these addresses need it.
        import fsspec  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise not_read(place, name, f"{scheme}:// needs packages: pip install {install}") from error
    with _storage_explained(place, name, install):
        system, path = fsspec.url_to_fs(where)
        file = cast(IO[bytes], system.open(path, "rb", block_size=_BLOCK_BYTES))
        begun = file.seek(start) if start and file.seekable() else 0
    return Answer(begun, _read(file, place, name, install))


def _read(file: IO[bytes], place: str | Path, name: str, install: str) -> Iterator[bytes]:
    with _storage_explained(place, name, install), file:
        while piece := file.read(_CHUNK_BYTES):
            yield piece


@contextmanager
def _storage_explained(place: str | Path, name: str, install: str) -> Iterator[None]:
    """Say in one sentence why a storage gives nothing; each kind has its own failures."""
    try:
        yield
    except FileNotFoundError as error:
        raise not_read(place, name, "there is no such file") from error
    except PermissionError as error:
        raise not_read(place, name, f"no permission: {_first_line(error)}") from error
    except (ImportError, ValueError) as error:
        needed = f"; it needs: pip install {install}" if isinstance(error, ImportError) else ""
        raise not_read(place, name, f"{_first_line(error)}{needed}") from error
    except Exception as error:
        raise not_read(place, name, _first_line(error), CutOffError) from error
