"""A recording by several machines, each a part of its shards, in one folder or in folders of their own.

A shard has the same bytes whoever records it, so the parts together are the trace that one process would have written.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from os.path import realpath
from pathlib import Path

from simlab.errors import InUseError, TraceError, UsageError, enumerated
from simlab.traces.format.documents import JsonFields, first_difference, json_fields
from simlab.traces.format.files import MANIFEST, UNFINISHED, write_beside
from simlab.traces.format.lock import exclusive_lock
from simlab.traces.format.manifest import Manifest
from simlab.traces.writer import NOTES_OF_PARTS, TraceWriter, read_beginning
from simlab.untrusted.json_text import file_bytes
from simlab.workers.parts import Part

_PATIENCE_S = 60.0
"""How long a machine waits for others that begin the same recording; each takes a moment."""

_NAMED = 9
"""So many shards are named in a message."""

_NOTE = re.compile(r"recording-([0-9]{1,9})-of-([0-9]{1,9})\.json")
_SHARD = re.compile(r"sequences-([0-9]{4,9})\.parquet")
_LOCK = re.compile(r"\.(part-[0-9]+-of-[0-9]+)\.lock")


def name_of_part(part: Part) -> str:
    """The name under which a part is locked, so that no other process records the same one.

    >>> name_of_part(Part(1, 4))
    'part-1-of-4'
    """
    return f"part-{part.number}-of-{part.count}"


def begin_part(part: Part, folder: Path, manifest: Manifest, num_shards: int, resume: bool) -> TraceWriter:
    """Begin a part of a recording, or join the one that others began in the folder.

    Args:
        part: its shards are every count-th.
        folder: of the trace, or of this part.
        manifest: without contents; it must be the one that the others began with.
        num_shards: of the whole recording.
        resume: go on with shards of this part that are there already.
    """
    # One after the other: the first writes down what is recorded, and the next ones compare.
    with exclusive_lock(folder / MANIFEST, patience_s=_PATIENCE_S):
        writer = TraceWriter(folder, manifest, num_shards, resume=True)
    own = part.strided(num_shards)
    num_done = sum(map(writer.is_done, own))
    if num_done and not resume:
        raise TraceError(
            f"{folder} holds {num_done} of the {len(own)} shards of part {part} already; add --resume to go on, or "
            "choose another --out"
        )
    return writer


def finish_part(part: Part, writer: TraceWriter, num_shards: int, recording: Mapping[str, object]) -> None:
    """Note how a part was recorded, and finish the trace where all other shards are in the folder too.

    Args:
        part: whose shards are written.
        writer: of the trace.
        num_shards: of the whole recording.
        recording: timings, host, speed: a JSON object that is outside every id.
    """
    note = f"recording-{part.number}-of-{part.count}.json"
    text = json.dumps(dict(recording), ensure_ascii=False, allow_nan=False)
    write_beside(writer.folder / UNFINISHED / note, lambda file: file.write(text.encode()))
    # Whoever wrote the last shard sees all of them; of two who see them one finishes.
    if (writer.folder / MANIFEST).exists() or all(map(writer.is_done, range(num_shards))):
        with suppress(InUseError), exclusive_lock(writer.folder / MANIFEST):
            writer.finish(_joined_notes([writer.folder]))
            _remove_free_locks(writer.folder)


def missing_shards(folder: Path) -> list[int]:
    """The shards that an unfinished recording still lacks; none of a finished one."""
    if (folder / MANIFEST).exists():
        return []
    begun = _begun(folder)
    return [number for number in range(begun.num_shards) if number not in begun.done]


def merge_recordings(folders: Sequence[Path], out: Path | None, step: Callable[[], object]) -> Path:
    """Put the parts of a recording together.

    Args:
        folders: one that all parts were recorded into, or several.
        out: the folder of the trace; None: the one folder.
        step: called for each shard that is there.

    Returns:
        The trace's folder.

    Raises:
        UsageError: a part is of another recording or holds shards that another holds, or some are missing.
        TraceError: a folder holds no recording, or what it holds is damaged; ``out`` holds something else.
    """
    if out is None:
        if len(folders) > 1:
            raise UsageError("several folders are merged into another; name it with --out")
        (out,) = folders
        if (out / MANIFEST).exists():
            return out
    elif (out / MANIFEST).exists() or realpath(out) in map(realpath, folders):
        raise UsageError(f"{out} is there already; give another --out")
    parts = [_begun(folder) for folder in folders]
    first = parts[0]
    holders = _holders(parts)
    with exclusive_lock(out / MANIFEST):
        writer = TraceWriter(out, first.manifest, first.num_shards, resume=True)
        for shard in range(first.num_shards):
            if holders[shard] != out:
                writer.take(shard, holders[shard])
            step()
        try:
            writer.finish(_joined_notes(folders))
        except ValueError as error:
            raise TraceError(f"the parts do not fit together ({error}); record them again") from error
        _remove_free_locks(out)
    return out


@dataclass(frozen=True, slots=True)
class _Begun:
    """An unfinished recording in a folder, and the shards that are there."""

    folder: Path
    manifest: Manifest
    num_shards: int
    done: frozenset[int]


def _begun(folder: Path) -> _Begun:
    if (folder / MANIFEST).exists():
        raise UsageError(f"{folder} is a whole trace, and no part; merge takes what `simlab record --shard` recorded")
    if not (folder / UNFINISHED / MANIFEST).is_file():
        raise TraceError(f"{folder} holds no recording; give the folders that `simlab record --shard` recorded")
    manifest, num_shards = read_beginning(folder)
    if num_shards < 1:
        raise TraceError(f"the recording in {folder} says that it has {num_shards} shards: it is damaged; record again")
    matches = (_SHARD.fullmatch(path.name) for path in (folder / UNFINISHED).iterdir())
    numbers = {int(match[1]) for match in matches if match}
    return _Begun(folder, manifest, num_shards, frozenset(number for number in numbers if number < num_shards))


def _holders(parts: Sequence[_Begun]) -> dict[int, Path]:
    """In which folder each shard lies."""
    first, holders = parts[0], dict[int, Path]()
    for part in parts:
        facts = _first_facts(first), _first_facts(part)
        differing = first_difference(*facts, f"in {first.folder}", f"in {part.folder}")
        if differing is not None:
            raise UsageError(
                f"{first.folder} and {part.folder} are parts of different recordings: they differ in {differing}"
            )
        for shard in sorted(part.done):
            if shard in holders:
                raise UsageError(
                    f"{holders[shard]} and {part.folder} both hold shard {shard}; give each part once, of one split"
                )
            holders[shard] = part.folder
    lacking = first.num_shards - len(holders)
    if lacking:
        few = list(islice((number for number in range(first.num_shards) if number not in holders), _NAMED))
        more = [f"{lacking - len(few):,} more"] if lacking > len(few) else []
        where = enumerated([str(part.folder) for part in parts])
        raise UsageError(
            f"{enumerated([*(f'shard {number}' for number in few), *more])} of {first.num_shards:,} "
            f"{'is' if lacking == 1 else 'are'} not in {where}{_of_parts(parts, few)}; record the rest, or finish it "
            "with --resume"
        )
    return holders


def _first_facts(begun: _Begun) -> dict[str, object]:
    return begun.manifest.to_json() | {"num_shards": begun.num_shards}


def _of_parts(parts: Sequence[_Begun], shards: Sequence[int]) -> str:
    """The parts that some shards are of, where the finished parts are of one split; empty where that is not known."""
    counts = {part.count for begun in parts for part, _ in _notes(begun.folder)}
    if len(counts) != 1:
        return ""
    (count,) = counts
    named = sorted({Part(number % count, count) for number in shards})
    return f", of part {enumerated([str(number) for number in named])}"


def _notes(folder: Path) -> Iterator[tuple[Part, JsonFields]]:
    """What the parts in a folder say of their runs; it is outside every id, so what cannot be read is left out."""
    for path in sorted((folder / UNFINISHED).glob(NOTES_OF_PARTS)):
        match = _NOTE.fullmatch(path.name)
        with suppress(ValueError, OSError):
            if match is not None:
                yield Part(int(match[1]), int(match[2])), json_fields(file_bytes(path), path.name)


def _joined_notes(folders: Sequence[Path]) -> dict[str, object]:
    """The ``recording.json`` of a trace in parts: the seconds of all machines together, and each part's own."""
    notes = [(part, fields) for folder in folders for part, fields in _notes(folder)]
    seconds = positions = 0.0
    for _, fields in notes:
        with suppress(TraceError):
            seconds, positions = seconds + fields.number("seconds"), positions + fields.number("positions")
    return {
        "seconds": round(seconds, 3),
        "positions": int(positions),
        "positions_per_s": round(positions / seconds, 2) if seconds > 0 else 0.0,
        "parts": {str(part): dict(fields.values) for part, fields in notes},
    }


def _remove_free_locks(folder: Path) -> None:
    """Delete the locks that killed parts left in the folder of a finished trace."""
    for path in folder.iterdir():
        match = _LOCK.fullmatch(path.name)
        if match is not None:
            with suppress(InUseError, TraceError), exclusive_lock(folder / match[1], patience_s=0):
                pass  # whoever gets a lock takes it away at the end
