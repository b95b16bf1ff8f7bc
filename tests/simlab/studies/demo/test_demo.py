"""``simlab demo``: the choice of a round, its text, and what happens without models."""

import json
from pathlib import Path
from typing import NoReturn

import pytest
from commands import output_of
from tiny_models import make_pair

from simlab.cli.main import main
from simlab.errors import ModelError
from simlab.real_runner.record.options import RecordOptions
from simlab.studies.demo import live
from simlab.studies.show_round import chain_accepted, most_telling_round, round_text
from simlab.traces.artefacts.optimum import read_optimum
from simlab.traces.synthetic import DRAFT, synthetic_sequences, write_synthetic_trace


def spelled(ids: list[int]) -> str:
    """Made-up tokens as text."""
    return " ".join(f"t{token}" for token in ids)


def test_the_round_shown_is_one_that_the_chain_misses() -> None:
    found = most_telling_round(record.recorded(DRAFT) for record in synthetic_sequences(num_sequences=6))
    assert found is not None
    recorded, one = found
    chain = chain_accepted(recorded, one.position)
    assert one.num_accepted > chain
    lines = round_text(recorded, one, spelled).splitlines()
    assert sum(line.startswith("* ") for line in lines) == one.num_accepted + 1
    assert sum(line.startswith(("* ", "  ├", "  └", "  │")) for line in lines) == one.num_drafted + 1
    bonus = int(recorded.text[one.position + one.num_committed])
    assert any(line.endswith(f'"t{bonus}"') and line.startswith("Bonus") for line in lines)
    assert lines[-1].startswith(f"The round commits {one.num_committed} tokens")


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
    out = output_of("demo", "--out", tmp_path / "demo")
    assert str(packaged) in out
    assert "left out" in out
    assert "the target could not be fetched" in out
    assert (tmp_path / "demo" / "sample.parquet").is_file()
    assert (tmp_path / "demo" / "report.html").is_file()


@pytest.fixture
def tiny(packaged: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The command with tiny models and eight prompts, and less to do."""
    target, drafter = make_pair(tmp_path)
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text("".join(live.FRESH.read_text(encoding="utf-8").splitlines(keepends=True)))
    monkeypatch.setattr(live, "MAX_NEW_TOKENS", 24)
    monkeypatch.setattr(live, "_REPEATS", 1)
    monkeypatch.setattr(live, "SEARCHED", ("chain:length=3", "caddtree:budget=48"))
    monkeypatch.setattr(live, "_CONTEXTS", (64, 512))
    monkeypatch.setattr(live, "has_fast_bfloat16", lambda: False)
    models = ["--target", str(target), "--draft", str(drafter), "--prompts", str(prompts)]
    return ["demo", "--out", str(tmp_path / "demo"), *models]


def test_the_whole_story_on_tiny_models(
    tiny: list[str], packaged: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(tiny) == 0
    shown = capsys.readouterr()
    assert shown.out.lstrip().startswith("Verdict")
    assert "times as many tokens/s as autoregressive decoding (predicted " in shown.out
    best = read_optimum(tmp_path / "demo" / "optimize.json").best
    assert f"6/7  {best.policy} runs on the fresh prompts" in shown.err
    assert [line[:3] for line in shown.err.splitlines() if line[1:3] == "/7"] == [f"{n}/7" for n in range(1, 8)]
    page = (tmp_path / "demo" / "report.html").read_text(encoding="utf-8")
    assert "verdict-text" in page
    summary = json.loads((tmp_path / "demo" / "confirm" / "confirm.json").read_text(encoding="utf-8"))
    (row,) = [one for one in summary["rows"] if one["policy_id"] == best.policy_id]
    assert row["lossless"] == "exact"
    assert row["policy"] in page
    assert str(packaged) in shown.out
    halves = [
        (tmp_path / "demo" / f"{name}.jsonl").read_text(encoding="utf-8").splitlines() for name in ("dev", "fresh")
    ]
    assert [line for pair in zip(*halves, strict=True) for line in pair] == live.FRESH.read_text().splitlines()


def test_prompts_that_cannot_be_halved_are_refused(tiny: list[str], tmp_path: Path) -> None:
    (tmp_path / "prompts.jsonl").write_text('{"prompt": "alone"}\n')
    assert "has 1 prompts; expected four or more" in output_of(*tiny)


def recorded_again(_options: RecordOptions) -> NoReturn:
    pytest.fail("it recorded again")


def test_a_second_run_uses_what_is_there(tiny: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    first = output_of(*tiny)
    monkeypatch.setattr("simlab.studies.record.write_recording", recorded_again)
    assert output_of(*tiny) == first
