"""The demonstration of every step: the choice of a round, its text, and what happens without models."""

import json
from pathlib import Path
from typing import Any, NoReturn

import pytest
from tiny_models import make_pair

from simlab.errors import ModelError
from simlab.real_runner.record.options import RecordOptions
from simlab.studies.demo import live
from simlab.studies.demo.demo import demo
from simlab.studies.show_round import chain_accepted, most_telling_round, round_text
from simlab.traces.artefacts.optimum import read_optimum
from simlab.traces.synthetic import DRAFT, synthetic_sequences, write_synthetic_trace


def spelled(ids: list[int]) -> str:
    """Made-up tokens as text."""
    return " ".join(f"t{token}" for token in ids)


def test_the_round_shown_is_one_that_the_chain_misses() -> None:
    found = most_telling_round(record.recorded(DRAFT) for record in synthetic_sequences(num_sequences=6))
    assert found is not None
    recorded, round_ = found
    chain = chain_accepted(recorded, round_.position)
    assert round_.num_accepted > chain
    lines = round_text(recorded, round_, spelled).splitlines()
    assert sum(line.startswith("* ") for line in lines) == round_.num_accepted + 1
    assert sum(line.startswith(("* ", "  ├", "  └", "  │")) for line in lines) == round_.num_drafted + 1
    bonus = int(recorded.text[round_.position + round_.num_committed])
    assert any(line.endswith(f'"t{bonus}"') and line.startswith("Bonus") for line in lines)
    assert lines[-1].startswith(f"The round commits {round_.num_committed} tokens")


def test_where_the_tree_is_never_better_there_is_nothing_to_show() -> None:
    assert most_telling_round(record.recorded(DRAFT) for record in synthetic_sequences(length=1)) is None


def test_dev_prompts_and_fresh_prompts_are_apart() -> None:
    dev, fresh = (
        [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] for path in (live.DEV, live.FRESH)
    )
    for rows in (dev, fresh):
        assert sorted(row["dataset"] for row in rows) == ["chat"] * 2 + ["code"] * 3 + ["maths"] * 3
    assert len({row["id"] for row in dev + fresh}) == len({row["turns"][0] for row in dev + fresh}) == 16


@pytest.fixture
def packaged(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A made-up trace in place of the packaged one."""
    trace = write_synthetic_trace(tmp_path / "packaged", num_sequences=4, length=16)
    monkeypatch.setattr("simlab.studies.inputs.trace.packaged_trace", lambda: trace)
    return trace


def test_without_models_the_offline_part_is_done(
    packaged: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreachable(*_arguments: object) -> NoReturn:
        raise ModelError("the target could not be fetched with pip (no network)")

    monkeypatch.setattr(live, "live_parts", unreachable)
    text = demo(tmp_path).text()
    for part in (str(packaged), "left out", "the target could not be fetched"):
        assert part in text
    assert (tmp_path / "sample.parquet").is_file()
    assert (tmp_path / "report.html").is_file()


@pytest.fixture
def tiny(packaged: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Tiny models and eight prompts, and less to do."""
    target, drafter = make_pair(tmp_path)
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text(live.FRESH.read_text(encoding="utf-8"), encoding="utf-8")
    monkeypatch.setattr(live, "MAX_NEW_TOKENS", 24)
    monkeypatch.setattr(live, "_REPEATS", 1)
    monkeypatch.setattr(live, "SEARCHED", ("chain:length=3", "caddtree:budget=48"))
    monkeypatch.setattr(live, "_CONTEXTS", (64, 512))
    monkeypatch.setattr(live, "has_fast_bfloat16", lambda: False)
    return {"out": tmp_path / "demo", "target": str(target), "draft": str(drafter), "prompts": prompts}


def recorded_again(_options: RecordOptions) -> NoReturn:
    pytest.fail("it recorded again")


def test_the_whole_story_on_tiny_models(
    tiny: dict[str, Any], packaged: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A second run uses what is there."""
    out, first = tiny["out"], demo(**tiny).text()
    shown = capsys.readouterr().err
    assert first.lstrip().startswith("Verdict")
    assert " (predicted " in first
    best = read_optimum(out / "optimize.json").best
    assert f"6/7  {best.policy} runs on the fresh prompts" in shown
    assert [line[:3] for line in shown.splitlines() if line[1:3] == "/7"] == [f"{n}/7" for n in range(1, 8)]
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "verdict-text" in page
    summary = json.loads((out / "confirm" / "confirm.json").read_text(encoding="utf-8"))
    (row,) = [one for one in summary["rows"] if one["policy_id"] == best.policy_id]
    assert row["lossless"] == "exact"
    assert row["policy"] in page
    assert str(packaged) in first
    halves = [(out / f"{name}.jsonl").read_text(encoding="utf-8").splitlines() for name in ("dev", "fresh")]
    assert [line for pair in zip(*halves, strict=True) for line in pair] == live.FRESH.read_text().splitlines()
    monkeypatch.setattr("simlab.studies.record.write_recording", recorded_again)
    assert demo(**tiny).text() == first


def test_prompts_that_cannot_be_halved_are_refused(tiny: dict[str, Any]) -> None:
    tiny["prompts"].write_text('{"prompt": "alone"}\n')
    assert "has 1 prompts; expected four or more" in demo(**tiny).text()
