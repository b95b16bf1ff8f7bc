"""A server of the files in a folder, by HEAD and by GET with ranges, that fails as it is told to."""

import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlparse

FAULT = "fault.txt"
"""A file in the folder that names a fault, one of `FAULTS`, and a part of the path that it befalls."""

FAULTS = ("short", "refused", "missing", "longer", "other length", "endless redirect", "whole for a range", "no ranges")


class _Handler(BaseHTTPRequestHandler):
    folder: Path
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Nobody reads it."""

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def _answer(self, with_body: bool) -> None:
        name = unquote(urlparse(self.path).path).lstrip("/")
        place, fault = self.folder / name, self._fault(name)
        if fault == "refused":
            self._send(403, b"no", with_body)
        elif fault == "endless redirect":
            self._send(302, b"", with_body, {"Location": self.path})
        elif fault == "missing" or not place.is_file():
            self._send(404, b"", with_body)
        else:
            self._file(place.read_bytes(), with_body, fault)

    def _fault(self, name: str) -> str:
        path = self.folder / FAULT
        fault, _, befalls = path.read_text().partition("\n") if path.is_file() else ("", "", "")
        return fault if fault and befalls in name else ""

    def _file(self, body: bytes, with_body: bool, fault: str) -> None:
        wanted = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", ""))
        if fault == "longer":
            body += b"\0" * 100
        if wanted is None or fault in ("whole for a range", "no ranges"):
            ranges = {} if fault == "no ranges" else {"Accept-Ranges": "bytes"}
            self._send(200, body, with_body, ranges, fault)
            return
        size = len(body)
        low = int(wanted[1]) if wanted[1] else max(size - int(wanted[2] or 0), 0)
        high = min(int(wanted[2]), size - 1) if wanted[1] and wanted[2] else size - 1
        about = {"Accept-Ranges": "bytes", "Content-Range": f"bytes {low}-{high}/{size}"}
        self._send(206, body[low : high + 1], with_body, about, fault)

    def _send(
        self, status: int, body: bytes, with_body: bool, about: dict[str, str] | None = None, fault: str = ""
    ) -> None:
        self.send_response(status)
        for name, value in (about or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body) + 7 * (fault == "other length")))
        self.end_headers()
        if with_body:
            self.wfile.write(body[: len(body) // 2] if fault == "short" else body)
        if fault in ("short", "other length"):
            self.close_connection = True


def serve_folder(folder: Path) -> str:
    """Serve a folder until the process ends; returns the address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("_Bound", (_Handler,), {"folder": folder}))
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_address[1]}"
