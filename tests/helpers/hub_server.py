"""A hub of models on this machine, and commands that are run against it in a process of their own.

It speaks what huggingface_hub asks of it: the information of a model at a revision, the list of its files, and the
files, by HEAD and by GET with ranges; and it takes repositories that are made, and commits, from those who show the
token `TOKEN`. It keeps a list of what it was asked for.
"""

import base64
import contextlib
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

from http_servers import answering

_INFO = re.compile(r"/api/(?:models|datasets)/(?P<id>[^/]+(?:/(?!revision/)[^/]+)?)(?:/revision/(?P<revision>.+))?")
_TREE = re.compile(r"/api/(?:models|datasets)/(?P<id>[^/]+/[^/]+)/tree/(?P<revision>[^/]+)")
_COMMIT = re.compile(r"/api/datasets/(?P<id>[^/]+/[^/]+)/commit/(?P<revision>.+)")
_BRANCH = re.compile(r"/api/datasets/(?P<id>[^/]+/[^/]+)/branch/(?P<revision>.+)")
_PREUPLOAD = re.compile(r"/api/datasets/(?P<id>[^/]+/[^/]+)/preupload/(?P<revision>.+)")
_LFS = re.compile(r"/datasets/(?P<id>[^/]+/[^/]+)\.git/info/lfs/objects/batch")

TOKEN = "hf_may_write"
"""Who shows it may write."""

_FILE = re.compile(r"(?:/datasets)?/(?P<id>[^/]+/[^/]+)/resolve/(?P<revision>[^/]+)/(?P<path>.+)")


@dataclass
class Hub:
    """Repositories by id, each with its commits by name (``main`` is the first that was given).

    Attributes:
        refused: status, error code and sentence with which files of a repository are refused.
        asked: paths that were asked for, files without the part before them.
        private: repositories that were made here, and whether only their owner sees them.
        objects: large files that were sent, by sha256.
        uploads: a folder for what is committed.
    """

    address: str = ""
    commits: dict[str, dict[str, str]] = field(default_factory=dict)
    files: dict[str, Path] = field(default_factory=dict)
    refused: dict[str, tuple[int, str, str]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    private: dict[str, bool] = field(default_factory=dict)
    objects: dict[str, bytes] = field(default_factory=dict)
    uploads: Path | None = None

    def add(self, repository: str, folder: Path, revision: str = "main") -> str:
        """Publish a folder; returns the commit."""
        commit = hashlib.sha1(f"{repository} {revision} {folder}".encode()).hexdigest()
        self.commits.setdefault(repository, {}).update({revision: commit, commit: commit})
        self.files[commit] = folder
        return commit

    def files_asked(self, repository: str) -> set[str]:
        """The files of a repository that somebody wanted."""
        found = (_FILE.fullmatch(path) for path in self.asked)
        return {match["path"] for match in found if match is not None and match["id"] == repository}


class _Handler(BaseHTTPRequestHandler):
    hub: Hub
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def do_PUT(self) -> None:
        body = self._body()
        self.hub.objects[self.path.rsplit("/", 1)[-1]] = body
        self._send(200, b"", {}, True)

    def do_POST(self) -> None:
        path, body = unquote(urlparse(self.path).path), self._body()
        self.hub.asked.append(path)
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            self._send(401, b"", {"X-Error-Message": "Invalid username or password."}, True)
            return
        if path == "/api/validate-yaml":
            self._json({"errors": [], "warnings": []}, True)
        elif path == "/api/repos/create":
            self._make(json.loads(body))
        elif (found := _BRANCH.fullmatch(path)) is not None:
            self.hub.commits[found["id"]][found["revision"]] = self.hub.commits[found["id"]]["main"]
            self._json({}, True)
        elif _PREUPLOAD.fullmatch(path):
            names = [load["path"] for load in json.loads(body)["files"]]
            modes = {True: "lfs", False: "regular"}
            files = [{"path": n, "uploadMode": modes[n.endswith(".parquet")], "shouldIgnore": False} for n in names]
            self._json({"files": files}, True)
        elif _LFS.fullmatch(path):
            self._batch(json.loads(body)["objects"])
        elif (found := _COMMIT.fullmatch(path)) is not None:
            self._commit(found["id"], found["revision"], [json.loads(line) for line in body.splitlines()])
        else:
            self._send(404, b"", {}, True)

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", "0")))
        parts = []
        while size := int(self.rfile.readline(), 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def _make(self, wanted: dict[str, object]) -> None:
        repository = f"{wanted['organization']}/{wanted['name']}" if "organization" in wanted else str(wanted["name"])
        url = {"url": f"{self.hub.address}/datasets/{repository}"}
        if repository in self.hub.commits:
            self._send(409, json.dumps(url).encode(), {"Content-Type": "application/json"}, True)
            return
        assert self.hub.uploads is not None
        empty = self.hub.uploads / f"{len(self.hub.commits)}-empty"
        empty.mkdir(parents=True)
        self.hub.private[repository] = wanted.get("visibility") == "private" or bool(wanted.get("private"))
        self.hub.add(repository, empty)
        self._json(url, True)

    def _batch(self, objects: list[dict[str, object]]) -> None:
        """Say of each large file where it is to be sent; of those that are here, nothing."""
        found = []
        for one in objects:
            send = {"actions": {"upload": {"href": f"{self.hub.address}/objects/{one['oid']}"}}}
            found.append({**one, **({} if one["oid"] in self.hub.objects else send)})
        self._json({"objects": found, "transfer": "basic"}, True)

    def _commit(self, repository: str, revision: str, lines: list[dict[str, Any]]) -> None:
        """Make a commit: what was there, and what is added."""
        assert self.hub.uploads is not None
        before = self.hub.files[self.hub.commits[repository][revision]]
        folder = self.hub.uploads / f"{len(self.hub.files)}-commit"
        shutil.copytree(before, folder)
        for line in lines:
            value = line["value"]
            if line["key"] in ("file", "lfsFile"):
                place = folder / value["path"]
                place.parent.mkdir(parents=True, exist_ok=True)
                is_small = line["key"] == "file"
                place.write_bytes(base64.b64decode(value["content"]) if is_small else self.hub.objects[value["oid"]])
        commit = self.hub.add(repository, folder, revision)
        url = f"{self.hub.address}/datasets/{repository}/commit/{commit}"
        self._json({"success": True, "commitOid": commit, "commitUrl": url, "hookOutput": ""}, True)

    def _answer(self, with_body: bool) -> None:
        path = unquote(urlparse(self.path).path)
        self.hub.asked.append(path)
        for form, say in ((_TREE, self._tree), (_FILE, self._file), (_INFO, self._info)):
            found = form.fullmatch(path)
            if found is not None:
                self._of_a_repository(found, say, with_body)
                return
        self._send(404, b"", {}, with_body)

    def _of_a_repository(self, found: re.Match[str], say: Callable[..., None], with_body: bool) -> None:
        repository, revision = found["id"], found["revision"] or "main"
        status, code, sentence = self.hub.refused.get(repository, (0, "", ""))
        if repository not in self.hub.commits:
            # The real one answers so where nobody is logged in: it does not say which names exist.
            self._send(401, b"", {"X-Error-Message": "Invalid username or password."}, with_body)
        elif revision not in self.hub.commits[repository]:
            self._send(404, b"", {"X-Error-Code": "RevisionNotFound"}, with_body)
        elif status >= 500 or (status and "path" in found.groupdict()):
            self._send(status, b"", {"X-Error-Code": code, "X-Error-Message": sentence}, with_body)
        else:
            say(repository, self.hub.commits[repository][revision], found.groupdict().get("path"), with_body)

    def _info(self, repository: str, commit: str, _path: None, with_body: bool) -> None:
        names = [{"rfilename": name} for name in self._names(commit)]
        said: dict[str, object] = {
            "id": repository,
            "modelId": repository,
            "sha": commit,
            "siblings": names,
            "tags": [],
        }
        said |= {"private": self.hub.private.get(repository, False)}
        self._json(said, with_body)

    def _tree(self, _repository: str, commit: str, _path: None, with_body: bool) -> None:
        folder = self.hub.files[commit]
        listed = [
            {"type": "file", "path": name, "size": (folder / name).stat().st_size, "oid": _digest(folder / name)}
            for name in self._names(commit)
        ]
        self._json(listed, with_body)

    def _file(self, _repository: str, commit: str, path: str, with_body: bool) -> None:
        place = self.hub.files[commit] / path
        about = {"X-Repo-Commit": commit, "Accept-Ranges": "bytes"}
        if not place.is_file():
            self._send(404, b"", about | {"X-Error-Code": "EntryNotFound"}, with_body)
            return
        about["ETag"] = f'"{_digest(place)}"'
        body, size = place.read_bytes(), place.stat().st_size
        wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if wanted is None:
            self._send(200, body, about, with_body)
            return
        low, high = int(wanted[1]), min(int(wanted[2] or size), size - 1)
        self._send(206, body[low : high + 1], about | {"Content-Range": f"bytes {low}-{high}/{size}"}, with_body)

    def _names(self, commit: str) -> list[str]:
        folder = self.hub.files[commit]
        return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())

    def _json(self, value: object, with_body: bool) -> None:
        self._send(200, json.dumps(value).encode(), {"Content-Type": "application/json"}, with_body)

    def _send(self, status: int, body: bytes, about: Mapping[str, str], with_body: bool) -> None:
        self.send_response(status)
        for name, value in about.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if with_body:
            self.wfile.write(body)


def _digest(path: Path) -> str:
    return hashlib.sha1(path.read_bytes()).hexdigest()


@contextlib.contextmanager
def serving() -> Iterator[Hub]:
    """A hub that answers until it is left."""
    hub = Hub()
    with answering(_Handler, hub=hub) as hub.address:
        yield hub


@dataclass(frozen=True)
class Said:
    """What came of a command."""

    code: int
    out: str
    err: str
    seconds: float


def run_commands(
    address: str, home: Path, commands: Sequence[Sequence[str]], offline: bool = False, token: str | None = None
) -> list[Said]:
    """Run simlab's commands one after the other, in one new process that knows only this hub and this cache."""
    settings = {
        "HF_ENDPOINT": address,
        "HF_HOME": str(home),
        "HF_HUB_OFFLINE": str(int(offline)),
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "HF_HUB_ETAG_TIMEOUT": "2",
        "HF_HUB_DISABLE_XET": "1",
        "OMP_NUM_THREADS": "1",
    }
    settings |= {} if token is None else {"HF_TOKEN": token}
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "HUGGING"))}
    done = subprocess.run(
        [sys.executable, __file__, json.dumps(commands)],
        env=kept | settings,
        capture_output=True,
        text=True,
        check=True,
        timeout=240,
        stdin=subprocess.DEVNULL,
    )
    return [Said(**said) for said in json.loads(done.stdout.splitlines()[-1])]


def _run(command: Sequence[str]) -> Said:
    from simlab.cli.main import main

    out, err, begun = io.StringIO(), io.StringIO(), time.perf_counter()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main(list(command))
        except SystemExit as end:
            code = int(end.code or 0)
    return Said(code, out.getvalue(), err.getvalue(), time.perf_counter() - begun)


if __name__ == "__main__":
    print(json.dumps([vars(_run(command)) for command in json.loads(sys.argv[1])]))
