"""A server of files on this machine that answers truly, or in one of the ways in which servers go wrong."""

import contextlib
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from urllib.parse import unquote, urlsplit

from http_servers import answering


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
        cut_once: by the name of a file, the bytes after which the connection is closed, the first time.
        lengths: by the name of a file, what is said of its length, whatever it is.
        ranges: whether a part of a file can be asked for.
        starts: the byte that each file was asked for from, in order; 0: all of it.
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
    cut_once: dict[str, int] = field(default_factory=dict)
    lengths: dict[str, str] = field(default_factory=dict)
    ranges: bool = False
    starts: list[int] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    tokens: list[str | None] = field(default_factory=list)

    def times_asked(self, name: str) -> int:
        """How often a file of that name was asked for."""
        return sum(path.endswith(f"/{name}") for path in self.asked)


class _Handler(BaseHTTPRequestHandler):
    served: FileServer

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
        whole, start = len(body), self._start()
        self.served.starts.append(start)
        body = body[start:]
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{whole - 1}/{whole}")
        if name not in self.served.unsized | self.served.endless | self.served.stalled:
            self.send_header("Content-Length", self.served.lengths.get(name, str(len(body))))
        self.end_headers()
        self.wfile.write(body[: self.served.cut_once.pop(name, self.served.cut_after.get(name))])
        while name in self.served.endless:
            self.wfile.write(bytes(1 << 16))
        while name in self.served.stalled:
            time.sleep(0.05)

    def _start(self) -> int:
        """The first byte that is wanted, where the server knows of such things."""
        wanted = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        return int(wanted[1]) if wanted is not None and self.served.ranges else 0


@contextlib.contextmanager
def serving_files(root: Path) -> Iterator[FileServer]:
    """Serve a folder until it is left."""
    served = FileServer(root)
    with answering(_Handler, served=served) as served.address:
        yield served
