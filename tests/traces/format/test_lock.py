"""Two that write one file: one of them is refused, and nothing is lost."""

import fcntl
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from simlab.errors import InUseError, TraceError
from simlab.traces.format.lock import exclusive_lock, lock_file

HOLDING = """
import sys
from pathlib import Path
from simlab.traces.format.lock import exclusive_lock

with exclusive_lock(Path(sys.argv[1])):
    print("holding", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def holding(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process, which holds the file."""
    command = [sys.executable, "-c", HOLDING, str(tmp_path / "file")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "holding\n"
        yield process
        process.kill()


def is_free(path: Path) -> bool:
    try:
        with exclusive_lock(path):
            return True
    except InUseError:
        return False


def test_the_second_writer_is_refused_until_the_first_is_done(tmp_path: Path, holding: subprocess.Popen[str]) -> None:
    with pytest.raises(InUseError) as caught, exclusive_lock(tmp_path / "file", "--rounds"):
        pass
    said = f"another simlab is writing {tmp_path / 'file'}; wait until it is done, or give another --rounds"
    assert str(caught.value) == said
    assert is_free(tmp_path / "other")
    assert holding.stdin is not None
    holding.stdin.close()
    assert holding.wait() == 0
    assert list(tmp_path.iterdir()) == []
    assert is_free(tmp_path / "file")


def test_the_lock_of_a_killed_process_is_free_at_once(tmp_path: Path, holding: subprocess.Popen[str]) -> None:
    holding.send_signal(signal.SIGKILL)
    holding.wait()
    assert list(tmp_path.iterdir()) == [lock_file(tmp_path / "file")]
    assert lock_file(tmp_path / "file").read_bytes() == b""
    assert is_free(tmp_path / "file")
    assert list(tmp_path.iterdir()) == []


def test_two_threads_are_two_writers(tmp_path: Path) -> None:
    found: list[bool] = []
    with exclusive_lock(tmp_path / "file"):
        thread = threading.Thread(target=lambda: found.append(is_free(tmp_path / "file")))
        thread.start()
        thread.join()
        found.append(is_free(tmp_path / "file"))
    assert found == [False, False]
    assert is_free(tmp_path / "file")


def test_a_folder_has_one_lock_under_all_its_names(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with exclusive_lock(tmp_path / "real" / "file"):
        assert not is_free(tmp_path / "link" / "file")
        assert not is_free(tmp_path / "link" / ".." / "real" / "file")


def test_folders_that_were_made_for_nothing_go_again(tmp_path: Path) -> None:
    with exclusive_lock(tmp_path / "a" / "b" / "file"):
        assert (tmp_path / "a" / "b").is_dir()
    assert list(tmp_path.iterdir()) == []
    with exclusive_lock(tmp_path / "a" / "b" / "file"):
        (tmp_path / "a" / "b" / "file").touch()
    assert list((tmp_path / "a" / "b").iterdir()) == [tmp_path / "a" / "b" / "file"]


@pytest.mark.parametrize("plant", ["symlink", "dangling", "folder"])
def test_a_lock_is_not_taken_through_what_is_in_its_place(tmp_path: Path, plant: str) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    if plant == "folder":
        lock_file(tmp_path / "file").mkdir()
    else:
        lock_file(tmp_path / "file").symlink_to(victim if plant == "symlink" else tmp_path / "nowhere")
    with pytest.raises(TraceError, match="cannot be kept from other writers, since its lock .*; give another --out"):
        is_free(tmp_path / "file")
    assert victim.read_text() == "precious"
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize(("number", "reason"), [(38, "Function not implemented"), (37, "No locks available")])
def test_a_folder_without_locks_is_refused(
    tmp_path: Path, number: int, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def flock(_number: int, _operation: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", flock)
    with pytest.raises(TraceError, match=f"({reason}).*in a folder that can be written and locked"):
        is_free(tmp_path / "new" / "file")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(TraceError, match="Permission denied"):
            is_free(tmp_path / "file")
    finally:
        tmp_path.chmod(0o700)


def test_a_lock_that_was_deleted_and_made_anew_is_left_to_its_owner(tmp_path: Path) -> None:
    with exclusive_lock(tmp_path / "file"):
        lock_file(tmp_path / "file").unlink()
        lock_file(tmp_path / "file").touch()
    assert lock_file(tmp_path / "file").exists()
