"""What trackers get: one run with settings, numbers and files; and what comes of a tracker that fails."""

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from commands import refusal_of

from simlab.errors import SimlabError, UsageError
from simlab.tracking import tracker
from simlab.tracking.tracker import TRACKERS, Scalar, check_trackers, tracking


class Told:
    """A tracker that keeps what it is told, and fails at one of its calls."""

    fails_at = ""

    def __init__(self, job: str, settings: Mapping[str, Scalar]) -> None:
        self.told: list[object] = []
        runs.append(self)
        self._tell("opened", job, dict(settings))

    def numbers(self, values: Mapping[str, float], step: int) -> None:
        self._tell("numbers", step, dict(values))

    def results(self, values: Mapping[str, float]) -> None:
        self._tell("results", dict(values))

    def files(self, paths: Sequence[Path]) -> None:
        self._tell("files", [path.name for path in paths])

    def end(self, has_failed: bool) -> None:
        self._tell("ended", has_failed)

    def _tell(self, *what: object) -> None:
        if what[0] == self.fails_at:
            raise RuntimeError(f"no {what[0]} today\nand more")
        self.told.append(what)


class Failing(Told):
    """One of which each test says where it fails."""


runs: list[Told] = []


@pytest.fixture(autouse=True)
def told(monkeypatch: pytest.MonkeyPatch) -> None:
    """In place of two trackers, one that keeps what it is told, and one that may fail."""
    runs.clear()
    monkeypatch.setattr(tracker, "WRITERS", {"wandb": Told, "mlflow": Failing})


def test_a_run_is_opened_written_and_closed(tmp_path: Path) -> None:
    (tmp_path / "there.json").write_text("{}")
    settings = {"plan": {"steps": 3}, "taps": (1, 2), "out": tmp_path, "seed": None}
    with tracking(["wandb", "wandb"], "train", lambda: settings) as run:
        assert run.is_asked
        run.numbers({"loss": 2, "not known": None, "not finite": float("inf")}, 1)
        run.numbers({"not known": None}, 2)
        run.results({"rows": [{"policy": "chain", "speedup": 1.5, "wins": True}, {"policy": "ar"}]})
        run.files(tmp_path / "there.json", tmp_path / "missing.json", None)
    (found,) = runs
    assert found.told == [
        ("opened", "train", {"plan.steps": 3, "taps": "1, 2", "out": str(tmp_path), "seed": None}),
        ("numbers", 1, {"loss": 2.0}),
        ("results", {"rows.chain.speedup": 1.5}),
        ("files", ["there.json"]),
        ("ended", False),
    ]


def test_rows_of_one_policy_are_told_apart() -> None:
    with tracking(["wandb"], "optimize", dict) as run:
        run.results({"rows": [{"policy": "chain", "speedup": 1}, {"policy": "chain", "speedup": 2}]})
    assert ("results", {"rows.0.speedup": 1.0, "rows.1.speedup": 2.0}) in runs[0].told


@pytest.mark.parametrize("fails_at", ["opened", "numbers", "results", "files", "ended"])
def test_a_tracker_that_fails_is_left_and_the_others_go_on(
    fails_at: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Failing, "fails_at", fails_at)
    (tmp_path / "a").write_text("")
    with tracking(["mlflow", "wandb"], "train", dict) as run:
        for step in range(3):
            run.numbers({"loss": 1.0}, step)
        run.results({"loss": 1.0})
        run.files(tmp_path / "a")
    said = capsys.readouterr().err
    assert said == f"mlflow takes no more of this run (no {fails_at} today); the work goes on without it\n"
    assert runs[1].told[-1] == ("ended", False)
    assert len(runs[1].told) == 7


def test_work_that_fails_is_said_to_the_tracker() -> None:
    with pytest.raises(KeyboardInterrupt), tracking(["wandb"], "train", dict):
        raise KeyboardInterrupt
    assert runs[0].told[-1] == ("ended", True)


def test_nothing_is_asked_and_nothing_is_done() -> None:
    def settings() -> dict[str, object]:
        raise AssertionError

    with tracking([], "train", settings) as run:
        assert not run.is_asked
        run.numbers({"loss": 1.0}, 0)
    assert runs == []


def test_a_tracker_that_is_not_installed_is_refused_before_any_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracker, "find_spec", lambda name: None)
    with pytest.raises(SimlabError, match=r'pip install "simlab\[wandb\]"'):
        check_trackers(["wandb"])
    assert 'pip install "simlab[mlflow]"' in refusal_of("optimize", "--track", "mlflow", "--out", tmp_path / "out.json")
    assert not (tmp_path / "out.json").exists()


def test_an_unknown_tracker_is_refused() -> None:
    with pytest.raises(UsageError, match="got 'tensorboard'"):
        check_trackers(["tensorboard"])
    said = refusal_of("optimize", "--track", "tensorboard")
    assert all(name in said for name in TRACKERS)


def test_no_tracker_is_imported_unasked() -> None:
    """A module that only names them must not load them: each takes seconds."""
    code = "import sys, simlab.cli.optimize; print([n for n in ('wandb', 'mlflow', 'trackio') if n in sys.modules])"
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "[]\n"
