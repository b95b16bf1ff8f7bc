"""Curves of expected speed by tree size: what the study counts, on which roots, and how it tells valleys from noise."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from made_up_costs import EMPTY, filled, sample_s
from study_results import refused, value_of

import simlab
from simlab.analysis.curves.machines import CONVEX, FIRST
from simlab.analysis.curves.tallies import FIXED, PRICE, SCAN
from simlab.cost import PLAIN
from simlab.studies.curves import curves
from simlab.traces.artefacts import cost as cost_file
from simlab.traces.artefacts.cost import CostFile, write_cost_file
from simlab.traces.synthetic import write_synthetic_trace

RULES = [FIRST, SCAN, CONVEX, FIXED, PRICE]


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


def test_a_trace_without_rounds_or_calibration_has_no_such_curve(trace: Path, tmp_path: Path, cost: Path) -> None:
    assert "calibration" in refused(curves, trace, cost=cost, edges=["calibrated"])
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
