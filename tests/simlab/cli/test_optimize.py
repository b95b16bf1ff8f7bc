"""``simlab optimize``, from end to end on made-up traces: the planted best, the two sets of prompts, the doors."""

import sys
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from commands import json_of, output_of, refusal_of
from planted_traces import PLANTED, stairs, tokens_per_s, write_trace

from simlab.policies.parsing.parse import parse_policies
from simlab.sequence_replay import rounds
from simlab.traces.artefacts.cost import write_cost_file
from simlab.traces.artefacts.optimum import read_optimum
from simlab.traces.reader import open_trace


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("optimize")
    return write_trace(folder / "dev", "dev", 1), write_trace(folder / "test", "test", 2)


@pytest.fixture(scope="module")
def cost(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("prices") / "cost.json"
    write_cost_file(path, stairs(PLANTED, 0.010))
    return path


def optimize(*arguments: object) -> dict[str, Any]:
    """What ``--json`` says."""
    return json_of("optimize", "--json", "--threads", "1", *arguments)


def refused(*arguments: object) -> str:
    """What the refusal says, in one line."""
    return refusal_of("optimize", *arguments)


def test_the_planted_best_is_found_reported_and_kept(traces: tuple[Path, Path], cost: Path, tmp_path: Path) -> None:
    dev, test = traces
    out, results = tmp_path / "deep" / "optimize.json", tmp_path / "results.parquet"
    asked = ["-p", "ddtree:budget=1..8", "-p", "chain:length=1..7"]
    value = optimize("--dev-trace", dev, "--trace", test, "--cost", cost, *asked, "--out", out, "--results", results)
    file = stairs(PLANTED, 0.010)
    listed = [*(f"ddtree:budget={num}" for num in range(1, 9)), *(f"chain:length={num}" for num in range(1, 8))]
    listed += ["ar", "chain"]
    by_hand = {typed: tokens_per_s(open_trace(dev), typed, file) for typed in listed}
    best = max(by_hand, key=lambda typed: by_hand[typed])
    assert best == f"chain:length={PLANTED}"
    there = {typed: tokens_per_s(open_trace(test), typed, file) for typed in listed}
    assert value["best"]["policy"] == value["run"][0] == best
    rows = {row["policy"]: row for row in value["rows"]}
    assert list(rows)[:1] == [best]
    assert {"chain", "ar"} <= set(rows)
    assert [row["role"] for row in value["rows"]][-1] == "bound"
    for typed in set(rows) & set(listed):
        assert rows[typed]["dev_tokens_per_s"] == pytest.approx(by_hand[typed])
        assert rows[typed]["evaluation_tokens_per_s"] == pytest.approx(there[typed])
    lead = max(there[typed] for typed in listed)
    assert value["optimism"]["best_on_evaluation_figure"] == pytest.approx(lead)
    assert value["optimism"]["optimism"] == pytest.approx(lead - there[best])
    assert value["optimism"]["dev_over_chain"] == pytest.approx(by_hand[best] / by_hand["chain"])
    assert value["winner"] == value["best"]
    assert value["verdict"].startswith(f"{best} is faster than each of 3 others, the closest being ddtree:budget=6, by")
    assert value["searched"] == 64 + 7 + 2
    # The files.
    kept = read_optimum(out)
    assert kept.to_json() == {key: value[key] for key in kept.to_json()}
    assert (kept.chosen_on.prompts, kept.reported_on.prompts) == (18, 18)
    assert "ar" not in kept.run
    written = pl.read_parquet(results)
    assert set(written["text_id"]) == {open_trace(test).text_id}
    assert set(written["policy_id"]) == {row["policy_id"] for row in value["rows"]}
    said = output_of("inspect", out)
    assert value["verdict"] in said
    assert f"to confirm {', '.join(kept.run)}" in said
    assert json_of("inspect", out, "--json")["kind"] == "optimum"


def test_a_best_setting_at_an_end_is_named(traces: tuple[Path, Path], cost: Path) -> None:
    arguments = ("--dev-trace", traces[0], "--trace", traces[1], "--cost", cost)
    short = optimize(*arguments, "-p", f"chain:length=1..{PLANTED}")
    assert short["at_the_ends"] == [f"length={PLANTED} is the largest that was searched"]
    assert optimize(*arguments, "-p", "chain:length=1..7")["at_the_ends"] == []


def test_one_trace_is_split_by_prompt(traces: tuple[Path, Path], cost: Path) -> None:
    trace = open_trace(traces[0])
    value = optimize("--trace", traces[0], "--cost", cost, "-p", "ddtree:budget=6")
    assert value["chosen_on"]["text_id"] == value["reported_on"]["text_id"] == trace.text_id
    assert value["chosen_on"]["prompts"] + value["reported_on"]["prompts"] == 18
    assert "split by a hash" in value["split"]
    from simlab.analysis.optimize.candidate_sums import prompt_hash

    prompts = {(one.prompt.dataset, one.prompt.prompt_id) for one in trace.sequences()}
    (row,) = [row for row in value["rows"] if row["policy"] == "ddtree:budget=6"]
    for side, half in (("dev", 0), ("evaluation", 1)):
        wanted = {one for one in prompts if prompt_hash(one) % 2 == half}
        by_hand = tokens_per_s(trace, "ddtree:budget=6", stairs(PLANTED, 0.010), wanted)
        assert row[f"{side}_tokens_per_s"] == pytest.approx(by_hand)


def test_the_whole_shelf_in_words(traces: tuple[Path, Path], cost: Path) -> None:
    arguments = ["--dev-trace", str(traces[0]), "--trace", str(traces[1]), "--cost", str(cost), "--node-cap", "12"]
    text = output_of("optimize", *arguments)
    for expected in (
        "chosen on    18 prompts (",
        "objective    tokens per second, at most 12 drafted tokens a round",
        "the best over this [95 %]",
        "Shrinkage: ",
        "Not searched:\n  calibrated:",
        "autoregressive",
        "hindsight:budget=",
        "Fewer than 20 prompts",
    ):
        assert expected in text, expected


def test_the_acceptance_length_at_a_cap(traces: tuple[Path, Path]) -> None:
    arguments = ("--dev-trace", traces[0], "--trace", traces[1], "--objective", "acceptance_length", "--node-cap", 9)
    value = optimize(*arguments, "-p", "ddtree:budget=1..20", "-p", "spine-gap:budget=1..14")
    trace, by_hand = open_trace(traces[0]), {}
    for typed in ("chain", "ddtree:budget=8", "ddtree:budget=9", "spine-gap:budget=9"):
        (one,) = parse_policies([typed])
        found = [len(list(rounds(one.policy, text))) for text in trace.recorded(trace.draft_name())]
        by_hand[typed] = sum(len(text.text) - 1 for text in trace.sequences()) / sum(found)
    assert value["best"]["policy"] == max(by_hand, key=lambda typed: by_hand[typed])
    assert value["rows"][0]["dev_acceptance_length"] == pytest.approx(max(by_hand.values()))
    assert (value["node_cap"], value["cost_ids"]) == (9, [])
    assert value["searched"] == 2 + 9 + 9
    short = optimize(*arguments[:-1], 4, "-p", "chain:length=1..7")
    assert short["searched"] == 2 + 4 + 3
    assert all(row["evaluation_nodes_per_round"] <= 4 for row in short["rows"] if row["role"] != "bound")
    assert "chain:length=4" in {row["policy"] for row in short["rows"]}
    assert value["rows"][0]["measure"] is None
    assert {row["measure"] for row in value["rows"][1:-1]} == {"acceptance_length"}
    assert value["rows"][0]["evaluation_tokens_per_s"] is None


def test_the_worst_case_of_two_machines(traces: tuple[Path, Path], cost: Path, tmp_path: Path) -> None:
    steep = tmp_path / "steep.json"
    write_cost_file(steep, stairs(2, 0.002))
    value = optimize(
        "--dev-trace",
        traces[0],
        "--trace",
        traces[1],
        "--cost",
        cost,
        "--cost",
        steep,
        "-p",
        "caddtree:budget=12",
    )
    assert value["objective"] == "worst_case"
    assert len(value["cost_ids"]) == 2
    assert len({row["cost_id"] for row in value["rows"]}) == 2
    (trace, files) = open_trace(traces[0]), (stairs(PLANTED, 0.010), stairs(2, 0.002))

    def worst(typed: str) -> float:
        return min(tokens_per_s(trace, typed, file) / tokens_per_s(trace, "ar", file) for file in files)

    best = max((f"ddtree:budget={num}" for num in range(1, 15)), key=worst)
    figures: dict[str, float] = {}
    for row in value["rows"]:
        if row["dev_speedup"] is not None:
            figures[row["policy"]] = min(figures.get(row["policy"], 99.0), row["dev_speedup"])
    assert figures[best] == pytest.approx(worst(best))
    bounds = {row["policy"] for row in value["rows"] if row["role"] == "bound"}
    assert value["best"]["policy"] == max(figures.keys() - bounds, key=lambda policy: figures[policy])
    assert value["optimism"]["dev_figure"] == pytest.approx(figures[value["best"]["policy"]])


def test_halving_and_threads_change_nothing_here(traces: tuple[Path, Path], cost: Path) -> None:
    arguments = (
        "--dev-trace",
        traces[0],
        "--trace",
        traces[1],
        "--cost",
        cost,
        "-p",
        "survival:threshold=0.01/0.1/0.3",
    )
    found = [optimize(*arguments, *more) for more in ((), ("--halving",), ("--threads", "2"))]
    assert found[0] == found[1] == found[2]


def test_a_choice_is_not_reported_on_its_own_prompts(traces: tuple[Path, Path], cost: Path, tmp_path: Path) -> None:
    dev, _ = traces
    assert "share 18 prompts, such as" in refused("--dev-trace", dev, "--trace", dev, "--cost", cost)
    renamed = write_trace(tmp_path / "renamed", "renamed", 1)
    assert "share 18 prompts" in refused("--dev-trace", dev, "--trace", renamed, "--cost", cost)
    other = write_trace(tmp_path / "other", "other", 5, target="another model")
    assert "differs from" in refused("--dev-trace", dev, "--trace", other, "--cost", cost)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--objective", "acceptance_length"], "needs a limit: add --node-cap"),
        (["--objective", "worst_case", "--cost", "COST"], "give --cost at least twice"),
        (["--cost", "COST", "--cost", "COST"], "the same latencies"),
        (["--objective", "tokens_per_s", "--cost", "COST", "--cost", "COST"], "reads one cost file"),
        ([], "there is no latency profile"),
        (["--cost", "COST", "-p", "ddtree:budget=65"], "the trace is exact up to 64"),
        (
            ["--cost", "COST", "-p", "chain:length=65"],
            "`chain:length=65` drafts up to 65 tokens, and the latency profile ends at 64",
        ),
        (["--cost", "COST", "-p", "ddtree:size=3"], "has no setting `size`"),
        (["--cost", "COST", "-p", "survival:threshold=0.5~0.1"], "should rise"),
        (["--cost", "COST", "-p", "survival:threshold=0.5~1.5"], "threshold must be a probability"),
        (["--cost", "COST", "--trials", "5"], "no -p has one"),
        (["--cost", "COST", "--storage", "sqlite:///x.db"], "no -p has one"),
        (["--cost", "COST", "--out", "."], "names the folder"),
        (
            ["--cost", "COST", "--node-cap", "4", "-p", "spine-gap:budget=5"],
            "all policies of -p draft more than --node-cap 4",
        ),
        (["--cost", "COST", "--draft-set", "none"], "no draft set 'none'"),
    ],
)
def test_what_is_typed_wrong_is_said_in_a_sentence(
    arguments: list[str], message: str, traces: tuple[Path, Path], cost: Path
) -> None:
    typed = [str(cost) if one == "COST" else one for one in arguments]
    assert message in refused("--dev-trace", traces[0], "--trace", traces[1], *typed)


def test_without_optuna_a_range_is_refused_in_a_sentence(
    traces: tuple[Path, Path], cost: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    asked = ("-p", "survival:threshold=0.01~0.5,budget=6/12")
    message = refused("--dev-trace", traces[0], "--trace", traces[1], "--cost", cost, *asked)
    assert 'pip install "simlab[optimize]"' in message
    assert "0.0/0.5/1.0" in message


@pytest.mark.thorough
def test_trials_of_a_range_go_on_as_they_would_have(traces: tuple[Path, Path], cost: Path, tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    arguments = ("--dev-trace", traces[0], "--trace", traces[1], "--cost", cost)
    asked = (*arguments, "-p", "survival:threshold=0.1~0.5,budget=32/64", "--seed", 3)
    storage = f"sqlite:///{tmp_path / 'trials.db'}"
    whole = optimize(*asked, "--trials", 12)
    part = optimize(*asked, "--trials", 5, "--storage", storage)
    gone_on = optimize(*asked, "--trials", 12, "--storage", storage)
    assert gone_on == whole
    assert part["searched"] == 2 + 64 + 2 * 5
    assert whole["searched"] == 2 + 64 + 2 * 12
    rivals = [row["policy"] for row in whole["rows"] if row["policy"].startswith("survival")]
    assert len(rivals) == 1
    assert "could not be opened" in refusal_of("optimize", *asked, "--storage", "nonsense")
    # Whole numbers stay whole.
    sizes = optimize(*arguments, "-p", "spine-gap:budget=1~14", "--trials", 4)
    assert sizes["searched"] == 2 + 64 + 4
