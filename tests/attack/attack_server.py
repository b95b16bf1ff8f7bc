"""A server of the files in a folder that fails as it is told to."""

import contextlib
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from urllib.parse import unquote, urlparse

from http_servers import answering

FAULT = "fault.txt"
"""A file in the folder that names a fault, one of `FAULTS`, and a part of the path that it befalls."""

LENGTHS: dict[str, Callable[[int], str]] = {
    "other length": lambda size: str(size + 7),
    "a length of 5,000 digits": lambda _: "9" * 5000,
    "a length below zero": lambda _: "-1",
    "a length in words": lambda _: "many",
    "a length beyond any disk": lambda _: str(2**62),
}
"""What is said of the bytes that follow, where that is not so."""

FAULTS = ("short", "refused", "missing", "longer", "endless redirect", "endless", "a byte a connection", *LENGTHS)


class _Handler(BaseHTTPRequestHandler):
    folder: Path
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        name = unquote(urlparse(self.path).path).lstrip("/")
        path, fault = self.folder / name, self._fault(name)
        if fault == "refused":
            self._send(403, b"no")
        elif fault == "endless redirect":
            self._send(302, b"", location=self.path)
        elif fault == "missing" or not path.is_file():
            self._send(404, b"")
        else:
            self._send(200, path.read_bytes(), fault)

    def _fault(self, name: str) -> str:
        path = self.folder / FAULT
        fault, _, befalls = path.read_text().partition("\n") if path.is_file() else ("", "", "")
        return fault if fault and befalls in name else ""

    def _send(self, status: int, body: bytes, fault: str = "", location: str = "") -> None:
        self.send_response(status)
        if location:
            self.send_header("Location", location)
        if fault == "longer":
            body += b"\0" * 100
        if fault != "endless":
            self.send_header("Content-Length", LENGTHS.get(fault, str)(len(body)))
        self.end_headers()
        sent = {"short": len(body) // 2, "a byte a connection": 1}
        with contextlib.suppress(ConnectionError):
            self.wfile.write(body[: sent.get(fault, len(body))])
            while fault == "endless":
                self.wfile.write(bytes(1 << 16))
        self.close_connection = fault in ("short", "endless", "a byte a connection", *LENGTHS)


def serving_folder(folder: Path) -> contextlib.AbstractContextManager[str]:
    """Serve a folder until the block ends; gives the address."""
    return answering(_Handler, folder=folder)
