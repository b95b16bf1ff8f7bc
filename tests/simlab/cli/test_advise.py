"""``simlab advise`` from end to end."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from commands import json_of, output_of, refusal_of
from made_up_costs import filled

from simlab.cost import PLAIN
from simlab.traces.artefacts.cost import write_cost_file
from simlab.traces.synthetic import write_synthetic_trace

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_synthetic_trace(tmp_path_factory.mktemp("advice") / "trace", num_sequences=24, length=40)


@pytest.fixture(scope="module")
def costs(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """Made-up prices: a drafted token is free for one text, costs a little for 4, and a whole token for 16."""
    folder, file = tmp_path_factory.mktemp("prices"), filled()
    found = {}
    for batch, each_s in ((1, 0.0), (4, 0.0015), (16, 0.012)):
        samples = {
            cell: tuple(0.012 + each_s * cell[1] if cell[0] in ("verify", PLAIN) else 0.0001 for _ in values)
            for cell, values in file.samples.items()
        }
        found[batch] = folder / f"of_{batch}.json"
        write_cost_file(found[batch], replace(file, batch=batch, samples=samples))
    return found


def typed(costs: dict[int, Path]) -> list[str]:
    return [part for path in costs.values() for part in ("--cost", str(path))]


def advised(*arguments: str) -> dict[str, Any]:
    return json_of("advise", "--threads", "1", "--json", *arguments)


def test_verdicts_follow_the_prices(trace: Path, costs: dict[int, Path]) -> None:
    found = advised("--trace", str(trace), "--batch", "1,4,16", *typed(costs))
    rows = {row["batch"]: row for row in found["rows"]}
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
    assert any("behind from 16 on" in one for one in found["advice"])


def test_batches_without_a_file_are_modelled_or_left_out(trace: Path, costs: dict[int, Path]) -> None:
    policies = ["-p", "chain:length=2", "-p", "ddtree:budget=8/40"]
    found = advised("--trace", str(trace), "--batch", "2,128", "--cost", str(costs[1]), *policies)
    assert [(row["batch"], row["modelled"]) for row in found["rows"]] == [(2, True)]
    assert any("Batch 128 is left out" in one for one in found["notes"])
    assert any("ddtree:budget=40 are left out" in one for one in found["notes"])
    assert any("Modelled, not measured" in one for one in found["notes"])


def test_settings_may_be_chosen_on_other_prompts(trace: Path, costs: dict[int, Path], tmp_path: Path) -> None:
    dev = write_synthetic_trace(tmp_path / "dev", num_sequences=6, length=40, seed=7)
    arguments = ["--trace", str(trace), "--dev-trace", str(dev), "--cost", str(costs[1]), "--batch", "1"]
    said = output_of("advise", *arguments, "-p", "chain:length=1/2", "-p", "ddtree:budget=4/8")
    assert f"chosen on {dev}" in " ".join(said.split())
    assert "the very prompts" not in said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--batch", "0"], "batch sizes such as"),
        (["--batch", "4", "--cost", "16"], "none of one text to work it out from"),
        (["--cost", "1", "--cost", "1"], "two cost files have the latencies of 1 texts"),
        (["--cost", "1", "-p", "ar"], "name another with -p"),
        ([], "advice needs a latency profile"),
    ],
)
def test_what_cannot_be_said_is_one_sentence(
    trace: Path, costs: dict[int, Path], arguments: list[str], said: str
) -> None:
    named = [
        str(costs[int(one)]) if before == "--cost" else one
        for before, one in zip(["", *arguments], arguments, strict=False)
    ]
    assert said in refusal_of("advise", "--trace", trace, *named)


def test_the_packaged_sample_makes_one_page() -> None:
    arguments = ["--batch", "1,4", "--limit", "6", "-p", "chain:length=2/4", "-p", "ddtree:budget=4/8"]
    said = output_of("advise", *arguments)
    assert "Speculation over plain decoding" in said
    assert len(said.splitlines()) < 50


def test_what_an_imported_table_leaves_out_is_said(trace: Path, tmp_path: Path) -> None:
    table, cost = tmp_path / "sps.json", tmp_path / "cost.json"
    value = {"sample_batch_tokens": [8, 64], "sample_steps_per_sec": [90.0, 40.0], "max_batch_tokens": 64}
    table.write_text(json.dumps(value))
    output_of("import", table, "--batch", "8", "--trace", trace, "--out", cost)
    found = advised("--trace", str(trace), "--cost", str(cost), "--batch", "8")
    assert found["rows"][0]["chain"].startswith("chain:length=")
    assert any("plain decoding was not given" in one and "too high" in one for one in found["notes"])
