"""The whole field on tiny models: every step once, a table of what ran, and nothing done twice."""

import json
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import pytest
from random_eagle3 import make_eagle3
from study_results import refused, value_of
from tiny_models import make_pair, write_prompts

from simlab.analysis.confirm.table import FAILED
from simlab.errors import TimeUpError
from simlab.studies.field import field as made
from simlab.studies.field.options import FULL, PACKAGED, FieldSize, expected_seconds
from simlab.studies.field.rows import FieldResult
from simlab.studies.field.systems import EQUAL, FASTEST, System
from simlab.traces.artefacts.confirmation import Confirmation, Scalar, read_confirmation
from simlab.traces.reader import open_trace

TINY = FieldSize(2, 3, 10, (3, 8, 16), (8, 200), 1, (1, 16), 1.0, 0.4)
SYSTEMS = (
    System("chain", "dflash", "", ("chain:length=1/3",)),
    System("ddtree", "dflash", "ddtree:budget={nodes}", ("ddtree:budget=2/4",)),
    System("eagle3", "dflash", "eagle3:budget={nodes},steps=1", ("eagle3:budget=4,steps=1",)),
    System("d2sd", "dflash", "d2sd:budget={nodes}", ("d2sd:budget=8",)),
    System("its chain", "eagle3", "", ("chain:length=1/2",)),
)
COMPOSED = {"dflash": ("tree:budget=2/4/8", 'router:routes="ddtree:budget=4|ar",cuts=1')}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("field")
    target, drafter = make_pair(folder)
    head = make_eagle3(folder / "eagle3")
    write_prompts(folder / "dev.jsonl", 2)
    write_prompts(folder / "eval.jsonl", 5, num_turns=2)
    lines = (folder / "eval.jsonl").read_text().splitlines()
    (folder / "eval.jsonl").write_text("\n".join(lines[2:]) + "\n")
    channels = {"eagle3": {"checkpoint": str(head), "settings": {"steps": 1}, "units": [1]}}
    value = {"target": str(target), "drafters": {"dflash": str(drafter)}, "channels": channels}
    (folder / "models.json").write_text(json.dumps(value))
    return folder


def made_field(folder: Path, **more: object) -> FieldResult:
    """The field in a folder; it has a draft set and a channel of one name."""
    asked: dict[str, object] = {
        "out": folder / "out",
        "models": folder / "models.json",
        "dev": folder / "dev.jsonl",
        "prompts": folder / "eval.jsonl",
        "add_draft": [("eagle3", str(folder / "eagle3"))],
    }
    return made.field(**{**asked, **more})  # type: ignore[arg-type]


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(made, "FULL", TINY)
    monkeypatch.setattr(made, "NODES", (8, 16))
    monkeypatch.setattr(made, "COMPOSED", COMPOSED)
    monkeypatch.setattr(made, "SYSTEMS", SYSTEMS)


@pytest.mark.usefixtures("tiny")
def test_every_system_stands_in_one_table(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    result = made_field(folder)
    assert "The field takes about" in capfd.readouterr().err
    found = value_of(result)
    assert found == json.loads((folder / "out" / "field.json").read_text())
    assert found["left_out"] == {"d2sd": "the channel d2sd was not recorded"}
    whole = [one for one in found["rows"] if one["slice"] == "all"]
    assert [(one["system"], one["size"]) for one in whole] == [
        ("chain", FASTEST),
        *[(system, size) for system in ("ddtree", "eagle3") for size in ("8", "16", FASTEST)],
        ("composition", FASTEST),
        ("its chain", FASTEST),
    ]
    for one in whole:
        assert one["prompts"] == one["measured_prompts"] == 3
        assert one["predicted_speedup"] > 0
        assert one["measured_speedup"] > 0
    for one in found["confirmations"]:
        own = [row for row in whole if row["drafter"] == one["drafter"]]
        together = [row for row in own if (row["size"] == FASTEST) == (one["group"] == FASTEST)]
        assert one["policies"] == len({row["policy"] for row in together} | {"ar", "chain"})
        assert one["rounds_equal_replay"]
        assert one["same_texts"] == one["texts"] > 0
    ran = [(one["drafter"], one["group"]) for one in found["confirmations"]]
    assert ran == [("dflash", FASTEST), ("dflash", EQUAL), ("eagle3", FASTEST)]
    assert not result.has_failed
    manifest = open_trace(folder / "out" / "eval").manifest
    assert set(manifest.draft_sets) == {"dflash", "eagle3"}
    assert set(manifest.channels) == {"eagle3"}
    assert {one["bound"] for one in found["bounds"]} >= {"hindsight:budget=16"}


@pytest.mark.usefixtures("tiny")
def test_nothing_is_done_twice(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    before = {path: path.stat().st_mtime_ns for path in (folder / "out").rglob("*") if path.name != "field.json"}
    assert before, "the test above leaves the folder"
    assert "Each at its fastest setting on dev" in made_field(folder).text()
    assert "The field takes" not in capfd.readouterr().err
    after = {path: path.stat().st_mtime_ns for path in (folder / "out").rglob("*") if path.name != "field.json"}
    assert after == before


@pytest.mark.usefixtures("tiny")
def test_minutes_are_added_to_earlier_runs(folder: Path) -> None:
    log = folder / "out" / "confirm-dflash-fastest" / "log.jsonl"
    before = log.read_bytes()
    nothing = value_of(made_field(folder, confirm_minutes=0.0))
    assert log.read_bytes() == before
    assert all(one["measured_speedup"] for one in nothing["rows"] if one["slice"] == "all")
    made_field(folder, confirm_minutes=0.5)
    assert log.read_bytes().startswith(before)


@pytest.mark.usefixtures("tiny")
def test_minutes_that_are_too_few_end_no_field(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def late(*_arguments: object, **_options: object) -> NoReturn:
        raise TimeUpError("time was over")

    monkeypatch.setattr(made, "confirm", late)
    made_field(folder, confirm_minutes=0.5)
    assert "Not measured: time was over" in capfd.readouterr().err


@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize("fault", [{"lossless": FAILED}, {"counts_equal_replay": False}], ids=str)
def test_a_text_or_a_round_that_is_another_is_a_failure(
    fault: dict[str, Scalar], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def spoilt(place: Path) -> Confirmation:
        found = read_confirmation(place)
        ran = next(row for row in found.rows if row.get("lossless") is not None)
        return replace(found, rows=tuple({**row, **fault} if row is ran else dict(row) for row in found.rows))

    monkeypatch.setattr(made, "read_confirmation", spoilt)
    assert made_field(folder, confirm_minutes=0.0).has_failed


@pytest.mark.usefixtures("tiny")
def test_a_field_without_runs_is_a_prediction(folder: Path) -> None:
    value = value_of(made_field(folder, out=folder / "predicted", confirm_minutes=0.0))
    assert value["confirmations"] == []
    assert all(one["measured_speedup"] is None and one["predicted_speedup"] for one in value["rows"])


@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize(
    ("named", "said"),
    [
        ({"quick": True}, "was begun with other size; ask for the same, or give another --out"),
        ({"add_draft": [("other", "x")]}, "no system reads a draft set other; they are called dflash, eagle3"),
        ({"confirm_minutes": -0.5}, "--confirm-minutes must not be negative; got -0.5"),
    ],
)
def test_another_field_is_refused(folder: Path, named: dict[str, object], said: str) -> None:
    assert said in refused(made_field, folder, **named)


def test_durations_are_those_of_every_step_that_makes_something() -> None:
    found = expected_seconds(FULL, PACKAGED, 0.05, {"dev": 40, "eval": 80})
    positions = 40 * 96 * 0.9 * 0.05
    wanted = {
        "record": positions,
        "add draft jetspec": 0.7 * positions,
        "add channel jetspec": 3.5 * positions,
        "add channel router": 0.7 * positions,
    }
    for step, seconds in wanted.items():
        assert found[f"{step} dev"] == pytest.approx(6 + seconds)
        assert found[f"{step} eval"] == pytest.approx(6 + 2 * seconds)
    # Fourteen sizes, plain and draft, 5 + 2 + 1 + 3 + 1 units of channels, 4 late readings; 4 contexts, 7 samples each.
    assert found["profile dflash"] == pytest.approx(6 + (14 + 2 + 12 + 4) * 4 * 7 * 10 * 0.05)
    assert found["profile jetspec"] == pytest.approx(6 + (14 + 2 + 2) * 4 * 7 * 10 * 0.05)
    assert len(found) == 2 * (1 + 2 + len(PACKAGED["channels"])) + 4
