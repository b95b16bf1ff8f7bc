"""``simlab demo``: the choice of a round, its text, and what happens without models."""

import json
from pathlib import Path

import pytest

from simlab import command_demo
from simlab.command_demo_round import chain_accepted, most_telling_round, round_text
from simlab.errors import ModelError
from simlab.main import main
from simlab.traces import reader
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


def test_the_prompts_are_four_and_our_own() -> None:
    rows = [json.loads(line) for line in command_demo.PROMPTS.read_text(encoding="utf-8").splitlines()]
    assert [row["dataset"] for row in rows] == ["maths", "code", "code", "chat"]
    assert len({row["id"] for row in rows}) == 4


@pytest.fixture
def packaged(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A made-up trace in place of the packaged one."""
    trace = write_synthetic_trace(tmp_path / "packaged", num_sequences=4, length=16)
    monkeypatch.setattr(reader, "packaged_trace", lambda: trace)
    return trace


def test_without_models_the_offline_part_is_done(
    packaged: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def unreachable(_folder: Path) -> Path:
        raise ModelError("the target could not be fetched with pip (no network)")

    monkeypatch.setattr(command_demo, "_record", unreachable)
    assert main(["demo", "--out", str(tmp_path / "demo")]) == 0
    out = capsys.readouterr().out
    assert str(packaged) in out
    assert "left out: the target could not be fetched" in out
    assert (tmp_path / "demo" / "sample.parquet").is_file()


def test_with_a_recording_all_four_parts_are_done(
    packaged: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fresh = write_synthetic_trace(tmp_path / "demo" / "trace", seed=1, num_sequences=4, length=30)
    monkeypatch.setattr(command_demo, "_decoder", lambda: spelled)
    assert main(["demo", "--out", str(tmp_path / "demo")]) == 0
    out = capsys.readouterr().out
    assert "used again" in out
    assert "Bonus token" in out
    assert out.count("hindsight:budget=64") == 2
    assert str(fresh) in out.splitlines()[-2]
