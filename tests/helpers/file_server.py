"""A server of files on this machine that answers truly, or in one of the ways in which servers go wrong."""

import contextlib
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit


@dataclass
class FileServer:
    """What is served from where, and how.

    Attributes:
        moved: by the name of a file, where it is said to be.
        cut_after: by the name of a file, the bytes after which the connection is closed.
        endless: files that go on for ever.
        unsized: files whose length is not said before.
        slow: files whose every answer takes a moment.
        stalled: files that are sent in part, and no further.
        asked: the paths that were asked for, in order.
        tokens: the ``Authorization`` that came with each.
    """

    root: Path
    address: str = ""
    moved: dict[str, str] = field(default_factory=dict)
    cut_after: dict[str, int] = field(default_factory=dict)
    endless: set[str] = field(default_factory=set)
    unsized: set[str] = field(default_factory=set)
    slow: set[str] = field(default_factory=set)
    stalled: set[str] = field(default_factory=set)
    asked: list[str] = field(default_factory=list)
    tokens: list[str | None] = field(default_factory=list)

    def times_asked(self, name: str) -> int:
        """How often a file of that name was asked for."""
        return sum(path.endswith(f"/{name}") for path in self.asked)


class _Handler(BaseHTTPRequestHandler):
    served: FileServer

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Nobody reads it."""

    def do_GET(self) -> None:
        served, path = self.served, unquote(urlsplit(self.path).path)
        name = path.rsplit("/", 1)[-1]
        served.asked.append(path)
        served.tokens.append(self.headers.get("Authorization"))
        if name in served.slow:
            time.sleep(0.5)
        if name in served.moved:
            self.send_response(302)
            self.send_header("Location", served.moved[name])
            self.end_headers()
            return
        place = served.root / path.lstrip("/")
        if not place.is_file():
            self.send_error(404)
            return
        with contextlib.suppress(ConnectionError):
            self._send(name, place.read_bytes())

    def _send(self, name: str, body: bytes) -> None:
        self.send_response(200)
        if name not in self.served.unsized | self.served.endless | self.served.stalled:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: self.served.cut_after.get(name)])
        while name in self.served.endless:
            self.wfile.write(bytes(1 << 16))
        while name in self.served.stalled:
            time.sleep(0.05)


@contextlib.contextmanager
def serving_files(root: Path) -> Iterator[FileServer]:
    """Serve a folder until it is left."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    served = FileServer(root, f"http://127.0.0.1:{server.server_address[1]}")
    server.RequestHandlerClass = type("_Bound", (_Handler,), {"served": served})
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield served
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
