"""``simlab study curves``, from end to end on a made-up trace."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from commands import json_of, output_of, refusal_of
from made_up_costs import EMPTY, filled, sample_s

from simlab.analysis.curves.machines import CONVEX, FIRST
from simlab.analysis.curves.rows import SCHEMA
from simlab.analysis.curves.tallies import FIXED, PRICE, SCAN
from simlab.cost import PLAIN
from simlab.traces.artefacts import cost as cost_file
from simlab.traces.artefacts.cost import write_cost_file
from simlab.traces.reader import open_trace
from simlab.traces.synthetic import write_synthetic_trace

RULES = [FIRST, SCAN, CONVEX, FIXED, PRICE]


def curves(trace: Path, *arguments: str) -> dict[str, Any]:
    """What ``--json`` says."""
    return json_of("study", "curves", "--trace", trace, "--json", *arguments)


def test_smooth_prices_give_one_maximum_and_all_rules(trace: Path, cost: Path) -> None:
    value = curves(trace, "--cost", str(cost), "--budget", "8")
    assert (value["budget"], value["policy"], value["in_sample"]) == (8, None, [])
    rows = {row["rule"]: row for row in value["rows"]}
    assert list(rows) == RULES
    assert {row["edges"] for row in value["rows"]} == {"raw"}
    first, scan, price = rows[FIRST], rows[SCAN], rows[PRICE]
    assert scan["regret_share"] == price["behind_price_share"] == 0
    assert all(row["regret_share"] >= 0 and row["behind_price_share"] > -1e-12 for row in rows.values())
    assert price["tokens_per_s"] == pytest.approx(price["price_tokens_per_s"])
    (whole,) = value["fixed_budget_curves"]
    assert len(whole["tokens_per_s"]) == 9
    assert max(whole["tokens_per_s"]) == whole["tokens_per_s"][rows[FIXED]["best_fixed_budget"]]
    assert max(whole["tokens_per_s"]) == pytest.approx(rows[FIXED]["tokens_per_s"])
    (worst,) = value["worst_curves"]
    assert list(worst["num_drafted"]) == RULES
    assert max(worst["tokens_per_s"]) == worst["tokens_per_s"][worst["num_drafted"][SCAN]]
    # Between measured counts the prices are straight lines, and these lines are steeper and steeper.
    assert (first["most_maxima"], first["regret_share"]) == (1, 0)


def test_rows_and_table_of_two_machines(trace: Path, cost: Path, tmp_path: Path) -> None:
    stairs, out = tmp_path / "stairs.json", tmp_path / "deep" / "curves.parquet"
    full = filled()
    samples = {
        cell: tuple(one * (3 if cell[0] == "verify" and cell[1] > 1 else 1) for one in values)
        for cell, values in full.samples.items()
    }
    write_cost_file(stairs, replace(full, samples=samples))
    arguments = ["--cost", str(cost), "--cost", str(stairs), "--by", "dataset", "--out", str(out)]
    text = output_of("study", "curves", "--trace", trace, *arguments)
    assert text.count("latency  Made-up CPU") == 2
    assert "at every root, 0 to 64 drafted tokens" in text
    assert f"Rows: {out}" in text
    assert "No calibrated probabilities: " in text
    rows = pl.read_parquet(out)
    assert set(SCHEMA) | {"text_id", "draft_id", "visited_by", "simlab_version"} == set(rows.columns)
    assert rows["rule"].unique(maintain_order=True).to_list() == RULES
    datasets = rows["dataset"].unique().to_list()
    assert all(f"raw probabilities, dataset {one}: " in text for one in datasets)
    num_roots = rows.select("sequence", "position").unique().height
    assert rows.height == num_roots * 2 * len(RULES)
    assert text.count(f"raw probabilities: {num_roots:,} curves") == 2
    assert rows.group_by("cost_id").agg(pl.col("num_maxima").max())["num_maxima"].to_list() != [1, 1]


def test_only_the_roots_of_a_policy(trace: Path, cost: Path, tmp_path: Path) -> None:
    everywhere, visited, rounds = (tmp_path / name for name in ("all.parquet", "some.parquet", "rounds.parquet"))
    priced = ("--cost", str(cost), "--budget", "8")
    curves(trace, *priced, "--out", str(everywhere))
    value = curves(trace, *priced, "--out", str(visited), "-p", "ddtree:budget=4", "--limit", "5")
    assert value["policy"] == "ddtree:budget=4"
    replayed = ["replay", "--trace", str(trace), "-p", "ddtree:budget=4", "--limit", "5", "--rounds", str(rounds)]
    output_of(*replayed)
    where = pl.read_parquet(rounds).filter(policy="ddtree:budget=4").select("sequence", "position")
    found = pl.read_parquet(visited).filter(rule=FIRST)
    assert found.select("sequence", "position").equals(where)
    assert value["rows"][0]["roots"] == where.height
    same = pl.read_parquet(everywhere).filter(rule=FIRST).join(where, on=["sequence", "position"], how="semi")
    assert same.drop("visited_by").equals(found.drop("visited_by"))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--budget", "0"], "at least 1"),
        (["--budget", "65"], "ends at 64 drafted tokens"),
        (["--edges", "other"], "other"),
        (["--edges", "calibrated"], "calibration"),
        (["--calibration", "/does/not/exist"], "/does/not/exist"),
        (["--edges", "raw", "--calibration", "x"], "--edges calibrated"),
        (["-p", "ddtree:budget=1/2"], "makes 2"),
        (["-p", "nothing"], "no policy `nothing`"),
        (["--draft-set", "other"], "no draft set"),
        (["--cost", "/does/not/exist"], "/does/not/exist"),
        (["--out", "/"], "expected a file"),
    ],
)
def test_a_mistake_is_one_sentence(arguments: list[str], said: str, trace: Path, cost: Path) -> None:
    priced = [] if "--cost" in arguments else ["--cost", str(cost)]
    assert said in refusal_of("study", "curves", "--trace", trace, *priced, *arguments)


def test_a_trace_that_is_exact_for_less_than_the_budget(tmp_path: Path, cost: Path) -> None:
    trace = write_synthetic_trace(tmp_path / "trace", num_sequences=2, length=12, kept=16)
    assert "exact up to 16" in refusal_of("study", "curves", "--trace", trace, "--cost", cost, "--budget", "17")
    assert curves(trace, "--cost", str(cost))["budget"] == 16


def test_without_prices_it_says_how_to_get_them(trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cost_file, "PACKAGED", tmp_path)
    assert "simlab profile" in refusal_of("study", "curves", "--trace", trace)
    unfinished = tmp_path / "unfinished.json"
    write_cost_file(unfinished, EMPTY)
    assert "not finished" in refusal_of("study", "curves", "--trace", trace, "--cost", unfinished)


def test_the_packaged_trace_has_raw_and_calibrated_curves() -> None:
    value = json_of("study", "curves", "--limit", "2", "--budget", "16", "--json")
    assert [(row["edges"], row["rule"]) for row in value["rows"]] == [
        (edges, rule) for edges in ("raw", "calibrated") for rule in RULES
    ]
    told = [(one["num_drafted"][FIRST], one["tokens_per_s"]) for one in value["worst_curves"]]
    least = [1 - curve[n] / max(curve) for n, curve in told]
    assert least == pytest.approx([row["worst_regret_share"] for row in value["rows"] if row["rule"] == FIRST])
    assert "Fewer than 20 prompts" in output_of("study", "curves", "--limit", "2", "--budget", "16", "--progress")


def test_slices_by_the_length_of_the_prompt_add_up(trace: Path, cost: Path) -> None:
    whole = curves(trace, "--cost", str(cost))["rows"]
    sliced = curves(trace, "--cost", str(cost), "--by", "context")["rows"]
    lengths = [len(record.prompt.token_ids) for record in open_trace(trace).sequences() if len(record.text) > 1]
    wanted = {f"{1 << size.bit_length() >> 1}-{(1 << size.bit_length()) - 1}" for size in lengths}
    assert {row["slice"] for row in sliced} == wanted
    for rule in RULES:
        roots = sum(row["roots"] for row in sliced if row["rule"] == rule)
        assert roots == next(row["roots"] for row in whole if row["rule"] == rule)


def noisy(num_visits: int, noise: float, bumps: float) -> cost_file.CostFile:
    """Samples whose visits are each off by a share; verifying alternates from count to count by another."""
    full, generator = filled(), np.random.default_rng(7)
    samples = {}
    for stage, n, context in full.cells():
        at_once = full.visits.steps if stage == PLAIN else full.visits.rounds
        place = full.node_counts.index(n)
        price = sample_s(stage, n, context) * (1 + bumps * (place % 2) * (stage == "verify"))
        slow = np.repeat(np.exp(noise * generator.standard_normal(num_visits)), at_once)
        samples[stage, n, context] = tuple((price * slow).tolist())
    return replace(full, samples=samples, repeats=2 * num_visits)


def test_valleys_are_told_from_noise_and_samples_that_would_tell_are_named(trace: Path, tmp_path: Path) -> None:
    found = {}
    for name, noise in (("quiet", 1e-4), ("loud", 0.8)):
        path = tmp_path / f"{name}.json"
        write_cost_file(path, noisy(9, noise, 1.5))
        value = curves(trace, "--cost", str(path))
        found[name] = value["rows"][0], value["prices"][0], value["split_halves"][0]
    (quiet, known, halves), (loud, unknown, _) = found["quiet"], found["loud"]
    assert quiet["several_maxima_share"] > 0.9
    assert quiet["kept_valley_share"] == quiet["several_maxima_share"] == halves["found_again"]
    assert loud["kept_valley_share"] < 0.5 * loud["several_maxima_share"]
    assert loud["regret_share_ci_high"] > loud["regret_share"] + 0.05
    assert known["samples"] == unknown["samples"] == 18
    assert known["samples_needed"] <= 18 < unknown["samples_needed"] <= unknown["samples_needed_everywhere"]
    assert unknown["command"] == f"simlab profile --out NEW_FILE --repeats {unknown['samples_needed']}"
    text = output_of("study", "curves", "--trace", trace, "--cost", tmp_path / "loud.json")
    assert f"`{unknown['command']}`" in text
    assert "18 samples a cell" in " ".join(text.split())
    assert "a valley in 95 % of the draws of the prices" in text


def test_one_visit_to_a_cell_says_nothing_of_noise(trace: Path, tmp_path: Path) -> None:
    path = tmp_path / "once.json"
    write_cost_file(path, noisy(1, 0.1, 1.5))
    value = curves(trace, "--cost", str(path))
    assert value["rows"][0]["kept_valley_share"] is value["prices"][0]["samples_needed"] is None
    assert value["split_halves"] == []
    text = output_of("study", "curves", "--trace", trace, "--cost", path)
    assert "one visit to a cell does not tell" in text
    assert "--repeats 4`" in text
    assert "draws" not in text
