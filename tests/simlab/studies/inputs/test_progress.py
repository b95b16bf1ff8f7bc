"""The folder of a field: a step is done once, and what was asked for stays what is made."""

from pathlib import Path

import pytest

from simlab.errors import UsageError
from simlab.studies.inputs.progress import Steps


def test_a_step_is_done_once(tmp_path: Path) -> None:
    done: list[str] = []
    folder = Steps(tmp_path / "field", {"size": 3})
    folder.once("record", "Recording", lambda: done.append("record"))
    folder.once("record", "Recording", lambda: done.append("record"))
    again = Steps(tmp_path / "field", {"size": 3})
    again.once("record", "Recording", lambda: done.append("record"))
    again.once("time", "Timing", lambda: done.append("time"))
    assert done == ["record", "time"]
    assert set(Steps(tmp_path / "field", {"size": 3}).seconds) == {"record", "time"}


def test_a_step_that_fails_is_done_again(tmp_path: Path) -> None:
    folder = Steps(tmp_path / "field", {})

    def fails() -> None:
        raise UsageError("no room")

    with pytest.raises(UsageError, match="no room"):
        folder.once("record", "Recording", fails)
    done: list[int] = []
    Steps(tmp_path / "field", {}).once("record", "Recording", lambda: done.append(1))
    assert done == [1]


def test_another_field_is_refused(tmp_path: Path) -> None:
    Steps(tmp_path / "field", {"size": 3, "models": {"a": "b"}}).once("a", "A", lambda: None)
    with pytest.raises(
        UsageError, match=r"was begun with other size, prompts; ask for the same, or give another --out"
    ):
        Steps(tmp_path / "field", {"size": 4, "models": {"a": "b"}, "prompts": "mine"})


def test_a_damaged_file_of_steps_is_refused(tmp_path: Path) -> None:
    (tmp_path / "steps.json").write_text("{")
    with pytest.raises(UsageError, match=r"steps\.json cannot be read: .*; give another --out, or remove"):
        Steps(tmp_path, {})
