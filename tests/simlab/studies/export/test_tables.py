"""Tables of papers: their cells are those of the summaries, bold is what tests say, and LaTeX compiles."""

import re
import shutil
import subprocess
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from study_results import refused
from synthetic_traces import write_synthetic_trace

from simlab.analysis.export.paper import PaperOptions, default_label, labels_of, paper_tables
from simlab.analysis.export.tables import Cell, ExportTable, escaped_latex, escaped_markdown, latex, markdown
from simlab.errors import TraceError
from simlab.studies.compare import compare
from simlab.studies.export.export import export
from simlab.studies.replay.replay import ReplayTable, replay
from simlab.traces.results.files import read_results, write_results

HOSTILE = r'my_tables\a|b/100%&{x}~^$#<y>"`*[z]'


@pytest.fixture(scope="module")
def table(cost: Path, tmp_path_factory: pytest.TempPathFactory) -> ReplayTable:
    folder = tmp_path_factory.mktemp("tables")
    trace = write_synthetic_trace(folder / "trace", num_sequences=24, length=40)
    return replay(trace, ["ddtree:budget=4/8"], cost=cost, out=folder / "results.parquet")


@pytest.fixture(scope="module")
def results(table: ReplayTable) -> Path:
    return Path(table.trace.location).parent / "results.parquet"


def markdown_cells(text: str) -> list[list[str]]:
    """The cells of every row of pipe tables, as a reader sees them; rules are left out."""
    rows = [line for line in text.splitlines() if line.startswith("|") and not line.startswith("| ---")]
    return [[re.sub(r"\\(.)", r"\1", cell.strip()) for cell in re.split(r"(?<!\\)\|", row)[1:-1]] for row in rows]


def latex_rows(text: str) -> list[list[str]]:
    """The cells of every row of a tabular as they are written."""
    rows = [line.strip() for line in text.splitlines() if line.strip().endswith("\\\\")]
    return [[cell.strip() for cell in re.split(r"(?<!\\)&", row[:-2])] for row in rows]


def compiled(text: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """A document with the tables, through pdflatex."""
    head = "\\documentclass{article}\n\\usepackage{booktabs}\n\\begin{document}\n"
    (folder / "paper.tex").write_text(f"{head}{text}\n\\end{{document}}\n", encoding="utf-8")
    typed = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "paper.tex"]
    return subprocess.run(typed, cwd=folder, capture_output=True, text=True, errors="replace", timeout=120, check=False)


def test_what_is_bold_is_what_no_test_tells_from_the_best(results: Path) -> None:
    rows = markdown_cells(export("markdown", results=results, show="speedup").text)[1:]
    policies = {"Chain": "chain", "DDTree (4)": "ddtree:budget=4", "DDTree (8)": "ddtree:budget=8"}
    policies["Autoregressive"] = "autoregressive"
    values = {row[0]: float(row[1].strip("*")) for row in rows if row[0] in policies}
    best = policies[max(values, key=lambda name: values[name])]
    found = compare(results, [best, *(label for label in policies.values() if label != best)], measure="speedup")
    differing = {one.second for one in found.of_measure if one.differs}
    bold = {policies[row[0]] for row in rows if row[1].startswith("**")}
    assert bold == set(policies.values()) - differing
    assert best in bold
    assert differing
    text = export("markdown", results=results, show="nodes_per_round").text
    assert "**" not in text
    assert "Bold" not in text


def test_too_few_prompts_leave_nothing_bold(results: Path, tmp_path: Path) -> None:
    rows = read_results(results)
    write_results(tmp_path / "one.parquet", rows.filter(pl.col("prompt_id") == rows["prompt_id"][0]))
    text = export("latex", results=tmp_path / "one.parquet").text
    assert "textbf" not in text
    assert "Bold" not in text
    assert "Fewer than 20 prompts" in text


def test_labels_and_intervals(results: Path) -> None:
    labels = ["ddtree:budget=8=DDTree, large", "math=Maths"]
    rows = markdown_cells(export("markdown", results=results, labels=labels, columns="dataset", intervals=True).text)
    assert rows[0][1] == "Maths length"
    assert rows[4][0] == "DDTree, large"
    assert re.fullmatch(r"\**[\d.]+\** \[[\d.]+, [\d.]+\]", rows[4][1])
    same = export("markdown", results=results, labels={"chain": "A chain"}).text
    assert "| A chain |" in same
    assert "did you mean `ddtree:budget=8`" in refused(export, "latex", results=results, labels=["ddtree:budget=88=X"])


@pytest.mark.parametrize(
    ("policy", "label"),
    [
        ("autoregressive", "Autoregressive"),
        ("chain:length=5", "Chain (5)"),
        ("caddtree", "CaDDTree"),
        ("presto:budget=8,renormalised=true", "Presto (8, renormalised=true)"),
        ("/home/me/conf.py:Confident:budget=8", "Confident (8)"),
        ("Confident:budget=8", "Confident (8)"),
        ('router:routes="chain|ddtree:budget=16",cuts=1.5', 'Router (routes="chain|ddtree:budget=16", cuts=1.5)'),
        ("hindsight:best<=16", "Oracle budgets (up to 16)"),
        ("hindsight:routes=chain", "Oracle routes"),
    ],
)
def test_a_default_label_is_short_and_in_words(policy: str, label: str) -> None:
    assert default_label(policy) == label


def test_a_label_may_hold_what_a_name_holds() -> None:
    names = ["ddtree:budget=1", "ddtree:budget=16", "a=b"]
    assert labels_of(["ddtree:budget=16=k = 16", "a=b=c=d"], names) == {"ddtree:budget=16": "k = 16", "a=b": "c=d"}


def test_policies_that_would_be_called_the_same_keep_their_names(results: Path) -> None:
    rows = read_results(results).filter(pl.col("name").is_in(["ar", "chain"]))
    again = rows.filter(pl.col("name") == "chain").with_columns(
        policy=pl.lit("a/mine.py:Chain"), policy_id=pl.lit("0123456789abcdef"), name=pl.lit("mine.py:Chain")
    )
    (found,) = paper_tables(pl.concat([rows, again]), PaperOptions())
    assert [name for name, _ in found.rows] == ["Autoregressive", "chain", "a/mine.py:Chain"]


def test_kinds_and_prices_stand_in_tables_of_their_own(results: Path) -> None:
    rows = read_results(results)
    measured = rows.with_columns(pl.lit("measured").alias("kind"), pl.lit(None, pl.String).alias("cost_id"))
    found = paper_tables(pl.concat([rows, measured]), PaperOptions())
    assert [table.comment[0].split(";")[0] for table in found] == ["Predicted by replay", "Measured on the real models"]
    assert [table.key for table in found] == ["results-1", "results-2"]
    assert ["predicted" in found[0].caption, "predicted" in found[1].caption] == [True, False]
    stages = [
        pl.lit(None, pl.Float64).alias(name) for name in ("draft_s", "channel_s", "select_s", "verify_s", "commit_s")
    ]
    without = rows.with_columns(pl.lit(None, pl.String).alias("cost_id"), *stages)
    (unpriced,) = paper_tables(without, PaperOptions())
    assert len(unpriced.heads) == len(found[0].heads) - 1


def test_data_sets_of_several_traces_stand_in_one_table(results: Path) -> None:
    rows = read_results(results)
    apart = rows.with_columns(text_id=pl.col("text_id") + pl.col("dataset"), draft_id=pl.col("draft_id") + "x")
    (found,) = paper_tables(apart, PaperOptions(columns="dataset"))
    (before,) = paper_tables(rows, PaperOptions(columns="dataset"))
    assert found.rows == before.rows
    lacking = apart.filter((pl.col("name") != "chain") | (pl.col("dataset") != "math"))
    (dashed,) = paper_tables(lacking, PaperOptions(columns="dataset"))
    cells = dict(dashed.rows)["Chain"]
    assert [cell.text == "-" for cell in cells] == [True, True, False, False, False, False, True, True]


def test_comparisons_have_tables(table: ReplayTable) -> None:
    found = compare(table, ["ddtree:budget=4", "ddtree:budget=8"], against="chain")
    rows = markdown_cells(export("markdown", results=found).text)
    assert rows[0] == ["policy", "tokens/s", "Chain", "ratio", "p"]
    for row, name, own in zip(rows[1:], ("DDTree (4)", "DDTree (8)"), found.of_measure, strict=True):
        ends, bold = own.ratio_interval, "**" if own.differs else ""
        ratio = f"{bold}{own.ratio:.3f}{bold} [{ends.low:.3f}, {ends.high:.3f}]"
        p_value = "<0.001" if own.p_adjusted < 0.001 else f"{own.p_adjusted:.3f}"
        assert row == [name, f"{own.first_value:.1f}", f"{own.second_value:.1f}", ratio, p_value]
    assert "--show lays out the rows" in refused(export, "latex", results=found, show="speedup")
    assert export("latex", results=table).text.count(r"\begin{table}") == 1


def test_hostile_labels_are_escaped(results: Path, tmp_path: Path) -> None:
    rows = read_results(results).filter(pl.col("name") == "chain").with_columns(pl.lit(HOSTILE).alias("policy"))
    write_results(tmp_path / "hostile.parquet", rows)
    tables = paper_tables(read_results(tmp_path / "hostile.parquet"), PaperOptions())
    assert markdown_cells(markdown(tables))[1][0] == HOSTILE
    cell = latex_rows(latex(tables))[1][0]
    assert not re.search(r"(?<!\\)[%$#_~^&]", cell)
    bracketed = ExportTable("p", (("", "h"),), (("[a]", (Cell("1"),)),), (), "a --> b", "k", ("--> <!--",))
    assert r"    {}[a] &" in latex([bracketed])
    assert markdown([bracketed]).count("-->") == 1


@given(st.text(alphabet=st.sampled_from(r'ab \&%$#_{}~^<>|"`*[]')))
def test_escapes_can_be_taken_back(text: str) -> None:
    assert re.sub(r"\\(.)", r"\1", escaped_markdown(text)) == text
    names = {"backslash": "\\", "asciitilde": "~", "asciicircum": "^", "less": "<", "greater": ">", "bar": "|"}
    names["asciigrave"] = "`"
    plain = re.sub(r"\\text(\w+)\{\}|\\(.)|''", lambda match: names.get(match[1], match[2] or '"'), escaped_latex(text))
    assert plain == text


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="pdflatex (texlive-latex-recommended) is not here")
def test_the_latex_compiles(results: Path, table: ReplayTable, tmp_path: Path) -> None:
    hostile = read_results(results).with_columns(policy=pl.lit(HOSTILE) + pl.col("policy"), dataset=pl.lit(HOSTILE))
    write_results(tmp_path / "hostile.parquet", hostile)
    texts = [
        export("latex", results=results).text,
        export("latex", results=results, columns="dataset", intervals=True).text,
        export("latex", results=results, rows="dataset").text,
        export("latex", results=compare(table, ["ddtree:budget=4", "chain"])).text,
        export("latex", results=tmp_path / "hostile.parquet", columns="dataset").text,
    ]
    done = compiled("\n".join(texts), tmp_path)
    assert done.returncode == 0, done.stdout[-2000:]
    assert (tmp_path / "paper.pdf").is_file()


def test_results_without_rows_are_refused(results: Path) -> None:
    with pytest.raises(TraceError, match="no rows"):
        paper_tables(read_results(results).clear(), PaperOptions())
