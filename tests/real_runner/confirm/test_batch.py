"""``simlab confirm --batch N`` from end to end: predicted, measured, said and read."""

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from batch_runs import ALL, ASKED, GROUPS, run, write_costs
from confirm_runs import LABELS, Made, confirmed

from simlab.cli.main import main
from simlab.cost import STAGES
from simlab.errors import CostError
from simlab.real_runner.confirm.log import LOG
from simlab.real_runner.confirm.options import ConfirmOptions
from simlab.traces.format.documents import with_digest
from simlab.traces.results.files import read_results


@pytest.fixture(scope="module")
def costs(served: Made) -> dict[int, Path]:
    return write_costs(served)


def measured_of(folder: Path, *columns: str) -> dict[tuple[str, int], tuple[object, ...]]:
    rows = read_results(folder / "results.parquet").filter(pl.col("kind") == "measured")
    return {
        (row["policy"], row["sequence"]): tuple(row[name] for name in columns) for row in rows.iter_rows(named=True)
    }


COUNTS = ("rounds", "drafted", "accepted", "committed", "clipped", "stop_reason")


def test_texts_and_rounds_are_those_of_single_texts_and_of_the_prediction(
    served: Made, costs: dict[int, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(served, tmp_path / "one") == 0
    assert run(served, tmp_path / "two", "--batch", "2", "--cost", str(costs[2])) == 0
    alone, together = (measured_of(tmp_path / name, *COUNTS) for name in ("one", "two"))
    for label in LABELS:
        assert [together[label, index] for index in range(10)] == [alone[label, index] for index in range(10)]
    results = read_results(tmp_path / "two" / "results.parquet")
    joint = results.filter(pl.col("policy") == "joint:budget=6").sort("sequence")
    ran, predicted = (joint.filter(pl.col("kind") == kind).select(COUNTS) for kind in ("measured", "predicted"))
    assert ran.equals(predicted)
    assert ran["drafted"].sum() < 4 * ran["rounds"].sum()
    assert {json.loads(settings)["batch"] for settings in results["settings"]} == {2}
    ids = {name: set(read_results(tmp_path / name / "results.parquet")["policy_id"]) for name in ("one", "two")}
    assert not ids["one"] & ids["two"]
    shown = capsys.readouterr().out
    for part in (
        "Rounds and rows are those of the trace: no difference",
        "2 texts at a time",
        "5 prompts in 3 groups",
        "all 2 texts together",
        "10 of 10",
        "[95 %] over groups",
        "Fewer than 20 groups",
        "Speedup: over autoregressive decoding of as many texts at a time",
    ):
        assert part in shown.split("Log, result rows")[1]
    trace = str(served.folder / "trace")
    replay = ["replay", "--trace", trace, "--batch", "2", "--cost", str(costs[2]), "-p", ASKED[0]]
    assert main([*replay, "-p", ASKED[1], "--out", str(tmp_path / "replayed.parquet")]) == 0
    named = [
        set(rows.select("policy", "policy_id", "settings").iter_rows())
        for rows in (results, read_results(tmp_path / "replayed.parquet"))
    ]
    assert named[0] == named[1]


def test_a_script_reads_speeds_of_texts_and_of_the_machine(
    served: Made, costs: dict[int, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert run(served, out, "--batch", "2", "--cost", str(costs[2]), "--json", "--by", "dataset") == 0
    value = json.loads(capsys.readouterr().out)
    assert with_digest(value) == json.loads((out / "confirm.json").read_text())
    names = ("batch", "groups", "group_runs", "prompts", "prompt_runs")
    assert [value["ran"][name] for name in names] == [2, 3, 3, 5, 5]
    assert [one["prompts"] for one in value["comparisons"]] == [3, 3]
    groups = [json.loads(line) for line in (out / LOG).read_text().splitlines() if '"kind":"group"' in line]
    assert [one["group"] for one in groups] == [0, 1, 2]
    assert [row["policy"] for row in value["rows"]] == list(ALL)
    for row in value["rows"]:
        assert (row["lossless"], row["counts_equal_replay"], row["num_texts"]) == ("exact", True, 10)
        assert row["prompts"] == 5
        runs = [run for one in groups for run in one["machine"] if run["policy_id"] == row["policy_id"]]
        machine = sum(run["committed"] for run in runs) / sum(run["total_s"] for run in runs)
        assert row["measured_machine_tokens_per_s"] == pytest.approx(machine)
        assert machine == pytest.approx(2 * row["measured_tokens_per_s"], rel=0.3)
        texts = [
            (run, one) for group in groups for one in group["sequences"] for run in one["runs"]
            if run["policy_id"] == row["policy_id"]
        ]  # fmt: skip
        tokens = sum(len(run["text"]) - 1 for run, _ in texts)
        seconds = sum(sum(run["seconds"].values()) for run, _ in texts)
        assert row["measured_tokens_per_s"] == pytest.approx(tokens / seconds)
    assert [(row["slice"], row["policy"]) for row in value["slices"]] == [
        (name, one) for name in ("even", "odd") for one in ALL
    ]
    assert value["rank_agreement"]["policies"] == len(ALL)


def test_intervals_are_over_groups(served: Made, tmp_path: Path) -> None:
    """Of each policy's speed: by hand from the sums of each group."""
    from simlab.analysis.statistics.intervals import ratio_interval

    done = confirmed(served, ConfirmOptions(tmp_path / "out", batch=2), ASKED)
    rows = read_results(tmp_path / "out" / "results.parquet").filter(pl.col("kind") == "measured")
    for policy in done.policies:
        own = rows.filter(pl.col("policy") == policy.policy)
        parts = [own.filter(pl.col("sequence").is_in(group)) for group in GROUPS]
        tokens = np.array([part["committed"].sum() for part in parts])
        seconds = np.array([sum(part[f"{stage}_s"].sum() for stage in STAGES) for part in parts])
        expected = ratio_interval(tokens, seconds)
        assert policy.tokens_per_s_interval.low == pytest.approx(expected.low)
        assert policy.tokens_per_s_interval.high == pytest.approx(expected.high)
    assert "prompt" not in done.verdict


@pytest.mark.parametrize(
    ("batch", "priced", "said"),
    [
        (2, 1, "was measured with batch 1, and this run has 2; .*`simlab profile --batch 2 --out FILE`"),
        (1, 2, "was measured with batch 2, and this run has 1; .*`simlab profile --out FILE`"),
        (3, 2, "was measured with batch 2, and this run has 3; .*`simlab profile --batch 3 --out FILE`"),
    ],
)
def test_prices_of_another_batch_are_refused(
    batch: int, priced: int, said: str, served: Made, costs: dict[int, Path], tmp_path: Path
) -> None:
    from simlab.studies.confirm.run import run_confirmation
    from simlab.studies.inputs.artefacts import with_references

    with pytest.raises(CostError, match=said):
        run_confirmation(
            ConfirmOptions(tmp_path / "out", batch=batch), served.trace, with_references(ASKED), costs[priced]
        )
