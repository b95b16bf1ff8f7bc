"""The log of a confirmation: a line of JSON for each finished part, so that nothing is done twice."""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import cast

import numpy as np

from simlab.arrays import Longs
from simlab.columns import RoundColumns
from simlab.cost import CHANNEL, STAGES, StageSeconds
from simlab.errors import TraceError
from simlab.ids import content_digest, content_id
from simlab.real_runner.decoding.decoded import DecodedText
from simlab.sequence_replay import Totals
from simlab.traces.format.documents import DIGEST, Json, JsonFields, json_fields
from simlab.untrusted.json_text import file_bytes, parse_json

# What the log of a confirmation keeps of each text.


ROUND_COLUMNS = ("position", "drafted", "accepted", "committed", *(f"{stage}_us" for stage in STAGES))
"""What is kept of each round: its counts, and whole microseconds by stage."""

Difference = Mapping[str, str | int | float | bool | None]
"""Where a float32 run and the recorded trace part: flat values, the place among them."""


@dataclass(frozen=True, slots=True, eq=False)
class FinishedRun:
    """One text under one policy.

    Attributes:
        text: token ids.
        stop_reason: ``stop`` or ``length``.
        rounds: int64 ``[R, 9]``, the columns of ``ROUND_COLUMNS``.
        seconds: sums over the rounds.
        unequal: how its rounds differ from a replay of its own rows on its own text; empty: not at all.
        differences: from the recorded trace, where they were looked for.
    """

    policy_id: str
    text: tuple[int, ...]
    stop_reason: str
    rounds: Longs
    seconds: StageSeconds
    unequal: str
    differences: tuple[Difference, ...]

    @property
    def text_digest(self) -> str:
        """A digest of the token ids, equal for equal texts."""
        return content_id(list(self.text))

    @property
    def totals(self) -> Totals:
        """Sums over the rounds. A round that committed no bonus token was clipped."""
        names = ("position", "drafted", "accepted", "committed")
        position, drafted, accepted, committed = (self.rounds[:, ROUND_COLUMNS.index(name)] for name in names)
        return RoundColumns(position, drafted, accepted, committed, accepted == committed).totals()

    def to_json(self) -> Json:
        """The run as it stands in the log."""
        values = {name: getattr(self, name) for name in ("policy_id", "stop_reason", "unequal")}
        return {
            **values,
            "text": list(self.text),
            "rounds": self.rounds.tolist(),
            "seconds": asdict(self.seconds),
            "differences": [dict(difference) for difference in self.differences],
        }


def finished_run(policy_id: str, decoded: DecodedText, unequal: str, differences: Sequence[Difference]) -> FinishedRun:
    """What is kept of a decoded text."""
    rounds = [
        (
            *(ran.round.position, ran.round.num_drafted, ran.round.num_accepted, ran.round.num_committed),
            *(round(1e6 * seconds) for seconds in ran.seconds.by_stage),
        )
        for ran in decoded.rounds
    ]
    table = np.array(rounds, np.int64).reshape(-1, len(ROUND_COLUMNS))
    text = tuple(decoded.text.tolist())
    return FinishedRun(
        policy_id=policy_id,
        text=text,
        stop_reason=decoded.stop_reason,
        rounds=table,
        seconds=decoded.seconds,
        unequal=unequal,
        differences=tuple(differences),
    )


@dataclass(frozen=True, slots=True, eq=False)
class FinishedSequence:
    """One prompt under all policies; ``index`` is its place in the trace."""

    repeat: int
    index: int
    runs: tuple[FinishedRun, ...]

    def to_json(self) -> Json:
        """The sequence as it stands in the log."""
        return {"repeat": self.repeat, "sequence": self.index, "runs": [run.to_json() for run in self.runs]}


def finished_sequence(entry: JsonFields) -> FinishedSequence:
    """A sequence out of the log."""
    runs = tuple(_run(run) for run in entry.objects("runs"))
    return FinishedSequence(entry.integer("repeat"), entry.integer("sequence"), runs)


def _run(fields: JsonFields) -> FinishedRun:
    seconds = fields.inner("seconds")
    rounds = np.array(fields.values["rounds"], np.int64)
    if f"{CHANNEL}_s" not in seconds.values:
        rounds, seconds = _with_channel(rounds.reshape(-1, len(ROUND_COLUMNS) - 1), seconds)
    return FinishedRun(
        policy_id=fields.text("policy_id"),
        text=fields.integers("text"),
        stop_reason=fields.text("stop_reason"),
        rounds=rounds.reshape(-1, len(ROUND_COLUMNS)),
        seconds=StageSeconds(**{f"{stage}_s": seconds.number(f"{stage}_s") for stage in STAGES}),
        unequal=fields.text("unequal"),
        differences=tuple(cast(Difference, difference.values) for difference in fields.objects("differences")),
    )


def _with_channel(rounds: Longs, seconds: JsonFields) -> tuple[Longs, JsonFields]:
    """A run from a log of an older simlab, in which making channels was no stage."""
    column = np.insert(rounds, ROUND_COLUMNS.index(f"{CHANNEL}_us"), 0, axis=1)
    return column, JsonFields({**seconds.values, f"{CHANNEL}_s": 0.0}, seconds.where)


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
    data = file_bytes(path)
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
