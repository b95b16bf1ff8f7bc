"""Tables in Markdown and LaTeX: the cells of the command line's table, escaped."""

import re
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from study_results import refused

from simlab.analysis.export.tables import escaped_latex, escaped_markdown, export_tables, latex, markdown
from simlab.analysis.table.summaries import summarise
from simlab.analysis.table.text import summary_table
from simlab.errors import TraceError
from simlab.studies.compare import compare
from simlab.studies.export.export import export
from simlab.studies.replay.replay import replay
from simlab.traces.results.files import read_results, write_results
from simlab.traces.synthetic import write_synthetic_trace

HOSTILE = r'my_tables\a|b/100%&{x}~^$#<y>"`*[z]'


@pytest.fixture(scope="module")
def results(cost: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tables")
    trace = write_synthetic_trace(folder / "trace", num_sequences=24, length=40)
    replay(trace, ["ddtree:budget=4/8"], cost=cost, out=folder / "results.parquet")
    return folder / "results.parquet"


def exported(results: Path, name: str, by: str | None = None) -> str:
    return export(name, results=results, by=by).text


def markdown_cells(text: str) -> list[list[str]]:
    """The cells of every row of pipe tables, as a reader sees them; rules are left out."""
    rows = [line for line in text.splitlines() if line.startswith("|") and not line.startswith("| ---")]
    return [[re.sub(r"\\(.)", r"\1", cell.strip()) for cell in re.split(r"(?<!\\)\|", row)[1:-1]] for row in rows]


def latex_rows(text: str) -> list[list[str]]:
    """The cells of every row of a tabular as they are written."""
    rows = [line.strip() for line in text.splitlines() if line.strip().endswith("\\\\")]
    return [[cell.strip() for cell in re.split(r"(?<!\\)&", row[:-2])] for row in rows]


def test_the_cells_are_those_of_the_command_line(results: Path) -> None:
    found = summarise(read_results(results))
    shown = [re.split(r"\s{2,}", line.strip()) for line in summary_table(found).splitlines()[2:]]
    heading, *rows = markdown_cells(exported(results, "markdown"))
    assert rows == shown
    assert {len(row) for row in [heading, *rows]} == {9}
    assert heading[1:3] == ["acceptance length pooled [95 %]", "acceptance length macro avg"]
    written = latex_rows(exported(results, "latex"))
    assert [row[0] for row in written[2:]] == [escaped_latex(row[0]) for row in shown]
    assert [row[1:] for row in written[2:]] == [row[1:] for row in shown]
    assert written[0][1] == r"\multicolumn{2}{c}{acceptance length}"
    assert [len(row) for row in written] == [8, *[9] * (len(shown) + 1)]


def test_the_source_stands_below(results: Path) -> None:
    first = read_results(results).row(0, named=True)
    for name in ("markdown", "latex"):
        text = exported(results, name)
        assert all(str(first[column]) in text for column in ("text_id", "draft_id", "cost_id", "simlab_version"))
        assert "Predicted; 18 prompts (chat, code, math), 24 sequences" in text
        assert "bonus token included" in text
        assert "are oracle upper bounds, which know the target's text, and no policies" in text


def test_slices_have_tables_of_their_own(results: Path) -> None:
    text = exported(results, "latex", "dataset")
    rules = [text.count(f"\\{rule}rule") for rule in ("top", "mid", "bottom")]
    assert rules == [4, 4, 4]
    assert text.count(r"\begin{tabular}") == text.count(r"\end{tabular}") == 4
    assert text.count("{") == text.count("}")
    assert "dataset chat: 6 prompts, 12 sequences." in text
    assert "18 prompts (" not in text
    titles = re.findall(r"\*\*(.+)\*\*", exported(results, "markdown", "dataset"))
    assert [title.split(":")[0] for title in titles] == ["dataset math", "dataset code", "dataset chat", "all"]


def test_kinds_and_prices_stand_in_tables_of_their_own(results: Path) -> None:
    rows = read_results(results)
    measured = rows.with_columns(pl.lit("measured").alias("kind"), pl.lit(None, pl.String).alias("cost_id"))
    found = export_tables(pl.concat([rows, measured]))
    assert [table.source.split(";")[0] for table in found] == ["Predicted", "Measured in a real runner"]
    assert "latency profile" in found[0].source
    assert "latency profile" not in found[1].source
    stages = [
        pl.lit(None, pl.Float64).alias(name) for name in ("draft_s", "channel_s", "select_s", "verify_s", "commit_s")
    ]
    without = rows.with_columns(pl.lit(None, pl.String).alias("cost_id"), *stages)
    assert len(export_tables(pl.concat([without, measured]))) == 2
    assert len(found[0].heading) == len(export_tables(without)[0].heading) + 3


def test_a_hypothetical_machine_is_named_so(trace: Path, cost: Path, tmp_path: Path) -> None:
    out = tmp_path / "if.parquet"
    replay(trace, ["chain"], cost=cost, what_if=["verify*0.5"], out=out)
    for name in ("markdown", "latex"):
        assert "latency profile what-if-" in exported(out, name)
    (machine,) = (cost_id for cost_id in set(read_results(out)["cost_id"]) if cost_id.startswith("what-if-"))
    compared = compare(out, ["chain"], against="autoregressive", cost=[machine]).text()
    assert f"latency profile {machine}" in " ".join(compared.split())


def test_hostile_labels_are_escaped(results: Path, tmp_path: Path) -> None:
    rows = read_results(results).filter(pl.col("name") == "chain").with_columns(pl.lit(HOSTILE).alias("policy"))
    write_results(tmp_path / "hostile.parquet", rows)
    tables = export_tables(read_results(tmp_path / "hostile.parquet"))
    assert markdown_cells(markdown(tables))[1][0] == HOSTILE
    cell = latex_rows(latex(tables))[2][0]
    assert not re.search(r"(?<!\\)[%$#_~^&]", cell)
    bracketed = rows.with_columns(pl.lit("[a]").alias("policy"))
    assert r"    {}[a] &" in latex(export_tables(bracketed))


@given(st.text(alphabet=st.sampled_from(r'ab \&%$#_{}~^<>|"`*[]')))
def test_escapes_can_be_taken_back(text: str) -> None:
    assert re.sub(r"\\(.)", r"\1", escaped_markdown(text)) == text
    names = {"backslash": "\\", "asciitilde": "~", "asciicircum": "^", "less": "<", "greater": ">", "bar": "|"}
    names["asciigrave"] = "`"
    plain = re.sub(r"\\text(\w+)\{\}|\\(.)|''", lambda match: names.get(match[1], match[2] or '"'), escaped_latex(text))
    assert plain == text


def test_bad_results_are_refused(results: Path, tmp_path: Path) -> None:
    assert "expected a result file" in refused(export, "latex", results=tmp_path / "none.parquet")
    assert "needs --results" in refused(export, "latex")
    assert "--policy is read with" in refused(export, "latex", "chain", results=results)
    with pytest.raises(TraceError, match="no rows"):
        export_tables(read_results(results).clear())
