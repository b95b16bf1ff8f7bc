"""The log of a confirmation: a line of JSON for each finished part, so that nothing is done twice."""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import cast

from simlab.errors import TraceError
from simlab.ids import content_digest
from simlab.traces.format.documents import DIGEST
from simlab.traces.format.json_fields import Json, JsonFields, json_fields
from simlab.untrusted.json_text import parse_json

LOG = "log.jsonl"
FORMAT = "simlab-confirm-log"
FORMAT_VERSION = 2


class ConfirmLog:
    """An append-only file whose first line says what was asked for; the others are entries of some kind.

    Each line has a digest of itself and of the line before, so that none can be changed, dropped or moved unseen.

    A last line without its end was being written when the run was killed: it is not read, and the
    next entry takes its place.
    """

    def __init__(self, folder: Path, key: Mapping[str, object], resume: bool) -> None:
        """Begin a log, or go on with the one that is there.

        Args:
            folder: holds ``log.jsonl``.
            key: all that a resumed run must share with the one that began the log, as JSON values by
                the names under which a person knows them.
            resume: whether to go on with a log that is there; without one it begins a new log.
        """
        self.path = folder / LOG
        self._entries: list[JsonFields] = []
        self._digest = ""
        head: Json = {"format": FORMAT, "format_version": FORMAT_VERSION, "key": dict(key)}
        check_out(folder, resume)
        if self.path.exists():
            self._read(dict(key))
        if not self.path.exists() or self.path.stat().st_size == 0:
            folder.mkdir(parents=True, exist_ok=True)
            self._write(head)

    def append(self, kind: str, values: Mapping[str, object]) -> None:
        """Add an entry; it is on the disk when this returns."""
        entry = self._write({"kind": kind, **values})
        self._entries.append(JsonFields(entry, str(self.path)))

    def entries(self, kind: str) -> Iterator[JsonFields]:
        """The entries of one kind, in the order in which they were added."""
        return (entry for entry in self._entries if entry.values.get("kind") == kind)

    def _write(self, values: Mapping[str, object]) -> Json:
        entry = _as_read(values)
        self._digest = _digest(entry, self._digest)
        signed = {**entry, DIGEST: self._digest}
        line = json.dumps(signed, separators=(",", ":"), ensure_ascii=False, allow_nan=False) + "\n"
        with self.path.open("ab") as file:
            file.write(line.encode())
            file.flush()
            os.fsync(file.fileno())
        return signed

    def _read(self, key: Json) -> None:
        whole = _without_half_a_line(self.path)
        lines = [self._parsed(number, line) for number, line in enumerate(whole.split(b"\n")[:-1], 1)]
        if lines:
            self._check_head(lines[0], key)
            self._check_digests(lines)
        self._entries = lines[1:]

    def _parsed(self, number: int, line: bytes) -> JsonFields:
        where = f"{self.path}, line {number}"
        try:
            return json_fields(line, where)
        except ValueError as error:
            raise TraceError(f"{where} is damaged ({error}); give another --out") from error

    def _check_digests(self, lines: Sequence[JsonFields]) -> None:
        for line in lines:
            self._digest = _digest({key: value for key, value in line.values.items() if key != DIGEST}, self._digest)
            if line.values.get(DIGEST) != self._digest:
                raise TraceError(
                    f"{line.where} was changed, or a line before it is gone: its digest is another. Copy the folder "
                    "again, or give another --out"
                )

    def _check_head(self, head: JsonFields, key: Json) -> None:
        if head.values.get("format") != FORMAT or head.values.get("format_version") != FORMAT_VERSION:
            raise TraceError(f"{self.path} is not a log that this simlab writes; give another --out")
        begun = head.inner("key").values
        wanted = _as_read(key)
        for name in {**begun, **wanted}:
            if begun.get(name) != wanted.get(name):
                raise TraceError(
                    f"{self.path.parent} was begun with {name} {_shown(begun.get(name))}; this run has "
                    f"{_shown(wanted.get(name))}: go on with the same, or give another --out"
                )


def check_out(folder: Path, resume: bool) -> None:
    """Refuse a folder in which no log can be begun, before any work is done for it."""
    if folder.is_file():
        raise TraceError(f"--out names the file {folder}; expected a folder")
    if (folder / LOG).exists() and not resume:
        raise TraceError(f"{folder} holds a confirmation already; add --resume to go on with it, or give another --out")


def _without_half_a_line(path: Path) -> bytes:
    """The whole lines of a file; half a line at its end is cut off, in the file too."""
    data = path.read_bytes()
    whole = data[: data.rfind(b"\n") + 1]
    if len(whole) < len(data):
        os.truncate(path, len(whole))
    return whole


def _as_read(values: Mapping[str, object]) -> Json:
    """An object as it will be read back: names are strings, and tuples lists."""
    return cast(Json, parse_json(json.dumps(values, allow_nan=False)))


def _digest(entry: Mapping[str, object], before: str) -> str:
    return content_digest([before, dict(entry)])


def _shown(value: object) -> str:
    """A value as a person reads it, cut where it is long."""
    if value is None:
        return "none"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 120 else f"{text[:120]} ..."
