"""The bytes of a file at an address, as they come; nothing is waited for longer than it takes."""

import time
from collections.abc import Iterator
from http.client import HTTPException, HTTPMessage
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

from simlab.errors import TraceError
from simlab.traces.fetching.addresses import REDIRECT_HOSTS, WebFile, address, web_file

TIMEOUT_S = 30.0
"""So long a server may say nothing."""

PATIENCE_S, SLOWEST_BYTES_PER_S = 60.0, 1000.0
"""After so long, an answer that comes more slowly than this is given up."""

_CHUNK_BYTES = 1 << 20
_PACKAGES = {
    "s3": "s3fs",
    "s3a": "s3fs",
    "gs": "gcsfs",
    "gcs": "gcsfs",
    "az": "adlfs",
    "abfs": "adlfs",
    "abfss": "adlfs",
}


def pieces(place: str | Path, name: str, most_bytes: int) -> Iterator[bytes]:
    """A file of the trace at an address, piece by piece.

    Args:
        place: the address.
        name: of the file.
        most_bytes: that are taken.

    Raises:
        TraceError: it cannot be read, sends on to a host that is not allowed, is cut, or is longer.
    """
    file = web_file(place, name)
    received = 0
    for piece in _from_fsspec(place, name) if file is None else _from_web(file, place, name, most_bytes):
        received += len(piece)
        if received > most_bytes:
            raise _too_long(place, name, most_bytes)
        yield piece


def not_read(place: str | Path, name: str, reason: str) -> TraceError:
    """The sentence for a file at an address that could not be read."""
    return TraceError(
        f"{address(place, name)} could not be read ({reason}); check the address and the network, or download the "
        "folder and open it there."
    )


def _from_web(file: WebFile, place: str | Path, name: str, most_bytes: int) -> Iterator[bytes]:
    request = Request(file.url, headers={"User-Agent": "simlab", "Accept-Encoding": "identity"})
    if file.token:
        request.add_unredirected_header("Authorization", f"Bearer {file.token}")
    try:
        begun, received = time.monotonic(), 0
        with _opener(file, place, name).open(request, timeout=TIMEOUT_S) as answer:
            said = answer.headers.get("Content-Length", "")
            promised = int(said) if said.isdecimal() else None
            if promised is not None and promised > most_bytes:
                raise _too_long(place, name, most_bytes)
            # Not `read`, which waits for all of a piece: a server that drips would never be given up.
            while piece := answer.read1(_CHUNK_BYTES):
                received += len(piece)
                seconds = time.monotonic() - begun
                if seconds > PATIENCE_S and received < SLOWEST_BYTES_PER_S * seconds:
                    raise not_read(place, name, f"less than {SLOWEST_BYTES_PER_S:g} bytes a second came")
                yield piece
    except (OSError, HTTPException, ValueError) as error:
        raise not_read(place, name, _reason(error, file)) from error
    if promised is not None and received < promised:
        raise not_read(place, name, f"the connection was cut after {received} of {promised} bytes")


def _too_long(place: str | Path, name: str, most_bytes: int) -> TraceError:
    return TraceError(
        f"{address(place, name)} sends more than the {most_bytes} bytes that it may have; it was changed or is of "
        "another trace. Ask who published it, or record again."
    )


def _reason(error: Exception, file: WebFile) -> str:
    if isinstance(error, HTTPError):
        error.close()
        login = "; log in with `hf auth login` or set HF_TOKEN if it is private" if file.others else ""
        return f"the server answered {error.code}{login if error.code in (401, 403) else ''}"
    cause = error.reason if isinstance(error, URLError) and isinstance(error.reason, Exception) else error
    if isinstance(cause, TimeoutError):
        return f"no answer within {TIMEOUT_S:g} seconds"
    lines = str(cause).strip().splitlines() or [type(cause).__name__]
    return lines[0][:200]


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


def _from_fsspec(place: str | Path, name: str) -> Iterator[bytes]:
    where = address(place, name)
    scheme = where.partition("://")[0].lower()
    package = f" {_PACKAGES[scheme]}" if scheme in _PACKAGES else ""
    try:
        # It is optional, and only these addresses need it.
        import fsspec  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise not_read(place, name, f"{scheme}:// needs packages: pip install fsspec{package}") from error
    try:
        with cast(IO[bytes], fsspec.open(where, "rb")) as file:
            while piece := file.read(_CHUNK_BYTES):
                yield piece
    except Exception as error:  # each kind of storage has its own
        needed = f"; it needs: pip install{package}" if isinstance(error, ImportError) and package else ""
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise not_read(place, name, f"{lines[0][:200]}{needed}") from error
