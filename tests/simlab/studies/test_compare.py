"""Comparisons of result files, tables and traces: which two are held against each other, on which prompts."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from made_up_costs import filled
from study_results import refused, rows_of, value_of
from summary_rows import as_measured
from synthetic_traces import SyntheticHeads, write_synthetic_trace

import simlab
from simlab.studies.compare import compare
from simlab.traces.artefacts.cost import write_cost_file
from simlab.traces.results.files import read_results, write_results

TREE = "ddtree:budget=8"
MEASURES = {"tokens_per_s", "speedup", "acceptance_length", "acceptance_length_macro"}


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_synthetic_trace(tmp_path_factory.mktemp("compare") / "trace", num_sequences=60, length=40)


@pytest.fixture(scope="module")
def results(trace: Path, cost: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("results") / "results.parquet"
    simlab.replay(trace, [TREE, "chain"], cost=cost, out=path)
    return path


def changed(results: Path, out: Path, *changes: pl.Expr, **named: pl.Expr) -> Path:
    """The same rows with other columns."""
    write_results(out, read_results(results).with_columns(*changes, **named))
    return out


def by_measure(value: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The rows of a comparison of one pair by their measure."""
    return {row["measure"]: row for row in value["rows"]}


def test_two_policies_of_one_file_have_the_figures_of_replay(results: Path) -> None:
    value = value_of(compare(results))
    assert list(value) == ["A", "measure", "verdicts", "left_out", "rows"]
    assert (value["measure"], set(by_measure(value))) == ("tokens_per_s", MEASURES)
    replayed = rows_of(simlab.inspect(str(results)))
    turned = by_measure(value_of(compare(results, ["chain"], against=TREE)))
    for measure, row in by_measure(value).items():
        assert (row["first"], row["second"], row["prompts"]) == (TREE, "chain", 45)
        assert row["first_value"] == pytest.approx(replayed[TREE][measure])
        assert row["second_value"] == pytest.approx(replayed["chain"][measure])
        assert row["ratio"] == pytest.approx(row["first_value"] / row["second_value"])
        assert turned[measure]["ratio"] == pytest.approx(1 / row["ratio"])
        assert turned[measure]["difference"] == pytest.approx(-row["difference"])
        assert turned[measure]["p_value"] == pytest.approx(row["p_value"])


def test_a_worse_drafter_is_seen_in_two_traces(trace: Path, tmp_path: Path) -> None:
    """The same prompts; this drafter is less often right, as one that reads a wrong layer would be."""
    heads = SyntheticHeads(first_acceptance=0.45)
    worse = write_synthetic_trace(tmp_path / "worse", num_sequences=60, length=40, heads=heads)
    value = value_of(compare(trace, [TREE], second=worse))
    assert value["measure"] == "acceptance_length"
    assert value["verdicts"][0].startswith(f"{TREE} (A) has a longer acceptance length than {TREE} (B) by ")


def test_two_machines_on_one_trace(trace: Path, cost: Path, tmp_path: Path) -> None:
    file, slow = filled(), tmp_path / "slow.json"
    samples = {cell: tuple(1.5 * one for one in seconds) for cell, seconds in file.samples.items()}
    write_cost_file(slow, replace(file, samples=samples))
    value = value_of(compare(trace, [TREE], cost=[str(cost), str(slow)]))
    assert by_measure(value)["tokens_per_s"]["ratio"] == pytest.approx(1.5)
    assert by_measure(value)["speedup"]["ratio"] == pytest.approx(1.0)
    assert value["verdicts"][0].startswith(f"{TREE} (A) is faster than {TREE} (B) by 50.0 %")


def test_prompts_of_one_side_are_named_and_left_out(results: Path, tmp_path: Path) -> None:
    rows, fewer = read_results(results), tmp_path / "fewer.parquet"
    gone = rows["prompt_id"].unique(maintain_order=True)[:7].to_list()
    write_results(fewer, rows.filter(~pl.col("prompt_id").is_in(gone)))
    table = compare(results, [TREE], second=fewer)
    value = value_of(table)
    assert {prompt for _, prompt in value["left_out"][f"{TREE} (A)"]} == set(gone)
    assert f"{TREE} (B)" not in value["left_out"]
    assert value["rows"][0]["prompts"] == 38
    assert f"7 of {TREE} (A): " in table.text()
    assert "and 2 more (all with --json)" in table.text()
    other = changed(results, tmp_path / "other.parquet", dataset=pl.lit("elsewhere"))
    assert "no prompt that both have" in refused(compare, results, second=other)


def test_what_cannot_be_compared_is_refused(results: Path, trace: Path, tmp_path: Path) -> None:
    assert "needs latencies" in refused(compare, trace, measure="speedup")
    rows, both = read_results(results), tmp_path / "both.parquet"
    write_results(both, pl.concat([rows, as_measured(rows)]))
    assert "choose with --kind" in refused(compare, both)
    assert ", measured" in str(value_of(compare(both, kind="measured"))["A"])
