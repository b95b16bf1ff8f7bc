"""Curves of expected speed by tree size: at which roots, and what has none."""

from pathlib import Path

import polars as pl
import pytest
from made_up_costs import EMPTY
from study_results import refused, value_of

import simlab
from simlab.analysis.curves.machines import FIRST
from simlab.studies.curves import curves
from simlab.traces.artefacts import cost as cost_file
from simlab.traces.artefacts.cost import write_cost_file
from simlab.traces.synthetic import write_synthetic_trace


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
