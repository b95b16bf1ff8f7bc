"""Files are there whole or not at all, whoever else writes beside them."""

import ast
import errno
import os
import re
import resource
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import polars as pl
import pytest
from places import REPOSITORY
from source_files import source_files

from simlab.errors import TraceError
from simlab.traces.format import files
from simlab.traces.format.files import (
    column_names,
    read_frame,
    read_text,
    remove_leftovers,
    write_beside,
    write_frame,
)
from simlab.traces.texts import read_text_table

RANDOM = "0123456789ab"


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def write(path: Path, content: bytes) -> None:
    write_beside(path, lambda file: file.write(content))


@pytest.fixture
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The name of a part that another knows before it is made."""
    numbers = iter([RANDOM, "1" * 12, "2" * 12])
    monkeypatch.setattr(secrets, "token_hex", lambda _: next(numbers))
    return tmp_path / f".whole.{RANDOM}.part"


@pytest.mark.parametrize("plant", ["symlink", "hardlink", "dangling"])
def test_a_link_in_the_place_of_a_part_is_not_written_through(tmp_path: Path, planted: Path, plant: str) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    if plant == "hardlink":
        planted.hardlink_to(victim)
    else:
        planted.symlink_to(victim if plant == "symlink" else tmp_path / "nowhere")
    if plant == "hardlink":
        # It looks like a killed writer's, so its name is removed, and with the name nothing of the victim.
        write(tmp_path / "whole", b"mine")
    else:
        with pytest.raises(TraceError, match="could not be written"):
            write(tmp_path / "whole", b"mine")
        assert planted.is_symlink()
    assert victim.read_text() == "precious"
    assert not (tmp_path / "nowhere").exists()


def test_links_in_the_places_of_older_parts_and_of_the_file_itself(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / ".whole.part").symlink_to(victim)
    (tmp_path / "whole").symlink_to(victim)
    write(tmp_path / "whole", b"mine")
    assert victim.read_text() == "precious"
    assert not (tmp_path / "whole").is_symlink()
    assert (tmp_path / "whole").read_bytes() == b"mine"


def test_the_place_of_a_device_is_not_taken(tmp_path: Path) -> None:
    device = tmp_path / "device"
    os.mkfifo(device)
    for path in (device, Path(os.devnull)):
        with pytest.raises(TraceError, match="is a device, and its place is not taken; give the name of a file"):
            write_beside(path, lambda file: file.write(b"text"))
        assert not path.is_file()


def test_what_the_system_refuses_is_not_called_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), "file")

    monkeypatch.setattr(files, "file_text", refused)
    monkeypatch.setattr(files, "check_size", refused)
    for read in (lambda: read_text(tmp_path, "text"), lambda: read_frame(tmp_path, "text", {})):
        with pytest.raises(TraceError, match=r"^text in .* cannot be read \(Permission denied\)\.$"):
            read()


def test_a_failing_write_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "whole").write_text("before")

    def fail(file: IO[bytes]) -> None:
        file.write(b"half")
        raise OSError(28, os.strerror(28))

    with pytest.raises(TraceError, match="No space left on device.*see that the folder can be written and the disk"):
        write_beside(tmp_path / "whole", fail)
    assert names(tmp_path) == ["whole"]
    assert (tmp_path / "whole").read_text() == "before"


@pytest.fixture
def _small_files() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.usefixtures("_small_files")
@pytest.mark.parametrize("kind", ["bytes", "rows", "sink"])
def test_a_file_that_cannot_grow_leaves_nothing(tmp_path: Path, kind: str) -> None:
    rows = pl.DataFrame({"number": pl.Series(range(10_000)).shuffle(7)})
    writers = {
        "bytes": lambda: write(tmp_path / "whole", os.urandom(5000)),
        "rows": lambda: write_frame(tmp_path / "whole", rows),
        "sink": lambda: write_beside(tmp_path / "whole", lambda file: rows.lazy().sink_parquet(file)),
    }
    with pytest.raises(TraceError, match="could not be written"):
        writers[kind]()
    assert names(tmp_path) == []


KILLED = """
import os, sys
from pathlib import Path
from simlab.traces.format.files import write_beside

def write(file):
    file.write(b"half")
    file.flush()
    print("writing", flush=True)
    sys.stdin.read()

write_beside(Path(sys.argv[1]), write)
"""


@pytest.fixture
def writing(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process, in the middle of writing the file."""
    command = [sys.executable, "-c", KILLED, str(tmp_path / "whole")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "writing\n"
        yield process
        process.kill()


def test_what_a_killed_process_left_is_removed_by_the_next_writer(
    tmp_path: Path, writing: subprocess.Popen[str]
) -> None:
    assert len(names(tmp_path)) == 1
    writing.send_signal(signal.SIGKILL)
    writing.wait()
    assert len(names(tmp_path)) == 1
    write(tmp_path / "another", b"other")
    assert len(names(tmp_path)) == 2
    write(tmp_path / "whole", b"mine")
    assert names(tmp_path) == ["another", "whole"]


def test_the_part_of_a_process_that_lives_is_left_alone(tmp_path: Path, writing: subprocess.Popen[str]) -> None:
    write(tmp_path / "whole", b"mine")
    remove_leftovers(tmp_path)
    assert len(names(tmp_path)) == 2
    assert writing.stdin is not None
    writing.stdin.close()
    assert writing.wait() == 0
    assert names(tmp_path) == ["whole"]
    assert (tmp_path / "whole").read_bytes() == b"half"


def test_only_parts_are_removed(tmp_path: Path) -> None:
    kept = ["a.part", ".whole.notes.part", ".b.txt", f".other.{RANDOM}.part", ".other.part"]
    for name in [*kept, ".whole.part", f".whole.{RANDOM}.part"]:
        (tmp_path / name).write_text("x")
    (tmp_path / f".whole.{'3' * 12}.part").mkdir()
    os.mkfifo(tmp_path / f".whole.{'4' * 12}.part")
    write(tmp_path / "whole", b"mine")
    assert names(tmp_path) == sorted([*kept, f".whole.{'3' * 12}.part", f".whole.{'4' * 12}.part", "whole"])
    remove_leftovers(tmp_path / "nowhere")


def test_a_name_is_no_pattern(tmp_path: Path) -> None:
    (tmp_path / ".x.part").write_text("x")
    write(tmp_path / "[x]", b"mine")
    write(tmp_path / ".*", b"mine")
    assert names(tmp_path) == sorted([".x.part", "[x]", ".*"])


HASTE = """
import sys, time
from pathlib import Path
from simlab.traces.format.files import write_beside

end = time.monotonic() + float(sys.argv[3])
while time.monotonic() < end:
    write_beside(Path(sys.argv[1]), lambda file: file.write(sys.argv[2].encode() * 1000))
"""


@pytest.mark.thorough
def test_many_writers_of_one_file_never_mix(tmp_path: Path) -> None:
    started = [
        subprocess.Popen([sys.executable, "-c", HASTE, str(tmp_path / "whole"), letter, "1"]) for letter in "abc"
    ]
    while any(one.poll() is None for one in started):
        if (tmp_path / "whole").exists():
            found = (tmp_path / "whole").read_bytes()
            assert len(found) == 1000
            assert len(set(found)) == 1
        time.sleep(0.005)
    assert [one.wait() for one in started] == [0, 0, 0]
    assert names(tmp_path) == ["whole"]


def test_a_path_is_taken_as_it_is_and_not_as_a_pattern(tmp_path: Path) -> None:
    folder = tmp_path / "run[1]"
    folder.mkdir()
    for name, rows in (("t[1].parquet", 3), ("t1.parquet", 5)):
        lists = pl.Series([[1, 2]] * rows, dtype=pl.List(pl.Int32()))
        write_frame(folder / name, pl.DataFrame({"prompt_ids": lists, "text_ids": lists, f"of_{rows}": [0] * rows}))
    assert column_names(folder / "t[1].parquet")[-1] == "of_3"
    assert len(list(read_text_table(folder / "t[1].parquet"))) == 3
    assert read_frame(folder, "t[1].parquet", {"of_3": pl.Int64()}).height == 3


def test_every_reader_of_tables_takes_a_path_as_it_is() -> None:
    """To polars a path is a pattern unless `glob=False` stands beside it; some readers cannot be told."""
    calls = [
        (path, ast.unparse(node))
        for path in source_files()
        for node in ast.walk(ast.parse((REPOSITORY / path).read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and re.match(r"pl\.(read|scan)_(?!ndjson|json)\w+$", ast.unparse(node.func))
    ]
    assert len(calls) > 5
    assert not [call for call in calls if "glob=False" not in call[1] and "pl.read_parquet_metadata" not in call[1]]
