"""Several texts at a time: rounds that wait together, budgets that are shared out, and the prices of a batch."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from made_up_costs import filled
from study_results import refused, rows_of
from synthetic_traces import write_synthetic_trace

from simlab.studies.replay.replay import replay
from simlab.traces.artefacts.cost import write_cost_file
from simlab.traces.results.files import read_results

JOINT, SINGLE, THROUGHPUT = "joint:budget=9", "ddtree:budget=9", "joint-throughput:budget=60"


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


def test_a_batch_of_one_is_the_ordinary_replay(trace: Path, costs: dict[int, Path]) -> None:
    alone, served = (rows_of(replay(trace, [JOINT, SINGLE], cost=costs[1], batch=batch)) for batch in (None, 1))
    for label, row in served.items():
        assert row == {name: pytest.approx(value) for name, value in alone[label].items()}
    columns = ("rounds", "committed", "tokens_per_s", "acceptance_length")
    assert [served[JOINT][name] for name in columns] == [served[SINGLE][name] for name in columns]
    assert not any("hindsight" in label for label in served)


def test_a_batch_shares_its_budget_out_and_waits_together(trace: Path, costs: dict[int, Path], tmp_path: Path) -> None:
    out, again = tmp_path / "results.parquet", tmp_path / "alone.parquet"
    policies = [JOINT, SINGLE, "ddtree:budget=3"]
    rows = rows_of(replay(trace, policies, cost=costs[3], batch=3, out=out))
    alone = rows_of(replay(trace, policies, cost=costs[3], out=again))
    assert 2 < rows[JOINT]["drafted"] / rows[JOINT]["rounds"] < 4
    assert rows[SINGLE]["drafted"] == 9 * rows[SINGLE]["rounds"]
    assert alone[SINGLE]["rounds"] == rows[SINGLE]["rounds"] < rows[JOINT]["rounds"]
    # Equal trees at about equal contexts: nearly the price of each text by itself.
    assert rows["ddtree:budget=3"]["tokens_per_s"] == pytest.approx(alone["ddtree:budget=3"]["tokens_per_s"], rel=0.02)
    kept = read_results(out)
    assert (len(kept), set(kept["policy"])) == (6 * len(rows), set(rows))
    assert not set(kept["policy_id"]) & set(read_results(again)["policy_id"])
    assert {json.loads(settings).get("batch") for settings in kept["settings"]} == {3}


def test_a_number_by_throughput_is_chosen_by_the_prices_of_the_table(
    trace: Path, costs: dict[int, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or by those that it names."""
    monkeypatch.chdir(costs[3].parent)
    named = f"{THROUGHPUT},cost={costs[3].name}"
    policies = [THROUGHPUT, named, "joint:budget=2/4/8/12/16/24/36/48/60"]
    measured = rows_of(replay(trace, policies, cost=costs[3], batch=3))
    reckoned = rows_of(replay(trace, policies, cost=costs[1], batch=3))
    cheaper = rows_of(replay(trace, policies, cost=costs[1], batch=3, what_if=["draft*20"]))
    drafted = [rows[THROUGHPUT]["drafted"] / rows[THROUGHPUT]["rounds"] for rows in (measured, reckoned, cheaper)]
    # The same numbers as prices of three texts are cheaper than as prices of one.
    assert 0 < drafted[1] < drafted[0] < 20
    assert drafted[1] < drafted[2]
    assert reckoned[named]["drafted"] == measured[THROUGHPUT]["drafted"]
    for rows in (measured, reckoned):
        best = max(row["tokens_per_s"] for label, row in rows.items() if label.startswith("joint:"))
        assert rows[THROUGHPUT]["tokens_per_s"] > 0.9 * best


@pytest.mark.parametrize("batch", [None, 1])
def test_a_number_by_throughput_for_one_text_is_caddtrees(
    trace: Path, costs: dict[int, Path], batch: int | None
) -> None:
    single = "caddtree:budget=60,look_ahead=0,overhead=true"
    rows = rows_of(replay(trace, [THROUGHPUT, single], cost=costs[1], batch=batch))
    for name in ("rounds", "drafted", "committed", "tokens_per_s"):
        assert rows[THROUGHPUT][name] == pytest.approx(rows[single][name])


@pytest.mark.parametrize(
    ("policy", "batch", "priced", "said"),
    [
        (THROUGHPUT, 3, None, "it weighs tokens against latency, and there is no latency profile"),
        ("joint-throughput:budget=64", 3, 1, "budget of at most 60, or measure more with"),
        ("joint-throughput", 3, 1, "needs a budget"),
        (JOINT, 2, 3, "needs a latency profile of 2 texts at a time, and this is of 3"),
    ],
)
def test_prices_that_fit_no_batch_are_refused(
    policy: str, batch: int, priced: int | None, said: str, trace: Path, costs: dict[int, Path]
) -> None:
    assert said in refused(replay, trace, [policy], batch=batch, cost=() if priced is None else costs[priced])
