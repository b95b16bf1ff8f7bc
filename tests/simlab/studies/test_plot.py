"""Pictures of results: those of the report, from files and from objects."""

import sys
from pathlib import Path

import plotly.graph_objects as go
import polars as pl
import pytest
from study_results import refused

import simlab
from simlab.analysis.figure_style import fitted
from simlab.studies.replay.replay import ReplayTable
from simlab.studies.report.build import chart_of
from simlab.studies.report.inputs import inputs_of_results

POLICIES = ["ddtree:budget=4/8/16"]

COSTS = ("smollm2-135m-epyc-float32", "smollm2-135m-h200-eager")


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("plot") / "results.parquet"


@pytest.fixture(scope="module")
def table(out: Path) -> ReplayTable:
    return simlab.replay(policies=POLICIES, limit=24, out=out)


def without_looks(figure: go.Figure) -> object:
    return figure.to_plotly_json()["data"]


def test_a_table_draws_what_the_report_draws(table: ReplayTable, out: Path) -> None:
    inputs = inputs_of_results([out], None, None, None)
    for key in ("speed", "by-dataset", "stages", "depths", "ends"):
        figure = table.plot(key)
        assert str(without_looks(figure)) == str(without_looks(fitted(chart_of(inputs, key).figure)))
        assert figure.layout.paper_bgcolor == "white"
        assert str(without_looks(simlab.plot([out], show=key).figure)) == str(without_looks(figure))
    assert str(without_looks(table.plot())) == str(without_looks(table.plot("speed")))
    assert "did you mean `depths`" in refused(table.plot, "depth")


def test_other_results_have_pictures(table: ReplayTable) -> None:
    advice = simlab.advise(batch=(1, 8), policies=["chain", "ddtree:budget=8"], limit=4)
    chain, tree = advice.plot().data[:2]
    assert (chain.name, tree.name, list(chain.x)) == ("best chain", "best tree", [1, 8])
    assert list(chain.y) == [one.gains["chain", "nothing"].ratio for one in advice.batches]
    assert list(chain.marker.symbol) == ["circle", "circle-open"]
    assert "has no picture" in refused(simlab.engine_rules(limit=2, batch=(1,)).plot)


def points(figure: go.Figure) -> dict[str, float]:
    """What is drawn beside each name of a figure of bars or dots."""
    return {name: x for part in figure.data for name, x in zip(part.y, part.x, strict=True)}


def test_pictures_hold_the_figures_of_their_tables(table: ReplayTable) -> None:
    compared = simlab.compare(table, ["chain", "ddtree:budget=4", "ddtree:budget=16"])
    ratios = compared.frame.filter(measure="speedup").to_dicts()
    wanted = {f"chain against {row['second']}": 100 * (row["ratio"] - 1) for row in ratios}
    assert points(compared.plot()) == pytest.approx(wanted)

    optimized = simlab.optimize(policies=["ddtree:budget=4/8", "chain:length=2/4"], cost=COSTS[0])
    rows = {{"ar": "autoregressive"}.get(row["policy"], row["policy"]): row for row in optimized.frame.to_dicts()}
    (best,) = (policy for policy, row in rows.items() if row["role"] == "best")
    compared_rows = {name: row for name, row in rows.items() if row["p_adjusted"] is not None}
    wanted = {f"{best} against {name}": 100 * (row["best_over_this"] - 1) for name, row in compared_rows.items()}
    assert points(optimized.plot("differences")) == pytest.approx(wanted)
    drawn = [y for part in optimized.plot("speed").data for y in part.y]
    assert drawn == pytest.approx([rows[name]["evaluation_speedup"] for name in ("chain:length=4", "chain", best)])


def test_pictures_of_curves_and_scorings_hold_the_figures_of_their_tables() -> None:
    curves = simlab.curves(limit=2, budget=16, cost=COSTS)
    names = [
        f"{edges} probabilities, {cost}"
        for edges in ("raw", "calibrated")
        for cost in curves.frame["cost_id"].unique(maintain_order=True)
    ]
    maxima, regret = curves.plot("maxima").data, curves.plot("regret").data
    assert [part.name for part in maxima] == [part.name for part in regret] == names
    for number, setting in enumerate(curves.frame.partition_by("edges", "cost_id", maintain_order=True)):
        several = sum(y for x, y in zip(maxima[number].x, maxima[number].y, strict=True) if x > 1)
        assert several == pytest.approx(setting["several_maxima_share"][0])
        behind = setting.filter(pl.col("rule") != "price")
        assert list(regret[number].x) == pytest.approx(behind["behind_price_share"].to_list())
        best = max(zip(curves.plot("budgets").data[number].y, curves.plot("budgets").data[number].x, strict=True))
        assert best[1] == setting["best_fixed_budget"][0]
    scoring = simlab.scoring(limit=2, nodes=8)
    accepted = points(go.Figure(scoring.plot("waste").data[0]))
    assert accepted == pytest.approx(
        {name: 100 * share for name, share in scoring.frame.select("policy", "accepted_share").rows()}
    )


def test_without_kaleido_a_sentence_says_what_to_install(
    out: Path, table: ReplayTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "kaleido", None)
    monkeypatch.setattr(go.Figure, "to_image", _no_kaleido)
    said = refused(simlab.plot, [out], out=tmp_path / "speed.svg")
    assert "install both (pip install kaleido), or write .html" in said
    assert not (tmp_path / "speed.svg").exists()


def _no_kaleido(*_given: object, **_named: object) -> bytes:
    raise ValueError("needs kaleido")
