"""A search for the fastest policy: the planted best by hand, the two sets of prompts, and what is refused."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from head_traces import with_head
from made_up_costs import filled
from planted_traces import PLANTED, stairs, tokens_per_s, write_trace
from study_results import refused, value_of
from synthetic_traces import write_synthetic_trace

import simlab
from simlab.analysis.optimize.candidate_sums import prompt_hash
from simlab.analysis.optimize.finalists import policy_to_take
from simlab.policies.parsing.parse import parse_policies
from simlab.sequence_replay import rounds
from simlab.studies.optimize.optimize import optimize
from simlab.traces.artefacts.cost import write_cost_file
from simlab.traces.artefacts.optimum import read_optimum
from simlab.traces.reader import open_trace

FILE = stairs(PLANTED, 0.010)


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Prompts to choose on, and prompts to report on."""
    folder = tmp_path_factory.mktemp("optimize")
    return write_trace(folder / "dev", "dev", 1), write_trace(folder / "test", "test", 2)


@pytest.fixture(scope="module")
def costs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Latencies with a planted best size, and latencies of another machine."""
    folder = tmp_path_factory.mktemp("prices")
    for name, file in (("planted", FILE), ("steep", stairs(2, 0.002))):
        write_cost_file(folder / f"{name}.json", file)
    return [folder / "planted.json", folder / "steep.json"]


def searched(traces: tuple[Path, Path], *policies: str, **more: object) -> dict[str, Any]:
    dev, test = traces
    named: dict[str, object] = {"dev_trace": dev, "threads": 1, **more}
    return value_of(optimize(test, policies, **named))  # type: ignore[arg-type]


def test_the_planted_best_is_chosen_reported_and_kept(
    traces: tuple[Path, Path], costs: list[Path], tmp_path: Path
) -> None:
    dev, test = map(open_trace, traces)
    out, results = tmp_path / "optimize.json", tmp_path / "results.parquet"
    asked = ("ddtree:budget=1..8", "chain:length=1..7")
    value = searched(traces, *asked, cost=costs[0], out=out, results=results)
    listed = [*(f"ddtree:budget={num}" for num in range(1, 9)), *(f"chain:length={num}" for num in range(1, 8))]
    listed += ["ar", "chain"]
    by_hand, there = ({typed: tokens_per_s(trace, typed, FILE) for typed in listed} for trace in (dev, test))
    best = max(by_hand, key=lambda typed: by_hand[typed])
    assert best == f"chain:length={PLANTED}"
    assert value["best"]["policy"] == value["run"][0] == best
    rows = {row["policy"]: row for row in value["rows"]}
    assert next(iter(rows)) == best
    assert {"chain", "ar"} <= set(rows)
    assert [row["role"] for row in value["rows"]][-1] == "bound"
    for typed in set(rows) & set(listed):
        assert rows[typed]["dev_tokens_per_s"] == pytest.approx(by_hand[typed])
        assert rows[typed]["evaluation_tokens_per_s"] == pytest.approx(there[typed])
    lead = max(there.values())
    assert value["optimism"]["best_on_evaluation_figure"] == pytest.approx(lead)
    assert value["optimism"]["optimism"] == pytest.approx(lead - there[best])
    assert value["optimism"]["dev_over_chain"] == pytest.approx(by_hand[best] / by_hand["chain"])
    assert value["winner"] == value["best"]
    assert value["verdict"].startswith(f"{best} is faster than each of 3 others, the closest being ddtree:budget=6, by")
    assert value["searched"] == 64 + 7 + 2
    assert value["at_the_ends"] == []
    # The files.
    kept = read_optimum(out)
    assert kept.to_json() == {key: value[key] for key in kept.to_json()}
    assert (kept.chosen_on.prompts, kept.reported_on.prompts) == (18, 18)
    written = pl.read_parquet(results)
    assert set(written["text_id"]) == {test.text_id}
    assert set(written["policy_id"]) == {row["policy_id"] for row in value["rows"]}
    short = searched(traces, f"chain:length=1..{PLANTED}", cost=costs[0])
    assert short["at_the_ends"] == [f"length={PLANTED} is the largest that was searched"]


def test_a_size_that_nobody_timed_is_not_chosen(traces: tuple[Path, Path], tmp_path: Path) -> None:
    """All sizes up to 8 cost the same, and of 3 to 7 no round was timed; a router has the sizes of its routes."""
    counts, whole = (0, 1, 2, 8, 64), stairs(8, 0.010)
    file = replace(
        whole, node_counts=counts, samples={cell: s for cell, s in whole.samples.items() if cell[1] in counts}
    )
    write_cost_file(tmp_path / "thin.json", file)
    chains = [f"chain:length={num}" for num in range(1, 8)]
    router = 'router:routes="chain:length=6|ar",by=context,cuts=1000'
    made = optimize(traces[1], [*chains, router], dev_trace=traces[0], cost=tmp_path / "thin.json", threads=1)
    value, dev = value_of(made), open_trace(traces[0])
    trees = [f"ddtree:budget={num}" for num in range(1, 12)]
    figures = {typed: tokens_per_s(dev, typed, file) for typed in ["ar", "chain", *chains, *trees]}
    timed = {"ar", *(typed for typed in figures if typed.endswith(("=1", "=2", "=8")))}
    assert value["best"]["policy"] == max(timed, key=lambda typed: figures[typed])
    faster = {typed for typed in figures.keys() - timed if figures[typed] > figures[value["best"]["policy"]]}
    listed = {one.removesuffix(" (2 to 8)") for one in value["not_chosen"] if one.endswith(" (2 to 8)")}
    assert listed == {*faster, router}
    said = " ".join(made.text().split())
    assert "Not chosen, whatever is predicted:" in said
    assert "simlab profile" in said


def test_one_trace_is_split_by_prompt(traces: tuple[Path, Path], costs: list[Path]) -> None:
    trace = open_trace(traces[0])
    value = value_of(optimize(trace, ["ddtree:budget=6"], cost=costs[0], threads=1))
    assert value["chosen_on"]["text_id"] == value["reported_on"]["text_id"] == trace.text_id
    assert value["chosen_on"]["prompts"] + value["reported_on"]["prompts"] == 18
    assert "split by a hash" in value["split"]
    prompts = {(sequence.prompt.dataset, sequence.prompt.prompt_id) for sequence in trace.sequences()}
    (row,) = [row for row in value["rows"] if row["policy"] == "ddtree:budget=6"]
    for side, half in (("dev", 0), ("evaluation", 1)):
        wanted = {prompt for prompt in prompts if prompt_hash(prompt) % 2 == half}
        assert row[f"{side}_tokens_per_s"] == pytest.approx(tokens_per_s(trace, "ddtree:budget=6", FILE, wanted))


def test_the_acceptance_length_at_a_cap(traces: tuple[Path, Path]) -> None:
    of_length = {"objective": "acceptance_length"}
    value = searched(traces, "ddtree:budget=1..20", "spine-gap:budget=1..14", node_cap=9, **of_length)
    trace, by_hand = open_trace(traces[0]), {}
    for typed in ("chain", "ddtree:budget=8", "ddtree:budget=9", "spine-gap:budget=9"):
        (policy,) = parse_policies([typed])
        num_rounds = sum(len(list(rounds(policy.policy, text))) for text in trace.recorded(trace.draft_name()))
        by_hand[typed] = sum(len(text.text) - 1 for text in trace.sequences()) / num_rounds
    assert value["best"]["policy"] == max(by_hand, key=lambda typed: by_hand[typed])
    first = value["rows"][0]
    assert first["dev_acceptance_length"] == pytest.approx(max(by_hand.values()))
    assert (value["node_cap"], value["cost_ids"], value["searched"]) == (9, [], 2 + 9 + 9)
    assert first["measure"] is first["evaluation_tokens_per_s"] is None
    assert {row["measure"] for row in value["rows"][1:-1]} == {"acceptance_length"}
    short = searched(traces, "chain:length=1..7", node_cap=4, **of_length)
    assert short["searched"] == 2 + 4 + 3
    assert all(row["evaluation_nodes_per_round"] <= 4 for row in short["rows"] if row["role"] != "bound")
    assert "chain:length=4" in {row["policy"] for row in short["rows"]}


def test_the_worst_case_of_two_machines(traces: tuple[Path, Path], costs: list[Path]) -> None:
    value = searched(traces, "caddtree:budget=12", cost=costs)
    assert value["objective"] == "worst_case"
    assert len(value["cost_ids"]) == len({row["cost_id"] for row in value["rows"]}) == 2
    trace, files = open_trace(traces[0]), (FILE, stairs(2, 0.002))

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


def test_halving_and_threads_change_nothing_here(traces: tuple[Path, Path], costs: list[Path]) -> None:
    different: list[dict[str, object]] = [{}, {"halving": True}, {"threads": 2}]
    values = [searched(traces, "survival:threshold=0.01/0.1/0.3", cost=costs[0], **more) for more in different]
    assert values[0] == values[1] == values[2]


def test_a_choice_is_not_reported_on_its_own_prompts(
    traces: tuple[Path, Path], costs: list[Path], tmp_path: Path
) -> None:
    dev, test = traces
    assert "there is no latency profile" in refused(optimize, test, dev_trace=dev)
    assert "share 18 prompts, such as" in refused(optimize, dev, dev_trace=dev, cost=costs[0])
    renamed = write_trace(tmp_path / "renamed", "renamed", 1)
    assert "share 18 prompts" in refused(optimize, renamed, dev_trace=dev, cost=costs[0])
    other = write_trace(tmp_path / "other", "other", 5, target="another model")
    assert "differs from" in refused(optimize, other, dev_trace=dev, cost=costs[0])


def test_without_optuna_a_range_is_refused_in_a_sentence(
    traces: tuple[Path, Path], costs: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    asked = ["survival:threshold=0.01~0.5,budget=6/12"]
    message = refused(optimize, traces[1], asked, dev_trace=traces[0], cost=costs[0])
    assert 'pip install "simlab[optimize]"' in message
    assert "0.0/0.5/1.0" in message


@pytest.mark.thorough
def test_trials_of_a_range_go_on_as_they_would_have(
    traces: tuple[Path, Path], costs: list[Path], tmp_path: Path
) -> None:
    pytest.importorskip("optuna")
    policy, storage = "survival:threshold=0.1~0.5,budget=32/64", f"sqlite:///{tmp_path / 'trials.db'}"
    whole = searched(traces, policy, cost=costs[0], seed=3, trials=12)
    part = searched(traces, policy, cost=costs[0], seed=3, trials=5, storage=storage)
    assert searched(traces, policy, cost=costs[0], seed=3, trials=12, storage=storage) == whole
    assert (part["searched"], whole["searched"]) == (2 + 64 + 2 * 5, 2 + 64 + 2 * 12)
    assert sum(row["policy"].startswith("survival") for row in whole["rows"]) == 1
    assert "could not be opened" in refused(optimize, traces[1], [policy], cost=costs[0], storage="nonsense")
    # Whole numbers stay whole.
    assert searched(traces, "spine-gap:budget=1~14", cost=costs[0], trials=4)["searched"] == 2 + 64 + 4


# --- policies that read a channel

HEAD = "channel=treeflash,previous=2,top_k=3"


def test_policies_of_channels_are_searched_where_the_channel_is_there(tmp_path: Path) -> None:
    trace = with_head(write_synthetic_trace(tmp_path / "trace", num_sequences=12, length=40), False)
    of_length: dict[str, Any] = {"objective": "acceptance_length", "node_cap": 6}
    typed = [f"treeflash:budget=1..6,{HEAD}", f"tree:edges=transitions,{HEAD},order=best-first/expand-parent,budget=6"]
    space = optimize(trace, typed, **of_length).space
    labels = [point.typed for point in space.points]
    assert sum(label.startswith("treeflash:") for label in labels) == 6
    assert sum(label.startswith("tree:") and "expand-parent" in label for label in labels) == 1
    assert space.left_out == ()
    (sentence,) = [one for one in optimize(trace, **of_length).space.left_out if one.startswith("taps:")]
    assert "has none of that name" in sentence
    assert "--add-channel taps=CHECKPOINT" in sentence
    for study, more in ((optimize, of_length), (simlab.scoring, {})):
        assert "--add-channel taps=CHECKPOINT" in refused(study, trace, ["taps:budget=4"], **more)


def test_a_policy_without_seconds_is_not_chosen_by_them(tmp_path: Path) -> None:
    """By tokens it may be."""
    trace, cost = write_synthetic_trace(tmp_path / "trace", num_sequences=40, length=8), tmp_path / "cost.json"
    with_head(trace, tied=False)
    write_cost_file(cost, filled())
    policy = "treeflash:budget=6,previous=2,top_k=3"
    said = " ".join(refused(optimize, trace, [policy], cost=cost).split())
    assert f"`{policy}` is chosen by its seconds, and {cost} does not say" in said
    assert "`simlab profile --channel treeflash=CHECKPOINT" in said
    assert optimize(trace, [policy], cost=cost, objective="acceptance_length", node_cap=16).optimum.searched > 1


@pytest.mark.parametrize("engine", ["vllm", "sglang", "tensorrt-llm", "tensorrt-edge-llm"])
def test_for_an_engine_only_what_it_drafts_is_searched(
    engine: str, traces: tuple[Path, Path], costs: list[Path]
) -> None:
    dev, test = traces
    found = optimize(test, dev_trace=dev, cost=costs[0], threads=1, engine=engine)
    kept = open_trace(dev).manifest.draft_sets[found.inputs.dev.draft]
    chains = {"chain", "ar", *(f"chain:length={length}" for length in range(1, kept.depth + 1))}
    tried = {point.typed for point in found.space.points}
    assert chains - {f"chain:length={kept.depth}"} <= tried
    trees = tried - chains
    for top_k in (2, 4, 8) if engine == "tensorrt-edge-llm" else ():
        sizes = range(top_k, min(kept.exact_budget, FILE.node_counts[-1]) + 1)
        assert {f"edge-llm:budget={size},top_k={top_k}" for size in sizes} <= trees
    assert bool(trees) == (engine == "tensorrt-edge-llm")
    said = found.text().splitlines()
    (line,) = [one for one in said if one.startswith("simlab export")]
    assert line == f"simlab export --format {engine} -p {policy_to_take(found.optimum)} --trace {test}"
    cut = "beginning of a recorded block" in " ".join(said)
    assert cut == ("chain:length=" in line)
    # The line is one that the command line takes.
    simlab.export(found.space.engine, policy=policy_to_take(found.optimum), trace=test, cost=[costs[0]])
