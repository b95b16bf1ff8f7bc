"""A researcher's first hour: a policy of one's own from the page, compared, on a report, and in a paper's table."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from commands import output_of
from places import DOCS

import simlab

_BLOCKS = re.findall(r"```python\n(.*?)```", (DOCS / "how_to" / "write_a_policy.md").read_text(), re.DOTALL)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows of the page's policy and of others on the packaged trace."""
    folder = tmp_path_factory.mktemp("researcher")
    (folder / "mine.py").write_text(_BLOCKS[0], encoding="utf-8")
    own, out = f"{folder / 'mine.py'}:SecondChoices:length=4", folder / "results.parquet"
    said = output_of("replay", "-p", own, "-p", "ddtree:budget=8/16", "--limit", 12, "--out", out)
    assert max(map(len, said.split("\n\n")[1].splitlines())) <= 100
    return out


def test_an_own_policy_is_compared_and_reported(results: Path, tmp_path: Path) -> None:
    own = next(name for name in simlab.inspect(str(results)).text().splitlines() if "SecondChoices" in name)
    assert own
    said = output_of("compare", results, "-p", "ddtree:budget=8", "--against", "ddtree:budget=16")
    assert re.search(r"is faster than|no winner", said)
    assert "times as fast" in output_of("report", results, "--texts", 0, "--out", tmp_path / "r.html")


def test_a_paper_gets_one_table_that_compiles(results: Path, tmp_path: Path) -> None:
    typed = ["--rows", "policy", "--columns", "dataset", "--show", "acceptance_length,speedup"]
    names = ["--labels", "ddtree:budget=16=DDTree (16)"]
    table = output_of("export", "--format", "latex", "--results", results, *typed, *names)
    assert table.count(r"\begin{tabular}") == 1
    for wanted in ("DDTree (16)", r"\textbf{", r"\label{", r"\caption{", "SecondChoices"):
        assert wanted in table
    shown = [line for line in table.splitlines() if not line.startswith("%")]
    for hidden in (str(results.parent), str(simlab.sample_trace().text_id)):
        assert hidden in table
        assert not any(hidden in line for line in shown)
    markdown = output_of("export", "--format", "markdown", "--results", results, *typed)
    assert "**" in markdown
    compiler = shutil.which("pdflatex")
    if compiler is None:
        pytest.skip("pdflatex is not here (Debian: texlive-latex-recommended)")
    page = rf"\documentclass{{article}}\usepackage{{booktabs}}\begin{{document}}{table}\end{{document}}"
    (tmp_path / "page.tex").write_text(page, encoding="utf-8")
    done = subprocess.run(
        [compiler, "-interaction=nonstopmode", "-halt-on-error", "page.tex"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout[-2000:]


def test_a_figure_for_a_paper_is_one_command(results: Path, tmp_path: Path) -> None:
    out = tmp_path / "speed.html"
    output_of("plot", results, "--out", out)
    assert "plotly" in out.read_text(encoding="utf-8").lower()


def test_sizes_are_asked_before_recording() -> None:
    value = json.loads(output_of("prompts", "--for", "3%", "--json"))
    assert value["rows"]


@pytest.mark.parametrize(
    "typed",
    [
        "replay",
        "policies",
        "advise",
        "inspect smollm2-135m-epyc-bfloat16",
        "study curves --limit 3",
        "study scoring --limit 3",
    ],
)
def test_every_table_fits_a_page(typed: str) -> None:
    lines = output_of(*typed.split()).splitlines()
    pasted = ("--speculative", "  --speculative")
    assert [line for line in lines if len(line) > 100 and not line.startswith(pasted)] == []
