"""Writing a trace so that a killed recording loses nothing and resumes to the same bytes."""

import contextlib
import json
import re
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeVar

import polars as pl

from simlab.errors import TraceError
from simlab.traces.decoded import FOLDER
from simlab.traces.format.checks import find_problem
from simlab.traces.format.documents import first_difference, json_fields, with_digest
from simlab.traces.format.files import (
    COMPRESSION_LEVEL,
    MANIFEST,
    QUICK_LEVEL,
    RECORDING,
    SEQUENCES,
    UNFINISHED,
    draft_file,
    read_frame,
    read_text,
    remove_leftovers,
    sequences_file,
    tokens_file,
    unreadable,
    write_beside,
    write_frame,
)
from simlab.traces.format.frames import (
    SequenceRecord,
    draft_digest,
    draft_frame,
    draft_id,
    sequences_frame,
    text_digest,
    text_id,
    tokens_frame,
)
from simlab.traces.format.lock import lock_file
from simlab.traces.format.manifest import Manifest, TraceContents, file_info, manifest_from_text, read_manifest
from simlab.traces.format.schema import sequences_schema
from simlab.traces.format.shards import Shard, read_records, read_sequences

_OF_A_BEGINNING = (UNFINISHED, lock_file(Path(MANIFEST)).name, FOLDER)
"""What a recording that was killed at once leaves, or one that begins has; and what a deleted trace left decoded."""

_Digests = tuple[str, Mapping[str, str]]
"""Of one sequence: of its text, and of its rows of each draft set by name."""

_LOCK_OF_A_PART = re.compile(r"\.part-[0-9]+-of-[0-9]+\.lock")
"""The lock of another process that begins a part of the recording at the same time."""


NOTES_OF_PARTS = "recording-*-of-*.json"
"""What parts of the recording say of their runs, in ``unfinished/``; see `simlab.traces.parts`."""


Made = TypeVar("Made")


def write_beside_making(units: Iterable[int], make: Callable[[int], Made], write: Callable[[int, Made], None]) -> None:
    """Make one unit after the other, and write each in a thread while the next is made; one at most waits in memory.

    What making or writing raises is raised here, once the thread is done.
    """
    with ThreadPoolExecutor(max_workers=1) as pool:
        writing = list[Future[None]]()
        for unit in units:
            made = make(unit)
            for future in writing:
                future.result()
            writing = [pool.submit(write, unit, made)]
        for future in writing:
            future.result()


class TraceWriter:
    """A recording in a folder. Shards may be written in any order, each whole or not at all.

    A shard is done once its file of sequences lies in ``unfinished/``, which is written last;
    the trace is complete once ``manifest.json`` is there.

    Attributes:
        folder: where the trace is to be.
        is_complete: whether the trace is finished; then there is nothing left to write.
    """

    def __init__(
        self, folder: Path, manifest: Manifest, num_shards: int, resume: bool, is_made_up: bool = False
    ) -> None:
        """Begin or go on.

        Args:
            folder: of the trace; made when it is not there.
            manifest: without contents; on resuming it must be the one the recording began with.
            num_shards: how many shards there will be.
            resume: go on with what the folder holds instead of refusing it; nothing there is fine too.
            is_made_up: whether nothing is lost with the rows: they are compressed lightly, and those that this writer
                wrote itself are not read back for the ids.
        """
        if num_shards < 1 or manifest.contents is not None:
            raise ValueError("a writer needs at least one shard and a manifest without contents")
        self.folder = folder
        self._unfinished = folder / UNFINISHED
        self._manifest = _through_json(manifest)
        self._num_shards = num_shards
        self._level = QUICK_LEVEL if is_made_up else COMPRESSION_LEVEL
        self._is_made_up = is_made_up
        self._digests: dict[int, list[_Digests]] = {}
        self.is_complete = False
        check_output_folder(folder, resume)
        if (folder / MANIFEST).exists():
            self._meet_complete()
        elif (self._unfinished / MANIFEST).exists():
            self._meet_unfinished()
        else:
            self._begin()

    def is_done(self, shard: int) -> bool:
        """Whether a shard is already written."""
        return self.is_complete or (self._unfinished / sequences_file(shard)).exists()

    def check_same(self, manifest: Manifest) -> None:
        """Refuse to write shards of another recording, which another process might bring."""
        self._must_agree(_through_json(manifest))

    def write(self, shard: int, records: Sequence[SequenceRecord]) -> None:
        """Write a shard: consecutive sequences with token rows and every draft set."""
        if self.is_done(shard) or not 0 <= shard < self._num_shards:
            raise ValueError(f"shard {shard} is done or not one of {self._num_shards}")
        for record in records:
            problem = find_problem(record, self._manifest)
            if problem is not None:
                raise ValueError(problem)
        if self._manifest.imported is None:
            frame = tokens_frame(records, self._manifest.vocab_size)
            write_frame(self.folder / tokens_file(shard), frame, level=self._level)
        for name, draft_set in self._manifest.draft_sets.items():
            frame = draft_frame(records, name, draft_set.depth)
            write_frame(self.folder / draft_file(name, shard), frame, level=self._level)
        if self._is_made_up:
            self._digests[shard] = [_digests(record) for record in records]
        write_frame(self._unfinished / sequences_file(shard), sequences_frame(records))

    def take(self, shard: int, folder: Path) -> None:
        """Copy a shard that lies in the folder of another unfinished recording, of the same manifest."""
        drafts = [draft_file(name, shard) for name in self._manifest.draft_sets]
        for name in [tokens_file(shard), *drafts, f"{UNFINISHED}/{sequences_file(shard)}"]:
            try:
                with (folder / name).open("rb") as source:
                    write_beside(self.folder / name, partial(shutil.copyfileobj, source))
            except OSError as error:
                raise unreadable(folder, name, error) from error

    def read_back(self, shard: int) -> list[SequenceRecord]:
        """The texts of a finished shard of a recording that goes on."""
        return read_sequences(self._unfinished, sequences_file(shard))

    def finish(self, recording: Mapping[str, object]) -> None:
        """Write ``sequences.parquet``, ``recording.json`` and, last, ``manifest.json`` with the ids.

        Args:
            recording: timings, host, speed: a JSON object that is outside every id.
        """
        if not self.is_complete and (self.folder / MANIFEST).exists():
            # Another process that recorded a part was faster.
            self._meet_complete()
        if self.is_complete:
            return
        texts = self._all_texts()
        frames = [self._sequences_frame(shard) for shard in range(self._num_shards)]
        write_frame(self.folder / SEQUENCES, pl.concat(frames))
        recording_text = json.dumps(dict(recording), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
        write_beside(self.folder / RECORDING, lambda file: file.write(recording_text.encode()))
        finished = replace(self._manifest, contents=self._contents(texts))
        write_beside(self.folder / MANIFEST, lambda file: file.write(finished.to_bytes()))
        self.is_complete = True
        self._clean()

    def _all_texts(self) -> list[list[SequenceRecord]]:
        missing = [shard for shard in range(self._num_shards) if not self.is_done(shard)]
        if missing:
            raise ValueError(f"shards {missing} are not written yet")
        texts = [self.read_back(shard) for shard in range(self._num_shards)]
        indices = [record.index for part in texts for record in part]
        if indices != list(range(len(indices))):
            raise ValueError("the sequences of the shards, in order, must count up from 0")
        return texts

    def _sequences_frame(self, shard: int) -> pl.DataFrame:
        return read_frame(self._unfinished, sequences_file(shard), sequences_schema())

    def _contents(self, texts: Sequence[Sequence[SequenceRecord]]) -> TraceContents:
        """The ids of what is really there, which is read back shard by shard; of made-up rows, of what was written."""
        names = list(self._manifest.draft_sets)
        of_texts: list[str] = []
        of_drafts: dict[str, list[str]] = {name: [] for name in names}
        for shard, part in enumerate(texts):
            written = self._digests.get(shard)
            if written is None:
                records = read_records(Shard(self.folder, self._manifest, shard, part), names)
                written = [_digests(record) for record in records]
            for of_text, drafts in written:
                of_texts.append(of_text)
                for name, digest in drafts.items():
                    of_drafts[name].append(digest)
        text = text_id(of_texts)
        producers = {name: self._manifest.draft_sets[name].model.digest for name in names}
        return TraceContents(
            text_id=text,
            draft_ids={name: draft_id(text, producers[name], of_drafts[name]) for name in names},
            shards=tuple(len(part) for part in texts),
            files={name: file_info(self.folder / name) for name in self._file_names()},
        )

    def _file_names(self) -> list[str]:
        shards = range(self._num_shards)
        drafts = [draft_file(name, shard) for name in self._manifest.draft_sets for shard in shards]
        laws = shards if self._manifest.imported is None else ()
        return [SEQUENCES, *(tokens_file(shard) for shard in laws), *drafts]

    def _begin(self) -> None:
        started = with_digest(self._manifest.to_json() | {"num_shards": self._num_shards})
        text = json.dumps(started, indent=2, ensure_ascii=False, allow_nan=False)
        write_beside(self._unfinished / MANIFEST, lambda file: file.write(text.encode()))

    def _meet_unfinished(self) -> None:
        manifest, num_shards = read_beginning(self.folder)
        self._must_agree(manifest)
        if num_shards != self._num_shards:
            raise TraceError(
                f"{self.folder} holds a recording in {num_shards} shards; this one has "
                f"{self._num_shards}. Resume with the same prompts and options, or choose another --out."
            )
        remove_leftovers(self.folder)
        remove_leftovers(self._unfinished)

    def _meet_complete(self) -> None:
        existing = replace(read_manifest(self.folder), contents=None)
        # What was added to the finished trace is no part of the recording that is repeated.
        drafted = {
            name: draft_set for name, draft_set in existing.draft_sets.items() if name in self._manifest.draft_sets
        }
        self._must_agree(replace(existing, draft_sets=drafted, channels={}))
        self.is_complete = True
        self._clean()

    def _must_agree(self, existing: Manifest) -> None:
        differing = first_difference(existing.to_json(), self._manifest.to_json())
        if differing is not None:
            raise TraceError(
                f"{self.folder} holds a recording with another {differing}. "
                "Resume with the options it began with, or choose another --out."
            )

    def _clean(self) -> None:
        """Remove what is left of the recording; what is being added to the trace has its own files there."""
        remove_leftovers(self._unfinished)
        notes = self._unfinished.glob(NOTES_OF_PARTS)
        for path in [self._unfinished / MANIFEST, *self._unfinished.glob("sequences-*.parquet"), *notes]:
            path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self._unfinished.rmdir()
        remove_leftovers(self.folder)


def _digests(record: SequenceRecord) -> _Digests:
    return text_digest(record), {name: draft_digest(draft) for name, draft in record.drafts.items()}


def check_output_folder(folder: Path, resume: bool) -> None:
    """Refuse a folder that no recording can begin or go on in, whatever the recording."""
    if folder.exists() and not folder.is_dir():
        raise TraceError(f"expected a folder to record into; {folder} is a file. Choose another --out.")
    if (folder / MANIFEST).exists():
        if not resume:
            raise TraceError(f"{folder} holds a complete trace; choose another --out, or delete it first.")
    elif (folder / UNFINISHED / MANIFEST).exists():
        if not resume:
            raise TraceError(f"{folder} holds an unfinished recording; add --resume to go on, or choose another --out.")
    elif folder.exists() and not all(map(_is_of_a_beginning, folder.iterdir())):
        raise TraceError(f"{folder} is not empty and holds no recording; choose another --out, or empty it first.")


def _is_of_a_beginning(path: Path) -> bool:
    return path.name in _OF_A_BEGINNING or _LOCK_OF_A_PART.fullmatch(path.name) is not None


def read_beginning(folder: Path) -> tuple[Manifest, int]:
    """The manifest of an unfinished recording, and in how many shards it will be.

    Raises:
        TraceError: there is none, or it is damaged.
    """
    text, where = read_text(folder / UNFINISHED, MANIFEST), f"{UNFINISHED}/{MANIFEST} in {folder}"
    return manifest_from_text(text, where, folder), json_fields(text, where).integer("num_shards")


def _through_json(manifest: Manifest) -> Manifest:
    """The manifest as it is read back, so that one in memory and one on disk compare equal."""
    return manifest_from_text(manifest.to_bytes().decode(), "the manifest", "the trace")
