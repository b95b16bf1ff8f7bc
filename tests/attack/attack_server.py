"""A server of the files in a folder that fails as it is told to."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlparse

FAULT = "fault.txt"
"""A file in the folder that names a fault, one of `FAULTS`, and a part of the path that it befalls."""

FAULTS = ("short", "refused", "missing", "longer", "other length", "endless redirect")


class _Handler(BaseHTTPRequestHandler):
    folder: Path
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Nobody reads it."""

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
        self.send_header("Content-Length", str(len(body) + 7 * (fault == "other length")))
        self.end_headers()
        self.wfile.write(body[: len(body) // 2] if fault == "short" else body)
        if fault in ("short", "other length"):
            self.close_connection = True


def serve_folder(folder: Path) -> str:
    """Serve a folder until the process ends; returns the address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("_Bound", (_Handler,), {"folder": folder}))
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_address[1]}"
