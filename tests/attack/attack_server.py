"""A server of the files in a folder that fails as it is told to."""

import contextlib
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from urllib.parse import unquote, urlparse

from http_servers import answering

FAULT = "fault.txt"
"""A file in the folder that names a fault, one of `FAULTS`, and a part of the path that it befalls."""

_LENGTHS: dict[str, Callable[[int], str]] = {
    "other length": lambda size: str(size + 7),
    "a length of 5,000 digits": lambda _: "9" * 5000,
    "a length below zero": lambda _: "-1",
    "a length in words": lambda _: "many",
    "a length beyond any disk": lambda _: str(2**62),
}
"""What is said of the bytes that follow, where that is not so."""

FAULTS = ("short", "refused", "missing", "longer", "endless redirect", "endless", "a byte a connection", *_LENGTHS)


class _Handler(BaseHTTPRequestHandler):
    folder: Path
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        name = unquote(urlparse(self.path).path).lstrip("/")
        path, told = self.folder / name, self.folder / FAULT
        fault, _, befalls = told.read_text().partition("\n") if told.is_file() else ("", "", "")
        fault = fault if befalls in name else ""
        is_there = path.is_file() and fault != "missing"
        statuses = {"refused": 403, "endless redirect": 302}
        self.send_response(statuses.get(fault, 200 if is_there else 404))
        body = path.read_bytes() if is_there and fault not in statuses else b""
        body += bytes(100) if fault == "longer" else b""
        if fault == "endless redirect":
            self.send_header("Location", self.path)
        if fault != "endless":
            self.send_header("Content-Length", _LENGTHS.get(fault, str)(len(body)))
        self.end_headers()
        sent = {"short": len(body) // 2, "a byte a connection": 1}
        with contextlib.suppress(ConnectionError):
            self.wfile.write(body[: sent.get(fault, len(body))])
            while fault == "endless":
                self.wfile.write(bytes(1 << 16))
        self.close_connection = fault in ("endless", *sent, *_LENGTHS)


def serving_folder(folder: Path) -> contextlib.AbstractContextManager[str]:
    """Serve a folder until the block ends; gives the address."""
    return answering(_Handler, folder=folder)
