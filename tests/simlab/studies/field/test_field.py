"""The whole field on tiny models: every step once, a table of what ran, and nothing done twice."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import pytest
from random_eagle3 import make_eagle3
from study_results import refused, value_of
from tiny_models import make_pair, write_prompts

from simlab.analysis.confirm.table import FAILED
from simlab.errors import TimeUpError
from simlab.real_runner.profile.machine import has_fast_bfloat16
from simlab.studies.field import choice
from simlab.studies.field import field as made
from simlab.studies.field.options import FULL, PACKAGED, FieldOptions, FieldSize, expected_seconds
from simlab.studies.field.rows import FieldResult
from simlab.studies.field.systems import FASTEST, PUBLISHED, System
from simlab.traces.artefacts.confirmation import Confirmation, Scalar, read_confirmation
from simlab.traces.reader import open_trace

TINY = FieldSize(2, 3, 10, (3, 8, 16), (8, 200), 1, (1, 16), 1.0, 1)
SYSTEMS = (
    System("chain", "dflash", ("chain:length=1/3",), published="chain:length=3"),
    System("ddtree", "dflash", ("ddtree:budget=2/4",), ("ddtree:budget={}",)),
    System("eagle3", "dflash", ("eagle3:budget=4,steps=1",), ("eagle3:budget={},steps=1",)),
    System("d2sd", "dflash", ("d2sd:budget=8",), ("d2sd:budget={}",)),
    System("router", "dflash", ('router:routes="ddtree:budget=4|ar",cuts=1',)),
    System("its chain", "eagle3", ("chain:length=1/2",)),
)


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
        "dtype": "float32",
    }
    return made.field(**{**asked, **more})  # type: ignore[arg-type]


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(made, "FULL", TINY)
    monkeypatch.setattr(choice, "NODES", (8, 16))
    monkeypatch.setattr(choice, "SYSTEMS", SYSTEMS)
    monkeypatch.setattr(made, "SYSTEMS", SYSTEMS)


@pytest.mark.usefixtures("tiny")
def test_every_system_stands_in_one_table(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    result = made_field(folder)
    assert "The field takes about" in capfd.readouterr().err
    found = value_of(result)
    assert found == json.loads((folder / "out" / "field.json").read_text())
    assert found["left_out"] == {"d2sd": "the channel d2sd was not recorded"}
    whole = [one for one in found["rows"] if one["slice"] == "all"]
    kinds = {name: [one["size"] for one in whole if one["system"] == name] for name in {one["system"] for one in whole}}
    assert kinds == {
        "chain": [PUBLISHED, FASTEST],
        "ddtree": ["8", "16", FASTEST],
        "eagle3": ["8", "16", FASTEST],
        "router": [FASTEST],
        "its chain": [FASTEST],
    }
    for one in whole:
        assert one["prompts"] == 3
        assert one["predicted_speedup"] > 0
        assert (one["gain_tokens"] is None) == (one["system"] == "ddtree")
        ran = one["size"] == FASTEST
        assert one["measured_prompts"] == (3 if ran else 0)
        assert all((one[name] is not None) == ran for name in ("measured_speedup", "predicted_after"))
        assert (one["optimism"] is not None) == ran
    for one in found["confirmations"]:
        own = [row for row in whole if row["drafter"] == one["drafter"] and row["size"] == FASTEST]
        assert one["policies"] == len({row["policy"] for row in own} | {"ar", "chain"})
        assert (one["rounds_equal_replay"], one["ties"]) == (True, 0)
        assert one["same_texts"] == one["texts"] > 0
    assert [one["drafter"] for one in found["confirmations"]] == ["dflash", "eagle3"]
    assert list(found["prices"]["dflash"]) == ["float32"]
    assert not result.has_failed
    manifest = open_trace(folder / "out" / "eval").manifest
    assert set(manifest.draft_sets) == {"dflash", "eagle3"}
    assert set(manifest.channels) == {"eagle3"}
    assert {one["bound"] for one in found["bounds"]} >= {"hindsight:budget=16"}


@pytest.mark.usefixtures("tiny")
def test_nothing_is_done_twice(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    before = {path: path.stat().st_mtime_ns for path in (folder / "out").rglob("*") if path.name != "field.json"}
    assert before, "the test above leaves the folder"
    assert "Each at its fastest setting on dev, by the prices float32" in made_field(folder).text()
    assert "The field takes" not in capfd.readouterr().err
    after = {path: path.stat().st_mtime_ns for path in (folder / "out").rglob("*") if path.name != "field.json"}
    assert after == before


@pytest.mark.usefixtures("tiny")
def test_minutes_are_added_to_earlier_runs(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    log = folder / "out" / "confirm-dflash" / "log.jsonl"
    before = log.read_bytes()
    nothing = value_of(made_field(folder, confirm_minutes=0.0))
    assert log.read_bytes() == before
    assert all(one["measured_speedup"] for one in nothing["rows"] if one["size"] == FASTEST and one["slice"] == "all")
    assert "The field takes" not in capfd.readouterr().err
    made_field(folder, confirm_minutes=0.5)
    assert "The field takes about" in capfd.readouterr().err
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
        ({"prices": {"float32": "x.json"}}, "the prices float32 are this machine's own; give x.json another name"),
        ({"prices": {"a100": "x.json"}}, "x.json"),
    ],
)
def test_another_field_is_refused(folder: Path, named: dict[str, object], said: str) -> None:
    assert said in refused(made_field, folder, **named)


def test_durations_are_those_of_every_step_that_makes_something() -> None:
    models = {**PACKAGED, "timed": ["bfloat16", "float32"]}
    found = expected_seconds(FULL, models, 0.05, {"dev": 40, "eval": 80})
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
    # 18 sizes, plain and draft, 5 + 2 + 1 + 3 + 1 units of channels, 4 late readings; 4 contexts, 7 samples each.
    for dtype in models["timed"]:
        assert found[f"profile dflash-{dtype}"] == pytest.approx(6 + (18 + 2 + 12 + 4) * 4 * 7 * 10 * 0.05)
        assert found[f"profile jetspec-{dtype}"] == pytest.approx(6 + (18 + 2 + 2) * 4 * 7 * 10 * 0.05)
    assert found["profile jetspec-bfloat16-after"] == pytest.approx(6 + (18 + 2 + 2) * 4 * 3 * 10 * 0.05)
    assert len(found) == 2 * (1 + 2 + len(PACKAGED["channels"])) + 10


@pytest.mark.parametrize(
    ("named", "wanted"),
    [
        ({"dtype": "float32"}, ["float32"]),
        ({"device": "cuda"}, ["bfloat16"]),
        ({}, ["bfloat16", "float32"] if has_fast_bfloat16() else ["float32"]),
        ({"quick": True}, ["bfloat16"] if has_fast_bfloat16() else ["float32"]),
    ],
)
def test_a_cpu_is_timed_in_the_dtype_that_it_is_fast_in_and_in_float32(
    named: dict[str, Any], wanted: list[str]
) -> None:
    models = made._models(FieldOptions(**named))
    assert (models["dtype"], models["timed"]) == (wanted[0], wanted)
    assert models["prices"] == {"h200": "smollm2-135m-h200-cuda_graphs"}
    assert made._cost_path("smollm2-135m-h200-cuda_graphs").is_file()
