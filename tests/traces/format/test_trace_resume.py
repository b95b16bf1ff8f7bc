"""A recording killed anywhere resumes to the bytes of an unbroken one."""

from dataclasses import replace
from pathlib import Path
from typing import IO

import polars as pl
import pytest
from killed_writers import Killed, kill_after
from synthetic_traces import shards_of, synthetic_manifest, synthetic_sequences

from simlab.errors import TraceError
from simlab.traces.format.files import write_beside
from simlab.traces.format.frames import SequenceRecord
from simlab.traces.format.manifest_entries import ModelInfo
from simlab.traces.inspect import check_trace
from simlab.traces.writer import TraceWriter

LENGTH, KEPT = 12, 8
MANIFEST = synthetic_manifest(length=LENGTH, kept=KEPT)


@pytest.fixture(scope="module")
def shards() -> list[list[SequenceRecord]]:
    return list(shards_of(synthetic_sequences(num_sequences=8, length=LENGTH, kept=KEPT), prompts_per_shard=2))


def record(folder: Path, shards: list[list[SequenceRecord]], seconds: float) -> list[int]:
    """Record or go on; the shards that were written this time."""
    writer = TraceWriter(folder, MANIFEST, len(shards), resume=True)
    missing = [shard for shard in range(len(shards)) if not writer.is_done(shard)]
    for shard in missing:
        writer.write(shard, shards[shard])
    writer.finish({"seconds": seconds})
    return missing


def bytes_of(folder: Path) -> dict[str, bytes]:
    files = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    files.pop("recording.json")
    return files


def test_killed_anywhere_and_resumed_gives_the_same_bytes(tmp_path: Path, shards: list[list[SequenceRecord]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        num_events = kill_after(patch, -1)
        record(tmp_path / "unbroken", shards, seconds=1.0)
    expected = bytes_of(tmp_path / "unbroken")
    assert num_events() > 30
    assert not any(name.startswith(("unfinished", ".")) for name in expected)
    for point in range(1, num_events() + 1):
        folder = tmp_path / f"killed-{point}"
        with pytest.MonkeyPatch.context() as patch:
            kill_after(patch, point)
            with pytest.raises(Killed):
                record(folder, shards, seconds=2.0)
        record(folder, shards, seconds=3.0)
        assert bytes_of(folder) == expected, f"killed at event {point}"
    assert check_trace(tmp_path / "killed-7")["sequences"] == 8


def test_a_finished_shard_is_not_lost(tmp_path: Path, shards: list[list[SequenceRecord]]) -> None:
    writer = TraceWriter(tmp_path / "trace", MANIFEST, len(shards), resume=False)
    writer.write(1, shards[1])
    again = TraceWriter(tmp_path / "trace", MANIFEST, len(shards), resume=True)
    assert [again.is_done(shard) for shard in range(len(shards))] == [False, True, False]
    texts = [record.text.tolist() for record in again.read_back(1)]
    assert texts == [record.text.tolist() for record in shards[1]]
    with pytest.raises(ValueError, match="not written yet"):
        again.finish({})
    assert record(tmp_path / "trace", shards, seconds=1.0) == [0, 2]


def test_what_may_not_be_written_over(tmp_path: Path, shards: list[list[SequenceRecord]]) -> None:
    folder, num = tmp_path / "trace", len(shards)
    TraceWriter(folder, MANIFEST, num, resume=False)
    with pytest.raises(TraceError, match="unfinished recording; add --resume"):
        TraceWriter(folder, MANIFEST, num, resume=False)
    other = replace(MANIFEST, target=ModelInfo("other", "", "other"))
    with pytest.raises(TraceError, match="another target.name"):
        TraceWriter(folder, other, num, resume=True)
    with pytest.raises(TraceError, match="in 3 shards; this one has 4"):
        TraceWriter(folder, MANIFEST, num + 1, resume=True)
    record(folder, shards, seconds=1.0)
    with pytest.raises(TraceError, match="holds a complete trace"):
        TraceWriter(folder, MANIFEST, num, resume=False)
    with pytest.raises(TraceError, match="another target.name"):
        TraceWriter(folder, other, num, resume=True)
    assert TraceWriter(folder, MANIFEST, num, resume=True).is_complete
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "thesis.tex").write_text("do not lose me")
    with pytest.raises(TraceError, match="is not empty"):
        TraceWriter(tmp_path / "foreign", MANIFEST, num, resume=True)
    with pytest.raises(TraceError, match="is a file"):
        TraceWriter(tmp_path / "foreign" / "thesis.tex", MANIFEST, num, resume=False)


def test_a_full_disk_is_one_sentence(
    tmp_path: Path, shards: list[list[SequenceRecord]], monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = TraceWriter(tmp_path / "trace", MANIFEST, len(shards), resume=False)

    def full(frame: pl.DataFrame, file: object, **options: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pl.DataFrame, "write_parquet", full)
    with pytest.raises(TraceError, match=r"could not be written .*No space left on device"):
        writer.write(0, shards[0])
    assert not writer.is_done(0)


def test_sequences_must_count_up(tmp_path: Path, shards: list[list[SequenceRecord]]) -> None:
    writer = TraceWriter(tmp_path / "trace", MANIFEST, 1, resume=False)
    writer.write(0, shards[1])
    with pytest.raises(ValueError, match="count up from 0"):
        writer.finish({})


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(28, "No space left on device")])
def test_a_file_that_was_not_finished_leaves_nothing(error: BaseException, tmp_path: Path) -> None:
    def write(file: IO[bytes]) -> None:
        file.write(b"half")
        raise error

    with pytest.raises((KeyboardInterrupt, TraceError)):
        write_beside(tmp_path / "whole", write)
    assert list(tmp_path.iterdir()) == []
