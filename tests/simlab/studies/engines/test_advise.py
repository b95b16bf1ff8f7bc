"""Advice: verdicts follow the prices, settings are chosen where they are asked to be, and what is not known is said."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from study_results import refused, value_of

import simlab
from simlab.studies.engines.advise import advise
from simlab.studies.engines.import_files import import_timings
from simlab.traces.artefacts.cost import read_cost_file, write_cost_file
from simlab.traces.synthetic import write_synthetic_trace

POLICIES = ["chain:length=1/2/3", "ddtree:budget=2/4/8"]


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_synthetic_trace(tmp_path_factory.mktemp("advice") / "trace", num_sequences=24, length=40)


def test_verdicts_follow_the_prices(trace: Path, served_costs: dict[int, Path]) -> None:
    """A drafted token is free for one text, costs a little for 4, and a whole token for 16."""
    value = value_of(advise(trace, cost=[served_costs[batch] for batch in (1, 4, 16)], batch=[1, 4, 16], threads=1))
    rows = {row["batch"]: row for row in value["rows"]}
    assert not any(row["modelled"] for row in rows.values())
    assert rows[1]["verdict"] == "winner"
    assert rows[1]["fastest"] == rows[1]["tree"] == "ddtree:budget=64"
    assert rows[16]["fastest"] == "ar"
    assert rows[16]["verdict"] != "winner"
    assert rows[16]["tree_needed_length"] > rows[16]["tree_length"]
    assert rows[16]["tree_needed_token_s"] < rows[16]["tree_token_s"]
    for row in rows.values():
        assert row["tree_over_chain_ci_low"] <= row["tree_over_chain"] <= row["tree_over_chain_ci_high"]
        assert row["tree_over_chain"] == pytest.approx(row["tree_speedup"] / row["chain_speedup"])
    assert any("behind from 16 on" in one for one in value["advice"])


def test_batches_without_a_file_are_modelled_or_left_out(trace: Path, served_costs: dict[int, Path]) -> None:
    policies = ["chain:length=2", "ddtree:budget=8/40"]
    value = value_of(advise(trace, policies, cost=served_costs[1], batch=[2, 128], threads=1))
    assert [(row["batch"], row["modelled"]) for row in value["rows"]] == [(2, True)]
    for said in ("Batch 128 is left out", "ddtree:budget=40 are left out", "Modelled, not measured"):
        assert any(said in one for one in value["notes"])


@pytest.mark.parametrize("chosen_elsewhere", [False, True])
def test_settings_are_those_that_are_best_where_they_are_chosen(
    chosen_elsewhere: bool, trace: Path, cost: Path, tmp_path: Path
) -> None:
    other = write_synthetic_trace(tmp_path / "other", num_sequences=5, length=30, seed=7)
    dev = other if chosen_elsewhere else None
    advice = advise(trace, POLICIES, cost=cost, batch=[1], dev_trace=dev, threads=1)
    alone = advise(dev or trace, POLICIES, cost=cost, batch=[1], threads=1)
    assert (advice.trace.place, advice.chosen_on.place) == (str(trace), str(dev or trace))
    ours, theirs = advice.batches[0].row(), alone.batches[0].row()
    assert (ours["chain"], ours["tree"]) == (theirs["chain"], theirs["tree"])
    assert (ours["tree_speedup"] == theirs["tree_speedup"]) == (not chosen_elsewhere)
    said = " ".join(advice.text().split())
    assert (f"chosen on {other}" in said, "the very prompts" in said) == (chosen_elsewhere, not chosen_elsewhere)


def test_a_size_that_nobody_timed_is_not_chosen(trace: Path, served_costs: dict[int, Path], tmp_path: Path) -> None:
    """For one text a drafted token is free, so the longest chain is fastest, as far as it was timed."""
    file = read_cost_file(served_costs[1])
    last = file.node_counts[-1]
    kept = {cell: seconds for cell, seconds in file.samples.items() if cell[1] in (0, 1, last)}
    write_cost_file(tmp_path / "thin.json", replace(file, node_counts=(0, 1, last), samples=kept))
    value = value_of(advise(trace, ["chain:length=1/5", "ddtree:budget=8"], cost=tmp_path / "thin.json", batch=[1]))
    (row,) = value["rows"]
    assert (row["chain"], row["tree"]) == ("chain:length=1", None)
    assert any(f"chain:length=5 (1 to {last}), ddtree:budget=8 (1 to {last})" in one for one in value["notes"])


@pytest.mark.parametrize(
    ("policies", "batch", "priced", "said"),
    [
        ((), [4], (16,), "none of one text to work it out from"),
        ((), [1], (1, 1), "two cost files have the latencies of 1 texts"),
        (("ar",), [1], (1,), "name another with -p"),
        ((), [1], (), "advice needs a latency profile"),
    ],
)
def test_what_cannot_be_said_is_one_sentence(
    trace: Path,
    served_costs: dict[int, Path],
    policies: tuple[str, ...],
    batch: list[int],
    priced: tuple[int, ...],
    said: str,
) -> None:
    assert said in refused(advise, trace, policies, batch=batch, cost=[served_costs[one] for one in priced])


def test_the_mend_of_an_imported_table_is_its_owners(tmp_path: Path) -> None:
    """Who timed another engine cannot run it here, and adds rows instead."""
    rows, cost = [(1, 0.00847), (2, 0.01349), (3, 0.01564), (5, 0.02067), (8, 0.02813)], tmp_path / "w.json"
    table = tmp_path / "one-context.csv"
    for contexts in ((512,), (512, 1024)):
        lines = [f"{nodes},{context},{seconds}" for context in contexts for nodes, seconds in rows]
        table.write_text("\n".join(["nodes,context,seconds", *lines]))
        cost.unlink(missing_ok=True)
        import_timings([table], counts="root-included", out=cost)
        if contexts == (512,):
            said = refused(advise, cost=cost, batch=[1])
            assert "add rows at longer contexts to the timings that it was made of, and `simlab import` them" in said
            assert "simlab profile" not in said + simlab.inspect(str(cost)).text()
            assert "add rows of more nodes" in refused(simlab.replay, None, ["ddtree:budget=32"], cost=cost, limit=4)
            assert advise(cost=cost, batch=[1], limit=4).text()  # short texts have prices
    assert "chain:length=2  1.055 [0.989, 1.126]" in advise(cost=cost, batch=[1]).text()


def test_what_an_imported_table_leaves_out_is_said(trace: Path, tmp_path: Path) -> None:
    table, cost = tmp_path / "sps.json", tmp_path / "cost.json"
    steps = {"sample_batch_tokens": [8, 64], "sample_steps_per_sec": [90.0, 40.0], "max_batch_tokens": 64}
    table.write_text(json.dumps(steps))
    import_timings([table], trace, batch=8, out=cost)
    value = value_of(advise(trace, cost=cost, batch=[8], threads=1))
    assert value["rows"][0]["chain"].startswith("chain:length=")
    assert any("plain decoding was not given" in one and "too high" in one for one in value["notes"])
