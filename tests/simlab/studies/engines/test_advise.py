"""``simlab advise``: the choice is that of replays at the same prices, and its sums hold."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from made_up_costs import filled

from simlab.cli.main import main
from simlab.traces.artefacts.cost import write_cost_file
from simlab.traces.synthetic import write_synthetic_trace

TREES = ("-p", "ddtree:budget=4/8/16")


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_synthetic_trace(tmp_path_factory.mktemp("advise") / "trace", num_sequences=24, length=40)


@pytest.fixture(scope="module")
def cost(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("prices") / "cost.json"
    write_cost_file(path, filled())
    return path


def advised(capsys: pytest.CaptureFixture[str], *typed: str) -> dict[str, Any]:
    assert main(["advise", "--json", *typed]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def replayed(capsys: pytest.CaptureFixture[str], *typed: str) -> dict[str, Any]:
    assert main(["replay", "--json", *typed]) == 0
    return {row["policy"]: row for row in json.loads(capsys.readouterr().out)["rows"]}


def test_choices_and_speeds_are_those_of_replays(trace: Path, cost: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ("--trace", str(trace), "--cost", str(cost))
    found = advised(capsys, *given, "--batches", "1,2", *TREES)
    for one in found["batches"]:
        what_if = ("--what-if", "batch=2") if one["what_if"] else ()
        rows = replayed(capsys, *given, *what_if, "-p", "chain:length=1..7", *TREES)
        for kind, names in (("chain", "chain:"), ("tree", "ddtree:")):
            speeds = {label: row["tokens_per_s"] for label, row in rows.items() if label.startswith((names, kind))}
            best = max(speeds, key=lambda label: speeds[label])
            option = one[kind]
            assert option["tokens_per_s_of_each_text"] == pytest.approx(speeds[best])
            assert option["speedup"] == pytest.approx(rows[option["policy"]]["speedup"])
            assert option["acceptance_length"] / option["round_s"] == pytest.approx(speeds[best])
        over = one["tree_over_chain"]
        assert over["ratio"] == pytest.approx(
            one["tree"]["tokens_per_s_of_each_text"] / one["chain"]["tokens_per_s_of_each_text"]
        )


def test_what_a_tree_needs_makes_it_as_fast(trace: Path, cost: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = advised(capsys, "--trace", str(trace), "--cost", str(cost), "--batches", "1,2,4,8", *TREES)
    lacking = [one for one in found["batches"] if one["tree_needs"] is not None]
    assert len(found["needs"]) == len(lacking)
    for one in found["batches"]:
        rival = max(one["plain_tokens_per_s_of_each_text"], one["chain"]["tokens_per_s_of_each_text"])
        tree, needs = one["tree"], one["tree_needs"]
        assert (needs is None) == (tree["tokens_per_s_of_each_text"] >= rival)
        if needs is not None:
            assert tree["acceptance_length"] / needs["round_s"] == pytest.approx(rival)
            assert needs["acceptance_length"] / tree["round_s"] == pytest.approx(rival)


@pytest.mark.parametrize(
    ("factors", "verdict"), [({"verify": 0.001, "draft": 0.001}, "GO"), ({"plain": 0.01}, "NO GO")]
)
def test_prices_decide(
    trace: Path, factors: dict[str, float], verdict: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = filled()
    samples = {cell: tuple(factors.get(cell[0], 1.0) * one for one in times) for cell, times in file.samples.items()}
    changed = tmp_path / "changed.json"
    write_cost_file(changed, replace(file, samples=samples))
    found = advised(capsys, "--trace", str(trace), "--cost", str(changed), "--batches", "1", *TREES)
    assert found["verdicts"][0].startswith(verdict)
    assert (found["batches"][0]["run"] == "plain decoding") == (verdict == "NO GO")


def test_settings_may_be_chosen_elsewhere(
    trace: Path, cost: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = write_synthetic_trace(tmp_path / "dev", num_sequences=12, length=30, seed=5)
    given = ("--trace", str(trace), "--cost", str(cost), "--batches", "1", *TREES)
    found = advised(capsys, *given, "--choose-on", str(other))
    assert str(other) in found["chosen_on"]
    own = advised(capsys, "--trace", str(other), "--cost", str(cost), "--batches", "1", *TREES)
    for kind in ("chain", "tree"):
        assert found["batches"][0][kind]["policy"] == own["batches"][0][kind]["policy"]
    assert "these very prompts" in own["chosen_on"]


def test_the_page_is_one_page(trace: Path, cost: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["advise", "--trace", str(trace), "--cost", str(cost)]) == 0
    out = capsys.readouterr().out
    assert out.count("\n") < 60
    assert "WHAT IF, not measured" in out
    assert "Tree over chain" in out


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        (("-p", "chain"), "leave chain out"),
        (("-p", "ddtree:budget=600"), "is exact up to"),
        (("--batches", "0"), "batch sizes such as"),
        (("--batches", "4096"), "take a smaller batch"),
        (("--batches", "64"), "ask for smaller --batches"),
    ],
)
def test_what_cannot_be_advised_is_refused(
    trace: Path, cost: Path, typed: tuple[str, ...], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["advise", "--trace", str(trace), "--cost", str(cost), *typed]) == 2
    assert words in capsys.readouterr().err
