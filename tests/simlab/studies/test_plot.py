"""Pictures of results: those of the report, from files and from objects."""

import sys
from pathlib import Path

import plotly.graph_objects as go
import pytest
from study_results import refused

import simlab
from simlab.analysis.figure_style import fitted
from simlab.studies.replay.replay import ReplayTable
from simlab.studies.report.build import chart_of
from simlab.studies.report.inputs import inputs_of_results

POLICIES = ["ddtree:budget=4/8/16"]


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
