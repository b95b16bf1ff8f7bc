"""Adding a channel or a draft set to a finished trace.

A run that was killed loses nothing, and resumes to the bytes of an unbroken one; until the end the trace is the one it
was. Shards may be written in any order, each whole or not at all: ``unfinished/channel-NAME.json`` or
``unfinished/draft-NAME.json`` says what is being added, a shard is done once its file is there, and the manifest is
written last.
"""

import contextlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Generic, TypeVar

import polars as pl

from simlab.channels import POOL, PoolRows
from simlab.channels.rows import EXACT_NODES, MOST_EXACT
from simlab.errors import TraceError
from simlab.recorded import RecordedSequence
from simlab.traces.channels.checks import find_channel_problem
from simlab.traces.channels.columns import ChannelColumns, channel_digest, channel_id
from simlab.traces.channels.shards import channel_frame, read_channel_columns
from simlab.traces.format.checks import draft_problems
from simlab.traces.format.documents import Json, first_difference, json_fields
from simlab.traces.format.files import (
    MANIFEST,
    UNFINISHED,
    local_folder,
    read_text,
    remove_leftovers,
    write_beside,
    write_frame,
)
from simlab.traces.format.frames import (
    DraftColumns,
    SequenceRecord,
    draft_digest,
    draft_frame,
    draft_id,
    parts_of,
    spans,
)
from simlab.traces.format.lock import exclusive_lock
from simlab.traces.format.manifest import Manifest, file_info, read_manifest
from simlab.traces.format.manifest_entries import ChannelInfo, DraftSet
from simlab.traces.format.shards import Shard, read_draft_columns, read_draft_rows
from simlab.traces.reader import Trace, open_trace
from simlab.traces.writer import write_beside_making

Columns = TypeVar("Columns")


def add_channel(
    folder: Path,
    name: str,
    info: ChannelInfo,
    columns_of: Callable[[RecordedSequence], ChannelColumns],
    resume: bool = False,
) -> Trace:
    """Add a channel to a finished trace, sequence by sequence; the trace with it.

    Args:
        folder: of the trace.
        name: of the channel.
        info: what the manifest will say of it; of a pool without ``exact_nodes``, which are counted.
        columns_of: from a text, with the rows of the draft set that the channel extends, to its rows.
        resume: go on with what the folder holds of it instead of refusing that.

    Raises:
        TraceError: there is no trace, it cannot be written, or it holds such a channel or another of that name.
        InUseError: another simlab writes the trace.
        ValueError: the channel does not fit the trace, or breaks an invariant of the format.
    """
    read_manifest(folder)
    with exclusive_lock(folder / MANIFEST, "--trace"):
        fill(ChannelAdder(folder, name, info, resume), lambda texts: list(map(columns_of, texts)))
    return open_trace(folder)


def add_draft(
    folder: Path,
    name: str,
    draft_set: DraftSet,
    columns_of: Callable[[RecordedSequence], DraftColumns],
    resume: bool = False,
) -> Trace:
    """Add a draft set to a finished trace, sequence by sequence; the trace with it.

    Args:
        folder: of the trace.
        name: of the draft set.
        draft_set: what the manifest will say of it.
        columns_of: from a text to its rows.
        resume: go on with what the folder holds of it instead of refusing that.

    Raises:
        TraceError: there is no trace, it cannot be written, or it holds such a draft set or another of that name.
        InUseError: another simlab writes the trace.
        ValueError: the draft set breaks an invariant of the format.
    """
    read_manifest(folder)
    with exclusive_lock(folder / MANIFEST, "--trace"):
        fill(DraftAdder(folder, name, draft_set, resume), lambda texts: list(map(columns_of, texts)))
    return open_trace(folder)


def fill(adder: "ShardAdder[Columns]", columns_of: Callable[[Sequence[RecordedSequence]], Sequence[Columns]]) -> None:
    """Write what is missing of an addition, the rows of the texts of a shard at a time, and finish it."""
    write_beside_making(adder.missing(), lambda shard: columns_of(adder.sequences(shard)), adder.write)
    adder.finish()


class ShardAdder(ABC, Generic[Columns]):
    """An addition to a finished trace, written shard by shard, with a note of what is being added.

    Whoever makes one holds the trace's lock.
    """

    def __init__(self, trace: Trace, stem: str, wanted: Json, existing: Json | None) -> None:
        """Say what is added to which trace.

        Args:
            trace: a finished one, in a folder.
            stem: of the names of the files.
            wanted: what the manifest will say of it.
            existing: what the manifest says already; None: nothing.
        """
        self._trace, self._stem, self._wanted, self._existing = trace, stem, wanted, existing
        self._manifest = trace.manifest
        self._folder = folder_of(trace)
        self._note = self._folder / UNFINISHED / f"{stem}.json"
        self._is_complete = False

    @abstractmethod
    def sequences(self, shard: int) -> list[RecordedSequence]:
        """The texts of a shard, with the rows that the addition goes on from."""

    @abstractmethod
    def _frame(self, shard: int, parts: Sequence[Columns]) -> pl.DataFrame:
        """The file of a shard, of the rows of each of its texts; what breaks an invariant is refused."""

    @abstractmethod
    def _finished(self) -> Manifest:
        """The manifest with the addition and its id, all shards being written."""

    def missing(self) -> list[int]:
        """The shards that are not written yet."""
        return [] if self._is_complete else [shard for shard in self._all_shards() if not self._path(shard).exists()]

    def write(self, shard: int, parts: Sequence[Columns]) -> None:
        """Write a shard that is missing: the rows of each of its texts."""
        texts = self._texts(shard)
        if len(parts) != len(texts):
            raise ValueError(f"a shard of {len(texts)} texts needs the rows of each; got {len(parts)}")
        frame = self._frame(shard, parts)
        if shard not in self.missing():
            raise ValueError(f"shard {shard} is done or not one of {len(self._all_shards())}")
        write_frame(self._path(shard), frame)

    def finish(self) -> None:
        """Write the manifest with the addition and its files."""
        if self._is_complete:
            return
        if self.missing():
            raise ValueError(f"shards {self.missing()} are not written yet")
        manifest = self._finished()
        contents = manifest.held()
        files = {path.name: file_info(path) for path in map(self._path, self._all_shards())}
        whole = replace(manifest, contents=replace(contents, files={**contents.files, **files}))
        write_beside(self._folder / MANIFEST, lambda file: file.write(whole.to_bytes()))
        self._is_complete = True
        self._clean()

    def _begin(self, resume: bool) -> None:
        """Write the note, or meet what is there."""
        if self._existing is not None:
            self._meet(self._existing, resume, "holds", "it is complete, so choose another name")
            self._is_complete = True
            self._clean()
        elif self._note.exists():
            self._meet(_noted(self._note), resume, "holds an unfinished", "add --resume to go on with it")
            remove_leftovers(self._folder)
        else:
            # Files without a note are of nobody knows what.
            for shard in self._all_shards():
                self._path(shard).unlink(missing_ok=True)
            note = json.dumps({"added": self._wanted}, indent=2, ensure_ascii=False, allow_nan=False)
            write_beside(self._note, lambda file: file.write(f"{note}\n".encode()))

    def _all_shards(self) -> range:
        return range(len(self._trace.manifest.held().shards))

    def _unfinished(self, shard: int) -> Shard:
        """A shard whose added files are read as they are: without contents nothing is known of them."""
        return Shard(self._trace.location, replace(self._manifest, contents=None), shard, self._texts(shard))

    def _texts(self, shard: int) -> tuple[SequenceRecord, ...]:
        first, last = list(spans(self._trace.manifest.held().shards))[shard]
        return self._trace.texts[first:last]

    def _path(self, shard: int) -> Path:
        return self._folder / f"{self._stem}-{shard:04d}.parquet"

    def _meet(self, existing: Json, resume: bool, holds: str, otherwise: str) -> None:
        differing = first_difference(existing, self._wanted)
        if differing is not None:
            raise TraceError(
                f"{self._folder} {holds} {self._stem} with another {differing}. Choose another name, or add what it "
                f"began with; or delete {self._note} to begin anew."
            )
        if not resume:
            raise TraceError(f"{self._folder} {holds} {self._stem}; {otherwise}.")

    def _clean(self) -> None:
        self._note.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self._note.parent.rmdir()
        remove_leftovers(self._folder)


class ChannelAdder(ShardAdder[ChannelColumns]):
    """A channel that is being added to a finished trace; `add_channel` does all of it, and holds the trace's lock."""

    def __init__(self, folder: Path, name: str, info: ChannelInfo, resume: bool) -> None:
        """Begin or go on; arguments and errors as of `add_channel`."""
        if not info.is_read or EXACT_NODES in info.settings:
            raise ValueError(f"a channel is added at all positions, of a kind that is known, without {EXACT_NODES}")
        self._name, self._info = name, info
        trace = open_trace(folder)
        recorded = trace.manifest.channels.get(name)
        existing = None if recorded is None else _without_counted(recorded).to_json()
        super().__init__(trace, f"channel-{name}", _without_counted(info).to_json(), existing)
        self._manifest = self._with_channel(info, "")
        self._begin(resume)

    def sequences(self, shard: int) -> list[RecordedSequence]:
        """The texts of a shard, with the rows of the draft set that the channel extends."""
        texts = self._texts(shard)
        if self._info.extends is None:
            return [record.recorded() for record in texts]
        open_shard = Shard(self._trace.location, self._trace.manifest, shard, texts)
        parts = parts_of(read_draft_rows(open_shard, self._info.extends), open_shard.num_roots)
        return [replace(record.recorded(), rows=part) for record, part in zip(texts, parts, strict=True)]

    def _frame(self, shard: int, parts: Sequence[ChannelColumns]) -> pl.DataFrame:
        for recorded, columns in zip(self.sequences(shard), parts, strict=True):
            problem = find_channel_problem(recorded, columns, self._info, self._manifest)
            if problem is not None:
                raise ValueError(problem)
        return channel_frame(self._texts(shard), parts, self._info.kind, self._info.width)

    def _finished(self) -> Manifest:
        digests: list[str] = []
        exact = MOST_EXACT
        for shard in self._all_shards():
            for columns in read_channel_columns(self._unfinished(shard), self._name):
                digests.append(channel_digest(columns))
                if isinstance(columns.rows, PoolRows):
                    exact = min(exact, columns.rows.exact_nodes(self._info.setting("depth")))
        counted = {EXACT_NODES: exact} if self._info.kind == POOL else {}
        info = replace(self._info, settings={**self._info.settings, **counted})
        return self._with_channel(info, channel_id(self._trace.text_id, info, digests))

    def _with_channel(self, info: ChannelInfo, made: str) -> Manifest:
        manifest, contents = self._trace.manifest, self._trace.manifest.held()
        ids = replace(contents, channel_ids={**contents.channel_ids, self._name: made})
        return replace(manifest, channels={**manifest.channels, self._name: info}, contents=ids)


class DraftAdder(ShardAdder[DraftColumns]):
    """A draft set that is being added to a finished trace; `add_draft` does all of it, and holds the trace's lock."""

    def __init__(self, folder: Path, name: str, draft_set: DraftSet, resume: bool) -> None:
        """Begin or go on; arguments and errors as of `add_draft`."""
        self._name, self._draft_set = name, draft_set
        trace = open_trace(folder)
        recorded = trace.manifest.draft_sets.get(name)
        existing = None if recorded is None else recorded.to_json()
        super().__init__(trace, f"draft-{name}", draft_set.to_json(), existing)
        self._manifest = self._with_draft("")
        self._begin(resume)

    def sequences(self, shard: int) -> list[RecordedSequence]:
        """The texts of a shard."""
        return [record.recorded() for record in self._texts(shard)]

    def _frame(self, shard: int, parts: Sequence[DraftColumns]) -> pl.DataFrame:
        texts = zip(self._texts(shard), parts, strict=True)
        records = [replace(text, drafts={self._name: part}) for text, part in texts]
        for record in records:
            for problem in draft_problems(record, self._name, record.drafts[self._name], self._draft_set):
                raise ValueError(problem)
        return draft_frame(records, self._name, self._draft_set.depth)

    def _finished(self) -> Manifest:
        shards = map(self._unfinished, self._all_shards())
        digests = [draft_digest(columns) for shard in shards for columns in read_draft_columns(shard, self._name)]
        return self._with_draft(draft_id(self._trace.text_id, self._draft_set.model.digest, digests))

    def _with_draft(self, made: str) -> Manifest:
        manifest, contents = self._trace.manifest, self._trace.manifest.held()
        ids = replace(contents, draft_ids={**contents.draft_ids, self._name: made})
        return replace(manifest, draft_sets={**manifest.draft_sets, self._name: self._draft_set}, contents=ids)


def extended_by(trace: Trace, name: str) -> str | None:
    """The draft set that a channel extends which the trace holds, or is to hold; None: no such channel."""
    if name in trace.manifest.channels:
        return trace.manifest.channels[name].extends
    folder = local_folder(trace.location)
    note = None if folder is None else folder / UNFINISHED / f"channel-{name}.json"
    extends = None if note is None or not note.exists() else _noted(note).get("extends")
    return extends if isinstance(extends, str) else None


def _noted(note: Path) -> Json:
    """What a note says is being added."""
    text = read_text(note.parent, note.name)
    try:
        return dict(json_fields(text, note.name).inner("added").values)
    except ValueError as error:
        raise TraceError(f"{note} is damaged ({error}); delete it, and add the whole again.") from error


def folder_of(trace: Trace) -> Path:
    """The folder of a trace to which something can be added."""
    folder = local_folder(trace.location)
    if folder is None:
        raise TraceError(
            f"{trace.location} is an address, and nothing can be added there; copy the trace into a folder."
        )
    return folder


def _without_counted(info: ChannelInfo) -> ChannelInfo:
    return replace(info, settings={key: value for key, value in info.settings.items() if key != EXACT_NODES})
