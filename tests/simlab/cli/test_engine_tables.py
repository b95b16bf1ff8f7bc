"""Cost tables of engines on the command line: imported for the packaged trace, and used."""

import json
from pathlib import Path

import pytest

from simlab.cli.main import main

Capture = pytest.CaptureFixture[str]

SAMPLED = {
    "sample_batch_tokens": [8, 16, 64, 256],
    "sample_steps_per_sec": [90.0, 85.0, 60.0, 20.0],
    "max_batch_tokens": 256,
}
CURVES = {"draft_curve": [[1, 1.0], [8, 2.0]], "verify_curve": [[1, 10.0], [8, 10.5], [64, 12.0], [512, 40.0]]}


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "dspark_sps.json"
    path.write_text(json.dumps(SAMPLED))
    return path


def test_an_sglang_table_prices_a_replay(table: Path, tmp_path: Path, capsys: Capture) -> None:
    out = tmp_path / "cost.json"
    assert main(["import-cost", str(table), "--batch", "4", "--plain-s", "0.01", "--out", str(out), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert any("Steps of 4 to 7 tokens were not timed" in one for one in said["checks"])
    assert any("within the seconds of verify" in one for one in said["notes"])
    assert main(["replay", "--batch", "4", "--cost", str(out), "-p", "chain", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert all(row["tokens_per_s"] > 0 for row in rows if row["name"] == "chain")


def test_vllms_curves_have_a_drafter(tmp_path: Path, capsys: Capture) -> None:
    table, out = tmp_path / "curves.json", tmp_path / "cost.json"
    table.write_text(json.dumps(CURVES))
    assert main(["import-cost", str(table), "--batch", "8", "--out", str(out)]) == 0
    said = capsys.readouterr().out
    assert "draft takes 0.002 s everywhere" in said
    assert "Probes of 1 tokens cannot occur" in said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--counts", "drafted-only"], "--counts is for CSV"),
        (["--format", "vllm-bench"], "it looks like sglang-sps"),
        (["--format", "timings"], "is not a list of objects|--counts"),
        (["--draft-s", "0.1"], "leave out --draft-s"),
        (["--batch", "300"], "have at least one each"),
    ],
)
def test_what_does_not_fit_is_one_sentence(
    table: Path, tmp_path: Path, capsys: Capture, arguments: list[str], said: str
) -> None:
    out = tmp_path / "cost.json"
    assert main(["import-cost", str(table), "--out", str(out), *arguments]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert any(one in error for one in said.split("|"))
    assert not out.exists()
