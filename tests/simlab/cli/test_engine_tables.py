"""Cost tables of engines on the command line: imported for the packaged trace, and used."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from commands import json_of, output_of, refusal_of
from made_up_costs import EMPTY, filled

from simlab.cli.main import main
from simlab.cost import GRID_STAGES
from simlab.studies.inputs.prices import cost_table_of
from simlab.traces.artefacts.cost import read_cost_file, write_cost_file

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


def test_an_sglang_table_prices_a_replay(table: Path, tmp_path: Path) -> None:
    out = tmp_path / "cost.json"
    said = json_of("import", table, "--batch", "4", "--plain-s", "0.01", "--out", out, "--json")
    assert any("Steps of 4 to 7 tokens were not timed" in one for one in said["checks"])
    assert any("within the seconds of verify" in one for one in said["notes"])
    rows = json_of("replay", "--batch", "4", "--cost", out, "-p", "chain", "--json")["rows"]
    assert all(row["tokens_per_s"] > 0 for row in rows if row["name"] == "chain")


def test_vllms_curves_have_a_drafter(tmp_path: Path) -> None:
    table, out = tmp_path / "curves.json", tmp_path / "cost.json"
    table.write_text(json.dumps(CURVES))
    said = output_of("import", table, "--batch", "8", "--out", out)
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
def test_what_does_not_fit_is_one_sentence(table: Path, tmp_path: Path, arguments: list[str], said: str) -> None:
    out = tmp_path / "cost.json"
    error = refusal_of("import", table, "--out", out, *arguments)
    assert any(one in error for one in said.split("|"))
    assert not out.exists()


@pytest.fixture
def measured(tmp_path: Path) -> Path:
    path = tmp_path / "measured.json"
    file = filled()
    write_cost_file(
        path, replace(file, batch=4, contexts=(64,), samples={c: s for c, s in file.samples.items() if c[2] == 64})
    )
    return path


@pytest.mark.parametrize(
    ("file_format", "stages"), [("sglang-sps", GRID_STAGES), ("vllm-curves", ("verify",))], ids=["sglang", "vllm"]
)
def test_what_is_exported_is_imported(
    measured: Path, tmp_path: Path, capsys: Capture, file_format: str, stages: tuple[str, ...]
) -> None:
    """At every number of drafted tokens that was timed; between them the engines round, and cost files do not."""
    table, again = tmp_path / "table.json", tmp_path / "again.json"
    assert main(["export", "--format", file_format, "--cost", str(measured), "--out", str(table)]) == 0
    assert "context of 64 tokens" in capsys.readouterr().err
    assert main(["import", str(table), "--batch", "4", "--out", str(again)]) == 0
    before, after = (cost_table_of(read_cost_file(path)) for path in (measured, again))
    for number in EMPTY.node_counts:
        wanted = sum(float(before.curve(stage, 64)[number]) for stage in stages)
        assert float(after.curve("verify", 64)[number]) == pytest.approx(wanted)
    if file_format == "vllm-curves":
        assert after.seconds["draft"].max() == pytest.approx(float(before.curve("draft", 64)[7]))


def test_batch_sizes_share_a_table(measured: Path, tmp_path: Path) -> None:
    one = tmp_path / "one.json"
    write_cost_file(one, filled())
    files = ["--cost", str(measured), "--cost", str(one)]
    value = json_of("export", "--format", "sglang-sps", *files)
    assert value["sample_batch_tokens"] == [1, 2, 4, 8, 9, 36, 65, 260]
    assert [size for size, _ in json_of("export", "--format", "vllm-curves", *files)["draft_curve"]] == [1, 4]
    assert "two cost files" in refusal_of("export", "--format", "vllm-curves", *files, "--cost", one)
    assert main(["export", "--format", "sglang-sps", "--limit", "3"]) == 2
    assert "needs --cost FILE" in refusal_of("export", "--format", "sglang-sps")


def test_temperatures_are_in_sglangs_form() -> None:
    value = json_of("export", "--format", "sglang-sts")
    assert set(value) == {"temperatures", "dataset", "num_samples"}
    assert all(one > 0 for one in value["temperatures"])
    assert value["num_samples"] > 1000
