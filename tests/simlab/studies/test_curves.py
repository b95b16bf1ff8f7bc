"""Curves of expected speed by tree size: what the study counts, on which roots, and how it tells valleys from noise."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from made_up_costs import EMPTY, filled, sample_s
from study_results import refused, value_of
from synthetic_traces import write_synthetic_trace

import simlab
from simlab.analysis.curves.rows import SCHEMA
from simlab.analysis.curves.tallies import CONVEX, FIRST, FIXED, PRICE, SCAN
from simlab.cost import PLAIN
from simlab.studies.curves import curves
from simlab.traces.artefacts import cost as cost_file
from simlab.traces.artefacts.cost import CostFile, write_cost_file
from simlab.traces.reader import open_trace

RULES = [FIRST, SCAN, CONVEX, FIXED, PRICE]


def test_smooth_prices_give_one_maximum_and_all_rules(trace: Path, cost: Path) -> None:
    result = curves(trace, cost=cost, budget=8)
    value = value_of(result)
    assert (value["budget"], value["policy"], value["in_sample"]) == (8, None, [])
    rows = {row["rule"]: row for row in value["rows"]}
    assert list(rows) == RULES
    assert {row["edges"] for row in value["rows"]} == {"raw"}
    first, scan, price = rows[FIRST], rows[SCAN], rows[PRICE]
    assert scan["regret_share"] == price["behind_price_share"] == 0
    assert all(row["regret_share"] >= 0 and row["behind_price_share"] > -1e-12 for row in rows.values())
    assert price["tokens_per_s"] == pytest.approx(price["price_tokens_per_s"])
    named = [line.split("  ")[0] for line in result.text().splitlines()]
    assert {FIRST, f"{FIXED}, {rows[FIXED]['best_fixed_budget']}"} < set(named)
    assert f"{PRICE}, {price['price_tokens_per_s']:.1f} tokens/s" in named
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
    full, stairs, out = filled(), tmp_path / "stairs.json", tmp_path / "curves.parquet"
    samples = {
        cell: tuple(value * (3 if cell[0] == "verify" and cell[1] > 1 else 1) for value in values)
        for cell, values in full.samples.items()
    }
    write_cost_file(stairs, replace(full, samples=samples))
    table = curves(trace, cost=[cost, stairs], by="dataset")
    table.write(out)
    text, rows = table.text(), pl.read_parquet(out)
    assert " ".join(text.split()).count("Made-up CPU") == 2
    assert "at every root, 0 to 64 drafted tokens" in text
    assert "No calibrated probabilities: " in text
    assert set(SCHEMA) | {"text_id", "draft_id", "visited_by", "simlab_version"} == set(rows.columns)
    assert rows["rule"].unique(maintain_order=True).to_list() == RULES
    assert all(f"raw probabilities, dataset {one}: " in text for one in rows["dataset"].unique())
    num_roots = rows.select("sequence", "position").unique().height
    assert num_roots == sum(len(record.text) - 1 for record in open_trace(trace).sequences())
    assert rows.height == num_roots * 2 * len(RULES)
    assert text.count(f"raw probabilities: {num_roots:,} curves") == 2
    assert rows.group_by("cost_id").agg(pl.col("num_maxima").max())["num_maxima"].to_list() != [1, 1]


def test_only_the_roots_of_a_policy(trace: Path, cost: Path, tmp_path: Path) -> None:
    everywhere, visited, rounds = (tmp_path / f"{name}.parquet" for name in ("all", "some", "rounds"))
    curves(trace, cost=cost, budget=8).write(everywhere)
    table = curves(trace, cost=cost, budget=8, policy="ddtree:budget=4", limit=5)
    table.write(visited)
    simlab.replay(trace, ["ddtree:budget=4"], limit=5, rounds=rounds)
    where = pl.read_parquet(rounds).filter(policy="ddtree:budget=4").select("sequence", "position")
    here = pl.read_parquet(visited).filter(rule=FIRST)
    assert here.select("sequence", "position").equals(where)
    value = value_of(table)
    assert (value["policy"], value["rows"][0]["roots"]) == ("ddtree:budget=4", where.height)
    same = pl.read_parquet(everywhere).filter(rule=FIRST).join(where, on=["sequence", "position"], how="semi")
    assert same.drop("visited_by").equals(here.drop("visited_by"))


@pytest.mark.parametrize(
    ("named", "said"),
    [
        ({"budget": 65}, "ends at 64 drafted tokens"),
        ({"edges": ["calibrated"]}, "calibration"),
        ({"calibration": "/does/not/exist"}, "/does/not/exist"),
        ({"edges": ["raw"], "calibration": "x"}, "--edges calibrated"),
        ({"policy": "ddtree:budget=1/2"}, "makes 2"),
        ({"policy": "nothing"}, "no policy `nothing`"),
        ({"draft_set": "other"}, "no draft set"),
    ],
)
def test_what_has_no_curve_is_one_sentence(named: dict[str, object], said: str, trace: Path, cost: Path) -> None:
    assert said in refused(curves, trace, cost=cost, **named)


def test_a_trace_without_rounds_has_no_curve(tmp_path: Path, cost: Path) -> None:
    one_token = write_synthetic_trace(tmp_path / "trace", num_sequences=2, length=1)
    assert "holds no rounds, so there are no curves" in refused(curves, one_token, cost=cost)


def test_a_trace_that_is_exact_for_less_than_the_budget(tmp_path: Path, cost: Path) -> None:
    short = write_synthetic_trace(tmp_path / "trace", num_sequences=2, length=12, kept=16)
    assert "exact up to 16" in refused(curves, short, cost=cost, budget=17)
    assert value_of(curves(short, cost=cost))["budget"] == 16


def test_without_prices_it_says_how_to_get_them(trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cost_file, "PACKAGED", tmp_path)
    assert "simlab profile" in refused(curves, trace)
    write_cost_file(tmp_path / "unfinished.json", EMPTY)
    assert "not finished" in refused(curves, trace, cost=tmp_path / "unfinished.json")


def test_slices_by_the_length_of_the_prompt_add_up(trace: Path, cost: Path) -> None:
    whole, sliced = (value_of(curves(trace, cost=cost, by=by))["rows"] for by in (None, "context"))
    lengths = [len(record.prompt.token_ids) for record in open_trace(trace).sequences() if len(record.text) > 1]
    wanted = {f"{1 << size.bit_length() >> 1}-{(1 << size.bit_length()) - 1}" for size in lengths}
    assert {row["slice"] for row in sliced} == wanted
    for rule in RULES:
        roots = sum(row["roots"] for row in sliced if row["rule"] == rule)
        assert roots == next(row["roots"] for row in whole if row["rule"] == rule)


def noisy(num_visits: int, noise: float, bumps: float) -> CostFile:
    """Samples whose visits are each off by a share; verifying alternates from count to count by another."""
    full, generator = filled(), np.random.default_rng(7)
    samples = {}
    for stage, n, context in full.cells():
        at_once = full.visits.steps if stage == PLAIN else full.visits.rounds
        index = full.node_counts.index(n)
        price = sample_s(stage, n, context) * (1 + bumps * (index % 2) * (stage == "verify"))
        slow = np.repeat(np.exp(noise * generator.standard_normal(num_visits)), at_once)
        samples[stage, n, context] = tuple((price * slow).tolist())
    return replace(full, samples=samples, repeats=2 * num_visits)


def test_valleys_are_kept_apart_from_noise_and_samples_that_would_tell_are_named(trace: Path, tmp_path: Path) -> None:
    tables = {}
    for name, noise in (("quiet", 1e-4), ("loud", 0.8)):
        write_cost_file(tmp_path / f"{name}.json", noisy(9, noise, 1.5))
        tables[name] = curves(trace, cost=tmp_path / f"{name}.json")
    values = {name: value_of(table) for name, table in tables.items()}
    (quiet, loud), (known, unknown) = ([values[name][key][0] for name in values] for key in ("rows", "prices"))
    assert quiet["several_maxima_share"] > 0.9
    halves = values["quiet"]["split_halves"][0]
    assert quiet["kept_valley_share"] == quiet["several_maxima_share"] == halves["found_again"]
    assert loud["kept_valley_share"] < 0.5 * loud["several_maxima_share"]
    assert loud["regret_share_ci_high"] > loud["regret_share"] + 0.05
    assert known["samples"] == unknown["samples"] == 18
    assert known["samples_needed"] <= 18 < unknown["samples_needed"] <= unknown["samples_needed_everywhere"]
    assert unknown["command"] == f"simlab profile --out NEW_FILE --repeats {unknown['samples_needed']}"
    text = tables["loud"].text()
    for said in (f"`{unknown['command']}`", "of the roots a valley survives the noise of the prices"):
        assert said in " ".join(text.split())
    assert "18 samples a cell" in " ".join(text.split())


def test_one_visit_to_a_cell_says_nothing_of_noise(trace: Path, tmp_path: Path) -> None:
    write_cost_file(tmp_path / "once.json", noisy(1, 0.1, 1.5))
    table = curves(trace, cost=tmp_path / "once.json")
    value = value_of(table)
    assert value["rows"][0]["kept_valley_share"] is value["prices"][0]["samples_needed"] is None
    assert value["split_halves"] == []
    assert "one visit to a cell does not tell" in table.text()
    assert "--repeats 4`" in table.text()
    assert "draws" not in table.text()
