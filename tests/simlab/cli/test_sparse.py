"""``simlab sparse``, from end to end on made-up traces."""

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from made_up_costs import filled
from summary_rows import as_measured

from simlab.analysis.sparse.figures import sparse_figure
from simlab.analysis.sparse.logs import ESTIMATORS, MEAN, NEAREST
from simlab.cli.main import main
from simlab.traces.artefacts.cost import write_cost_file
from simlab.traces.results.files import read_results, write_results
from simlab.traces.synthetic import write_synthetic_trace


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_synthetic_trace(tmp_path_factory.mktemp("sparse") / "trace", num_sequences=24, length=40)


@pytest.fixture(scope="module")
def cost(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("prices") / "cost.json"
    write_cost_file(path, filled())
    return path


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert main(["sparse", "--json", *arguments]) == 0
    value: dict[str, Any] = json.loads(capsys.readouterr().out)
    return value


def test_dense_figures_are_those_of_replay(trace: Path, cost: Path, capsys: pytest.CaptureFixture[str]) -> None:
    value = said(capsys, "--trace", str(trace), "--cost", str(cost), "-p", "chain", "-p", "ddtree:budget=4/9")
    assert main(["replay", "--trace", str(trace), "--cost", str(cost), "-p", "ddtree:budget=4/9", "--json"]) == 0
    replayed = {row["policy"]: row for row in json.loads(capsys.readouterr().out)["rows"]}
    for row in value["rows"]:
        assert row["dense"] == pytest.approx(replayed[row["policy"]][row["measure"]])
        own = row["policy"] == "chain"
        assert own == (row["mean_over_dense"] == row["nearest_over_dense"] == 1)
        assert own == (row["starts_recorded_share"] == 1)
        if own:
            assert row["mean"] == row["nearest"] == row["dense"]
            assert not row["mean_differs"]
            assert row["mean_over_dense_ci_low"] == row["mean_over_dense_ci_high"] == 1
    (log,) = value["logs"]
    assert log["rows"] == replayed["chain"]["rounds"]
    assert log["roots"] == replayed["autoregressive"]["rounds"]
    found = {(row["policy"], row["measure"]): row for row in value["rows"]}
    for (policy, measure), row in found.items():
        for source in ("dense", MEAN, NEAREST):
            gain = row.get(f"{source}_gain", 1)
            assert gain == pytest.approx(row[source] / found["chain", measure][source])
        assert (policy == "chain") == ("dense_gain" not in row)
        for name in ESTIMATORS:
            assert row[f"{name}_over_dense"] == pytest.approx(row[name] / row["dense"])
    for row in value["borrowed"]:
        rounds = replayed[row["policy"]]["rounds"]
        shares = {one["starts_recorded_share"] for one in value["rows"] if one["policy"] == row["policy"]}
        assert list(shares) == [pytest.approx(1 - (row["earlier_rounds"] + row["later_rounds"]) / rounds)]
        assert (row["policy"] == "chain") == (row["earlier_own"] is row["later_own"] is None)
    for one in value["choices"]:
        some = {policy: row for (policy, measure), row in found.items() if measure == one["measure"]}
        top = max(some, key=lambda policy: some[policy][one["source"]])
        best = max(row["dense"] for row in some.values())
        assert (one["policy"], one["lost_share"]) == (top, pytest.approx(1 - some[top]["dense"] / best))


def test_a_measurement_stands_beside_it(
    trace: Path, cost: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Measured rows that are the replay's own: the dense prediction is then without error."""
    folder = tmp_path / "confirmed"
    out = folder / "results.parquet"
    arguments = ["--trace", str(trace), "--cost", str(cost)]
    assert main(["replay", *arguments, "-p", "ddtree:budget=4", "--out", str(out)]) == 0
    capsys.readouterr()
    rows = read_results(out)
    first = rows["prompt_id"][0]
    made = rows.filter((pl.col("name") != "hindsight") & (pl.col("prompt_id") != first))
    write_results(out, as_measured(made))
    value = said(capsys, *arguments, "--measured", str(folder), "-p", "ddtree:budget=4/9")
    found = {(row["policy"], row["measure"]): row for row in value["rows"]}
    assert {row["prompts"] for row in value["rows"]} == {rows["prompt_id"].n_unique() - 1}
    near = found["ddtree:budget=4", "tokens_per_s"]
    assert near["measured"] == pytest.approx(near["dense"])
    assert near["dense_over_measured"] == pytest.approx(1)
    assert near["nearest_over_measured"] == pytest.approx(near["nearest_over_dense"])
    assert near["measured_gain"] == pytest.approx(near["dense_gain"])
    assert found["ddtree:budget=9", "tokens_per_s"]["measured"] is None
    assert {one["source"] for one in value["choices"]} == {"dense", "measured", MEAN, NEAREST}
    assert main(["sparse", *arguments, "--measured", str(out), "-p", "ddtree:budget=4/9"]) == 0
    text = capsys.readouterr().out
    assert "1 prompts of the trace" in text
    assert "against it, %" in text


def test_the_figure_shows_the_rows(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    logs = ["--recorded", "chain", "--recorded", "ddtree:budget=8"]
    rows = said(capsys, "--trace", str(trace), *logs, "-p", "ddtree:budget=4")["rows"]
    drawn: list[dict[str, Any]] = sparse_figure(rows, "acceptance_length").to_plotly_json()["data"]
    wanted = {(row["recorded_policy"], row["policy"]): row for row in rows if row["measure"] == "acceptance_length"}
    assert len(drawn) == 4
    for place, one in enumerate(drawn):
        log, name = ("chain", "ddtree:budget=8")[place // 2], (MEAN, NEAREST)[place % 2]
        for policy, x, above in zip(one["y"], one["x"], one["error_x"]["array"], strict=True):
            row = wanted.pop((log, policy)) if name == NEAREST else wanted[log, policy]
            assert x == pytest.approx(100 * (row[f"{name}_over_dense"] - 1))
            assert x + above == pytest.approx(100 * (row[f"{name}_over_dense_ci_high"] - 1))
    assert set(wanted) == {("chain", "chain"), ("ddtree:budget=8", "ddtree:budget=8")}


def test_several_logs_without_prices(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--trace", str(trace), "--recorded", "chain:length=1", "--recorded", "ddtree:budget=8"]
    value = said(capsys, *arguments, "-p", "ddtree:budget=4")
    assert [one["recorded_policy"] for one in value["logs"]] == ["chain:length=1", "ddtree:budget=8"]
    assert {row["measure"] for row in value["rows"]} == {"acceptance_length", "acceptance_length_macro"}
    assert main(["sparse", *arguments]) == 0
    text = capsys.readouterr().out
    assert text.count("recorded only where rounds of") == 2
    assert "No speeds" in text
    assert "tokens/s over" not in text


def test_the_packaged_trace(capsys: pytest.CaptureFixture[str]) -> None:
    value = said(capsys, "--limit", "3", "-p", "ddtree:budget=8")
    assert value["cost"] is not None
    assert [row["policy"] for row in value["rows"]] == ["chain", "ddtree:budget=8"] * 3


def test_a_hypothetical_machine_is_that_of_replay(trace: Path, cost: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A target that is twice as fast is so in plain decoding too, and the heading says what was scaled."""
    asked = ("--trace", str(trace), "--cost", str(cost), "-p", "ddtree:budget=4", "--what-if", "verify*0.5")
    value = said(capsys, *asked)
    assert main(["replay", "--json", *asked]) == 0
    replayed = json.loads(capsys.readouterr().out)
    assert value["cost"] == replayed["cost"][1]
    rows = {(row["policy"], row["cost_id"]): row for row in replayed["rows"]}
    found = {(row["policy"], row["measure"]): row["dense"] for row in value["rows"]}
    assert {measure for _, measure in found} >= {"tokens_per_s", "acceptance_length"}
    for (policy, measure), dense in found.items():
        assert dense == pytest.approx(rows[policy, value["cost"]][measure])
    assert main(["sparse", *asked]) == 0
    assert f"latency  WHAT IF verify*0.5,plain*0.5 ({value['cost']}), hypothetical" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--recorded", "ar"], "depends on the root alone"),
        (["-p", "price:budget=16"], "depends on the root alone"),
        (["-p", "nothing"], "no policy `nothing`"),
        (["--measured", "/does/not/exist"], "/does/not/exist"),
        (["--draft", "other"], "no draft set"),
        (["--what-if", "verfy*2"], "no stage"),
        (["--what-if", "verify*2", "--measured", "runs"], "--measured is of a real machine"),
        (["-p", "ddtree:budget=999"], "exact up to 64"),
    ],
)
def test_a_mistake_is_one_sentence(
    arguments: list[str], told: str, trace: Path, cost: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sparse", "--trace", str(trace), "--cost", str(cost), *arguments]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert told in err


def test_a_measurement_of_something_else(trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "results.parquet"
    assert main(["replay", "--trace", str(trace), "-p", "ddtree:budget=4", "--out", str(out)]) == 0
    capsys.readouterr()
    assert main(["sparse", "--trace", str(trace), "--measured", str(out)]) == 2
    assert "no measured rows" in capsys.readouterr().err
    rows = read_results(out)
    alien = as_measured(rows).with_columns(pl.format("x{}", "prompt_id").alias("prompt_id"))
    write_results(out, alien)
    assert main(["sparse", "--trace", str(trace), "--measured", str(out), "-p", "ddtree:budget=4"]) == 2
    assert "no prompt that the trace and the measurement both have" in capsys.readouterr().err
