"""What a study says while it works: nothing if it is quick, a line if it takes long and nobody sees a bar."""

import time

import pytest

from simlab.studies.inputs import progress
from simlab.studies.inputs.progress import step


def test_a_quick_step_is_silent_away_from_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with step("report", "trees"):
        pass
    assert capsys.readouterr() == ("", "")


def test_a_long_step_is_announced_while_it_works(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "PATIENCE_S", 0.01)
    with step("report", "trees"):
        deadline, seen = time.monotonic() + 30, ""
        while not seen and time.monotonic() < deadline:
            seen = capsys.readouterr().err
            time.sleep(0.005)
    assert seen == "report: trees ...\n"
