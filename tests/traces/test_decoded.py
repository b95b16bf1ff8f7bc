"""Rows kept decoded: the same as those of the shard, made again wherever they are not, and never in the way."""

import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from depth import examples
from forged_files import mend
from hypothesis import given, settings
from hypothesis import strategies as st
from killed_writers import Killed, kill_after
from synthetic_traces import DRAFT, SyntheticHeads, write_synthetic_trace

import simlab
from simlab.errors import TraceError
from simlab.recorded import DraftRows
from simlab.traces import decoded
from simlab.traces.fetching.store import stamp_of
from simlab.traces.format import frames, shards
from simlab.traces.inspect import check_trace
from simlab.traces.reader import open_trace, packaged_trace

SHARD = "draft-synthetic-0000.parquet"
ROWS, STAMP = ".decoded/draft-synthetic-0000.rows", ".decoded/draft-synthetic-0000.stamp"


@pytest.fixture(autouse=True)
def small_shards_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Rows are kept of any shard, and the cache is empty."""
    monkeypatch.setattr(decoded, "_LEAST_BYTES", 0)
    monkeypatch.setenv("SIMLAB_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv(decoded.SWITCH, raising=False)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_synthetic_trace(tmp_path / "trace", num_sequences=8, length=30, kept=8, prompts_per_shard=2)


def rows_of(place: Path) -> list[DraftRows]:
    return [texts.rows for texts in open_trace(place).recorded_texts(DRAFT) if texts.rows is not None]


def undecoded(place: Path, monkeypatch: pytest.MonkeyPatch) -> list[DraftRows]:
    """The rows as the shards have them."""
    with monkeypatch.context() as patch:
        patch.setenv(decoded.SWITCH, "off")
        return rows_of(place)


def assert_same(found: list[DraftRows], expected: list[DraftRows]) -> None:
    assert len(found) == len(expected) > 0
    for rows, other in zip(found, expected, strict=True):
        for entry in fields(DraftRows):
            a, b = getattr(rows, entry.name), getattr(other, entry.name)
            assert (a.dtype, a.shape, a.flags.writeable) == (b.dtype, b.shape, b.flags.writeable)
            assert type(a) is np.ndarray
            assert a.flags.c_contiguous
            assert a.flags.aligned
            assert a.tobytes() == b.tobytes()


def decodes(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """How many Parquet files of drafts have been decoded since."""
    count, read = 0, frames.draft_rows_of

    def counted(rows: pl.DataFrame) -> object:
        nonlocal count
        count += 1
        return read(rows)

    monkeypatch.setattr(shards, "draft_rows_of", counted)
    return lambda: count


@settings(max_examples=examples(25))
@given(
    seed=st.integers(0, 99),
    num_sequences=st.integers(1, 6),
    length=st.integers(1, 12),
    depth=st.integers(1, 5),
    kept=st.integers(1, 9),
    extra=st.integers(0, 4),
    prompts_per_shard=st.integers(1, 4),
)
def test_mapped_rows_are_the_decoded_ones(
    tmp_path_factory: pytest.TempPathFactory,
    seed: int,
    num_sequences: int,
    length: int,
    depth: int,
    kept: int,
    extra: int,
    prompts_per_shard: int,
) -> None:
    path = tmp_path_factory.mktemp("any") / "trace"
    heads = SyntheticHeads(extra=extra)
    write_synthetic_trace(path, seed, num_sequences, length, depth, kept, 11, heads, prompts_per_shard)
    first = rows_of(path)
    with pytest.MonkeyPatch.context() as patch:
        num = decodes(patch)
        again = rows_of(path)
        num_decoded = num()
        expected = undecoded(path, patch)
    # Nothing is kept of a shard without a root.
    assert num_decoded == sum(len(rows.counts) == 0 for rows in expected)
    assert_same(first, expected)
    assert_same(again, expected)


def test_a_replay_is_the_same_and_decodes_each_shard_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setenv(decoded.SWITCH, "off")
        expected = simlab.replay(folder, ["ddtree:budget=8"]).rows
    assert not (folder / ".decoded").exists()
    num = decodes(monkeypatch)
    for _ in range(2):
        assert simlab.replay(folder, ["ddtree:budget=8"]).rows.equals(expected)
    assert num() == len(open_trace(folder).manifest.held().shards)


def flip(path: Path, place: int = -3) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 4
    path.write_bytes(content)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-4])


def copied(path: Path) -> None:
    """The same bytes in another file, with the times of the first, as an archive or a copy has them."""
    shutil.copy2(path, path.with_name("copy"))
    path.with_name("copy").replace(path)


def linked(path: Path) -> None:
    path.rename(path.with_name("other"))
    path.symlink_to(path.with_name("other"))


def emptied(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize("name", [ROWS, STAMP])
@pytest.mark.parametrize("harm", [flip, cut, emptied, copied, linked, Path.unlink])
def test_harmed_files_are_not_used_and_made_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, harm: Callable[[Path], object]
) -> None:
    expected = undecoded(folder, monkeypatch)
    rows_of(folder)
    whole = (folder / ROWS).read_bytes()
    harm(folder / name)
    num = decodes(monkeypatch)
    assert_same(rows_of(folder), expected)
    # A copy of the stamp says the same of the same files; and what is touched by nobody is not made again.
    assert num() == (0 if (name, harm) == (STAMP, copied) else 1)
    assert (folder / ROWS).read_bytes() == whole
    assert_same(rows_of(folder), expected)
    assert num() <= 1


def test_forged_rows_that_came_with_a_trace_are_not_used(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = undecoded(folder, monkeypatch)
    rows_of(folder)
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    flip(copy / ROWS)
    # Whoever packs the archive can write any stamp, but not choose when and where it will be unpacked.
    rows, shard = (stamp_of((folder / one).stat()) for one in (ROWS, SHARD))
    assert f" {shard} {rows} ".encode() in (copy / STAMP).read_bytes()
    num = decodes(monkeypatch)
    assert_same(rows_of(copy), expected)
    assert num() == len(expected)


def forge(folder: Path) -> str:
    """Change a candidate's id as who may write into the folder can; the words that the stamp would have then."""
    flip(folder / ROWS, -4 * 60)
    key, rows, shard = (
        (folder / STAMP).read_text().split()[0],
        *(stamp_of((folder / one).stat()) for one in (ROWS, SHARD)),
    )
    return f"{key} {shard} {rows}"


def test_rows_with_a_stamp_that_another_wrote_are_not_used(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = undecoded(folder, monkeypatch)
    rows_of(folder)
    words, signature = forge(folder), (folder / STAMP).read_text().split()[-1]
    with monkeypatch.context() as patch:
        patch.setenv("SIMLAB_CACHE", str(tmp_path / "theirs"))
        theirs = decoded._signed(words)
    for stamp in (f"{words} {signature}\n".encode(), theirs, f"{words}\n".encode()):
        (folder / STAMP).write_bytes(stamp)
        num = decodes(monkeypatch)
        assert_same(rows_of(folder), expected)
        assert num() == 1
        forge(folder)


def test_inspect_compares_what_is_kept_with_the_files(folder: Path) -> None:
    rows_of(folder)
    assert check_trace(folder)["drafts"][DRAFT]["decoded_bytes"] > 0
    (folder / STAMP).write_bytes(decoded._signed(forge(folder)))
    with pytest.raises(TraceError, match=r"kept decoded are not those of its files; delete \.decoded"):
        check_trace(folder)


def test_a_key_that_others_could_have_written_signs_nothing(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows_of(folder)
    key = tmp_path / "cache" / "decoded.key"
    assert key.stat().st_mode & 0o777 == 0o600
    monkeypatch.setattr(os, "getuid", lambda: key.stat().st_uid + 1)
    num = decodes(monkeypatch)
    before = (folder / STAMP).read_bytes()
    for times in (1, 2):
        rows_of(folder)
        assert num() == times * len(open_trace(folder).manifest.held().shards)
    assert (folder / STAMP).read_bytes() == before


@pytest.mark.parametrize("harm", [flip, cut, emptied, Path.unlink])
def test_a_harmed_shard_is_refused_as_before(folder: Path, harm: Callable[[Path], object]) -> None:
    rows_of(folder)
    harm(folder / SHARD)
    with pytest.raises(TraceError, match=SHARD):
        rows_of(folder)
    with pytest.raises(TraceError, match=SHARD):
        check_trace(folder)


def test_a_changed_byte_under_the_old_time_is_noticed(folder: Path) -> None:
    rows_of(folder)
    about = (folder / SHARD).stat()
    flip(folder / SHARD)
    os.utime(folder / SHARD, ns=(about.st_atime_ns, about.st_mtime_ns))
    with pytest.raises(TraceError, match=f"{SHARD} .* is damaged"):
        rows_of(folder)


def test_rows_of_another_shard_or_another_manifest_are_not_used(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows_of(folder)
    before = (folder / STAMP).read_bytes()
    # The same rows in other bytes: the manifest has another digest.
    pl.read_parquet(folder / SHARD).write_parquet(folder / SHARD, compression="lz4")
    mend(folder, SHARD)
    expected = undecoded(folder, monkeypatch)
    num = decodes(monkeypatch)
    assert_same(rows_of(folder), expected)
    assert num() == 1
    assert (folder / STAMP).read_bytes() != before
    monkeypatch.setattr(decoded, "_VERSION", 99)
    assert_same(rows_of(folder), expected)
    assert num() == 1 + len(expected)


_READ = """
import sys
from simlab.traces import decoded
from simlab.traces.reader import open_trace
decoded._LEAST_BYTES = 0
for _ in range(int(sys.argv[2])):
    print(sum(int(texts.rows.ids.sum()) for texts in open_trace(sys.argv[1]).recorded_texts("synthetic")), flush=True)
"""


def reading(place: Path, times: int) -> "subprocess.Popen[str]":
    return subprocess.Popen([sys.executable, "-c", _READ, str(place), str(times)], stdout=subprocess.PIPE, text=True)


@pytest.mark.thorough
def test_processes_that_make_them_at_once_all_read_the_same(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = undecoded(folder, monkeypatch)
    processes = [reading(folder, 20) for _ in range(2)]
    while any(one.poll() is None for one in processes):
        shutil.rmtree(folder / ".decoded", ignore_errors=True)
    said = {line for one in processes for line in one.communicate()[0].split()}
    assert [one.returncode for one in processes] == [0, 0]
    assert said == {str(sum(int(rows.ids.sum()) for rows in expected))}
    assert_same(rows_of(folder), expected)
    num = decodes(monkeypatch)
    assert_same(rows_of(folder), expected)
    assert num() == 0


def test_a_cache_without_room_for_the_key_is_in_nobodys_way(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_file: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    expected = undecoded(folder, monkeypatch)
    rows_of(folder)
    (Path(os.environ["SIMLAB_CACHE"]) / "decoded.key").unlink()
    monkeypatch.setattr(decoded, "_write_secret", full)
    num = decodes(monkeypatch)
    assert_same(rows_of(folder), expected)
    assert num() == len(open_trace(folder).manifest.held().shards)
    assert check_trace(folder)["drafts"][DRAFT]["decoded_bytes"] == 0


def test_a_link_in_the_place_of_the_folder_is_left_alone(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (folder / ".decoded").symlink_to(tmp_path / "elsewhere")
    rows_of(folder)
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_none_are_made_when_they_are_off_or_too_small_to_be_worth_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    undecoded(folder, monkeypatch)
    monkeypatch.setattr(decoded, "_LEAST_BYTES", 1 << 18)
    rows_of(folder)
    assert not (folder / ".decoded").exists()


def test_the_packaged_trace_stays_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = sorted(packaged_trace().iterdir())
    trace = open_trace(packaged_trace())
    first = next(trace.recorded_texts(trace.draft_name(), [0]))
    num = decodes(monkeypatch)
    again = next(trace.recorded_texts(trace.draft_name(), [0]))
    assert num() == 0
    assert first.rows is not None
    assert again.rows is not None
    assert_same([again.rows], [first.rows])
    assert sorted(packaged_trace().iterdir()) == before
    assert list((tmp_path / "cache" / "traces").glob("*/decoded/draft-dflash-0000.rows"))


@pytest.mark.parametrize("num_events", range(1, 9))
def test_a_killed_writer_leaves_nothing_wrong(folder: Path, num_events: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        expected = undecoded(folder, patch)
    first = open_trace(folder).sequences()[0].index
    with pytest.MonkeyPatch.context() as patch:
        kill_after(patch, num_events)
        with pytest.raises(Killed):
            list(open_trace(folder).recorded_texts(DRAFT, [first]))
    assert_same(rows_of(folder), expected)
    assert_same(rows_of(folder), expected)
    assert not list(folder.rglob("*.part"))
