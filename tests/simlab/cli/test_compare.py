"""``simlab compare``, from end to end on made-up traces and result files."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from commands import json_of, output_of, refusal_of
from made_up_costs import filled
from summary_rows import as_measured

from simlab.cli.main import main
from simlab.traces.artefacts.cost import write_cost_file
from simlab.traces.results.files import read_results, write_results
from simlab.traces.synthetic import SyntheticHeads, write_synthetic_trace

TREE = "ddtree:budget=8"


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_synthetic_trace(tmp_path_factory.mktemp("compare") / "trace", num_sequences=60, length=40)


@pytest.fixture(scope="module")
def worse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same prompts; the drafter of another trace is less often right, as one that reads a wrong layer would be."""
    heads = SyntheticHeads(first_acceptance=0.45)
    place = tmp_path_factory.mktemp("worse") / "trace"
    return write_synthetic_trace(place, num_sequences=60, length=40, heads=heads)


@pytest.fixture(scope="module")
def results(trace: Path, cost: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("results") / "results.parquet"
    arguments = ["replay", "--trace", str(trace), "--cost", str(cost), "-p", TREE, "-p", "chain", "--out", str(path)]
    assert main(arguments) == 0
    return path


def compared(*arguments: object) -> dict[str, Any]:
    value = json_of("compare", "--json", *arguments)
    assert all(one is None or isinstance(one, str | int | float) for row in value["rows"] for one in row.values())
    return value


def refused(*arguments: object) -> str:
    return refusal_of("compare", *arguments)


def test_a_against_a_says_no_difference(results: Path) -> None:
    text = output_of("compare", results, results, "-p", TREE)
    assert f"no difference between {TREE} (A) and {TREE} (B): their tokens/s is the same on each of 45 prompts." in text
    assert f"no difference between {TREE} and {TREE}" in output_of("compare", results, "-p", TREE, "--against", TREE)
    for verdict in compared(results, results)["verdicts"]:
        assert verdict.startswith("no difference")


def test_two_policies_of_one_file(results: Path) -> None:
    value = compared(results)
    assert value["measure"] == "tokens_per_s"
    assert {row["measure"] for row in value["rows"]} == {
        "tokens_per_s",
        "speedup",
        "acceptance_length",
        "acceptance_length_macro",
    }
    assert list(value) == ["A", "measure", "verdicts", "left_out", "rows"]
    (speed,) = [row for row in value["rows"] if row["measure"] == "tokens_per_s"]
    assert (speed["first"], speed["second"], speed["prompts"]) == (TREE, "chain", 45)
    turned = compared(results, "-p", "chain", "--against", TREE)
    (other,) = [row for row in turned["rows"] if row["measure"] == "tokens_per_s"]
    assert other["ratio"] == pytest.approx(1 / speed["ratio"])
    assert other["difference"] == pytest.approx(-speed["difference"])
    assert other["p_value"] == pytest.approx(speed["p_value"])


def test_values_are_those_of_replay(results: Path) -> None:
    value = compared(results)
    replayed = {row["policy"]: row for row in json_of("inspect", "--json", results)["rows"]}
    for row in value["rows"]:
        assert row["first_value"] == pytest.approx(replayed[TREE][row["measure"]])
        assert row["second_value"] == pytest.approx(replayed["chain"][row["measure"]])


def test_a_planted_difference_between_two_files_is_found(results: Path, tmp_path: Path) -> None:
    planted = tmp_path / "planted.parquet"
    write_results(planted, read_results(results).with_columns(pl.col("verify_s") * 1.1))
    value = compared(results, planted, "-p", TREE)
    assert value["verdicts"][0].startswith(f"{TREE} (A) is faster than {TREE} (B) by ")
    lengths = [row for row in value["rows"] if row["measure"] == "acceptance_length"]
    assert [row["equal"] for row in lengths] == [True]


def test_a_worse_drafter_is_found_in_two_traces(trace: Path, worse: Path) -> None:
    value = compared(trace, worse, "-p", TREE)
    assert value["measure"] == "acceptance_length"
    assert value["verdicts"][0].startswith(f"{TREE} (A) has a longer acceptance length than {TREE} (B) by ")
    for verdict in compared(trace, trace, "-p", "chain:length=2/4")["verdicts"]:
        assert verdict.startswith("no difference")


def test_two_machines_on_one_trace(trace: Path, cost: Path, tmp_path: Path) -> None:
    slow = tmp_path / "slow.json"
    file = filled()
    samples = {cell: tuple(1.5 * one for one in seconds) for cell, seconds in file.samples.items()}
    write_cost_file(slow, replace(file, samples=samples))
    value = compared(trace, "--cost", cost, "--cost", slow, "-p", TREE)
    ratios = {row["measure"]: row["ratio"] for row in value["rows"]}
    assert ratios["tokens_per_s"] == pytest.approx(1.5)
    assert ratios["speedup"] == pytest.approx(1.0)
    assert value["verdicts"][0].startswith(f"{TREE} (A) is faster than {TREE} (B) by 50.0 %")


def test_prompts_of_one_side_are_named_and_left_out(results: Path, tmp_path: Path) -> None:
    rows = read_results(results)
    gone = rows["prompt_id"].unique(maintain_order=True)[:7].to_list()
    fewer = tmp_path / "fewer.parquet"
    write_results(fewer, rows.filter(~pl.col("prompt_id").is_in(gone)))
    value = compared(results, fewer, "-p", TREE)
    assert {prompt for _, prompt in value["left_out"][f"{TREE} (A)"]} == set(gone)
    assert f"{TREE} (B)" not in value["left_out"]
    assert value["rows"][0]["prompts"] == 38
    text = output_of("compare", results, fewer, "-p", TREE)
    assert f"7 of {TREE} (A): " in text
    assert "and 2 more (all with --json)" in text
    other = tmp_path / "other.parquet"
    write_results(other, rows.with_columns(dataset=pl.lit("elsewhere")))
    assert "no prompt that both have" in refused(results, other)


@pytest.mark.parametrize("by", ["dataset", "context", "turn"])
def test_slices_hold_every_prompt(results: Path, by: str) -> None:
    value = compared(results, "--by", by, "--measure", "acceptance_length")
    rows = [row for row in value["rows"] if row["measure"] == "acceptance_length"]
    assert rows[-1]["slice"] is None
    assert len(value["verdicts"]) == len(rows) > 1
    assert sum(row["prompts"] for row in rows[:-1]) >= rows[-1]["prompts"]
    assert {row["family"] for row in rows[:-1]} == {len(rows) - 1}
    text = output_of("compare", results, "--by", by)
    assert f"\n{by} {rows[0]['slice']}: " in text
    assert "\nall: " in text
    assert "Holm" in text or len(rows) == 2


def test_what_cannot_be_compared_is_refused(results: Path, trace: Path) -> None:
    assert "has no policy `nothing`; it has" in refused(results, "-p", "nothing")
    assert "name those to compare" in refused(results, "-p", TREE)
    assert "--draft and --limit are for traces" in refused(results, "--limit", 3)
    assert "no measured rows" in refused(results, "--kind", "measured")
    assert "choose one with --cost ID" in refused(results, "--cost", "other")
    assert "may be given twice" in refused(results, *("--cost", "a") * 3)
    assert "needs latencies" in refused(trace, "--measure", "speedup")
    assert "measures nothing" in refused(trace, "--kind", "measured")
    assert "--against takes one policy" in refused(trace, "--against", "chain:length=1/2")
    assert refused(results.parent / "none.parquet")


def test_a_file_of_both_kinds_needs_a_choice(results: Path, tmp_path: Path) -> None:
    rows = read_results(results)
    both = tmp_path / "both.parquet"
    write_results(both, pl.concat([rows, as_measured(rows)]))
    assert "choose with --kind" in refused(both)
    assert ", measured" in compared(both, "--kind", "measured")["A"]
