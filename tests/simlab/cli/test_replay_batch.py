"""``simlab replay --batch N`` from end to end."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from commands import json_of, output_of, refusal_of
from made_up_costs import filled

from simlab.traces.artefacts.cost import write_cost_file
from simlab.traces.results.files import read_results
from simlab.traces.synthetic import write_synthetic_trace


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_synthetic_trace(tmp_path_factory.mktemp("batch") / "trace", num_sequences=6, length=40)


@pytest.fixture(scope="module")
def costs(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """Made-up prices of one text at a time, and the same numbers as prices of several."""
    folder = tmp_path_factory.mktemp("prices")
    paths = {batch: folder / f"cost{batch}.json" for batch in (1, 3)}
    for batch, path in paths.items():
        write_cost_file(path, replace(filled(), batch=batch))
    return paths


def replayed(trace: Path, *arguments: str) -> dict[str, dict[str, Any]]:
    return {row["policy"]: row for row in json_of("replay", "--trace", trace, "--json", *arguments)["rows"]}


JOINT, SINGLE = "joint:budget=9", "ddtree:budget=9"


def test_a_batch_of_one_is_the_ordinary_replay(trace: Path, costs: dict[int, Path]) -> None:
    asked = ("-p", JOINT, "-p", SINGLE, "--cost", str(costs[1]))
    alone, served = replayed(trace, *asked), replayed(trace, *asked, "--batch", "1")
    for label, row in served.items():
        for name, value in row.items():
            if isinstance(value, float):
                assert value == pytest.approx(alone[label][name])
            else:
                assert value == alone[label][name]
    columns = ("rounds", "committed", "tokens_per_s", "acceptance_length")
    assert [served[JOINT][name] for name in columns] == [served[SINGLE][name] for name in columns]
    assert not any("hindsight" in label for label in served)


def test_a_batch_shares_its_budget_out_and_waits_together(trace: Path, costs: dict[int, Path], tmp_path: Path) -> None:
    out = tmp_path / "results.parquet"
    typed = ["-p", JOINT, "-p", SINGLE, "-p", "ddtree:budget=3", "--cost", str(costs[3]), "--batch", "3"]
    rows = replayed(trace, *typed, "--out", str(out))
    drafted = rows[JOINT]["drafted"] / rows[JOINT]["rounds"]
    assert 2 < drafted < 4
    assert rows[SINGLE]["drafted"] == 9 * rows[SINGLE]["rounds"]
    assert rows[SINGLE]["rounds"] < rows[JOINT]["rounds"]
    alone = replayed(trace, *typed[:-2])
    assert rows[SINGLE]["rounds"] == alone[SINGLE]["rounds"]
    # Equal trees at about equal contexts: nearly the price of each text by itself.
    assert rows["ddtree:budget=3"]["tokens_per_s"] == pytest.approx(alone["ddtree:budget=3"]["tokens_per_s"], rel=0.02)
    kept = read_results(out)
    assert len(kept) == 6 * len(rows)
    assert set(kept["policy"]) == set(rows)
    again = tmp_path / "alone.parquet"
    replayed(trace, *typed[:-2], "--out", str(again))
    assert not set(kept["policy_id"]) & set(read_results(again)["policy_id"])
    assert {json.loads(settings).get("batch") for settings in kept["settings"]} == {3}


def test_prices_of_one_text_become_those_of_a_batch(trace: Path, costs: dict[int, Path]) -> None:
    arguments = ["replay", "--trace", str(trace), "-p", JOINT, "--batch", "3", "--cost", str(costs[1])]
    shown = output_of(*arguments)
    assert "WHAT IF batch=3" in shown
    assert "3 texts at a time, in the order of the trace" in shown
    assert "Fastest by prediction" in output_of(*arguments, "--what-if", "verify*0.5")
    assert "speeds of each of 3 texts at a time" in output_of(*arguments[:-1], costs[3])


THROUGHPUT = "joint-throughput:budget=60"


def test_a_number_by_throughput_is_chosen_by_the_prices_of_the_table(trace: Path, costs: dict[int, Path]) -> None:
    fixed = "joint:budget=2/4/8/12/16/24/36/48/60"
    typed = ["-p", THROUGHPUT, "-p", fixed, "--batch", "3", "--cost"]
    measured = replayed(trace, *typed, str(costs[3]))
    reckoned = replayed(trace, *typed, str(costs[1]))
    cheaper = replayed(trace, *typed, str(costs[1]), "--what-if", "draft*20")
    drafted = [rows[THROUGHPUT]["drafted"] / rows[THROUGHPUT]["rounds"] for rows in (measured, reckoned, cheaper)]
    # The same numbers as prices of three texts are cheaper than as prices of one.
    assert 0 < drafted[1] < drafted[0] < 20
    assert drafted[1] < drafted[2]
    for rows in (measured, reckoned):
        best = max(row["tokens_per_s"] for label, row in rows.items() if label.startswith("joint:"))
        assert rows[THROUGHPUT]["tokens_per_s"] > 0.9 * best


def test_a_number_by_throughput_for_one_text_is_caddtrees(trace: Path, costs: dict[int, Path]) -> None:
    single = "caddtree:budget=60,look_ahead=0,overhead=true"
    asked = ("-p", THROUGHPUT, "-p", single, "--cost", str(costs[1]))
    for extra in ((), ("--batch", "1")):
        rows = replayed(trace, *asked, *extra)
        for name in ("rounds", "drafted", "committed", "tokens_per_s"):
            assert rows[THROUGHPUT][name] == pytest.approx(rows[single][name])


def test_a_number_by_throughput_reads_the_prices_that_it_names(
    trace: Path, costs: dict[int, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(costs[3].parent)
    named = f"{THROUGHPUT},cost={costs[3].name}"
    rows = replayed(trace, "-p", THROUGHPUT, "-p", named, "--batch", "3", "--cost", str(costs[1]))
    assert rows[named]["drafted"] > rows[THROUGHPUT]["drafted"]


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ([THROUGHPUT], "it weighs tokens against latency, and there is no latency profile"),
        (["joint-throughput:budget=64", "--cost", "COST1"], "budget of at most 60, or measure more with"),
        (["joint-throughput", "--cost", "COST1"], "needs a budget"),
    ],
)
def test_a_number_by_throughput_without_prices_is_refused(
    typed: list[str], said: str, trace: Path, costs: dict[int, Path]
) -> None:
    arguments = [str(costs[1]) if one == "COST1" else one for one in typed]
    assert said in refusal_of("replay", "--trace", trace, "--batch", "3", "-p", *arguments)


@pytest.mark.parametrize(
    ("extra", "said"),
    [
        (["--batch", "0"], "whole number"),
        (["--batch", "2", "--cost", "COST3"], "needs a latency profile of 2 texts at a time, and this is of 3"),
        (["--batch", "2", "--rounds", "r.parquet"], "takes neither --resume nor --rounds"),
        (["--batch", "2", "--resume", "--out", "r.parquet"], "takes neither --resume nor --rounds"),
    ],
)
def test_bad_input_is_refused_in_a_sentence(extra: list[str], said: str, trace: Path, costs: dict[int, Path]) -> None:
    typed = [str(costs[3]) if one == "COST3" else one for one in extra]
    assert said in refusal_of("replay", "--trace", trace, "-p", JOINT, *typed)
