"""What README says is what its commands print on the packaged data: its tables, its figures, and the report's."""

import html
import re
import shlex
from itertools import pairwise
from pathlib import Path

import pytest
from commands import output_of
from places import REPOSITORY

from simlab.cli.main import main

README = (REPOSITORY / "README.md").read_text(encoding="utf-8")

FIGURE = re.compile(r"(?<![\w.,-])-?\d[\d,]*(?:\.\d+)?(?![\w-]|\.\d)")
"""A number by itself; not that of a name such as 3-gram or Qwen3-8B."""


def commands(start: str) -> list[str]:
    """The commands of README's blocks that begin so."""
    blocks = re.findall(r"^```\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    return [line for block in blocks for line in block.splitlines() if line.startswith(start)]


def figures_of(text: str) -> list[str]:
    """The numbers of a text; those within names and code are none."""
    plain = re.sub(r"`[^`]*`", "", text).replace("−", "-").replace("+", "")
    return FIGURE.findall(plain)


def answers() -> dict[tuple[str, str], str]:
    """The commands of the table of questions, as they are typed, their pages, and what README says that they answer."""
    table = README.partition("## What it answers")[2].partition("\n## ")[0]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines() if line.startswith("|")]
    found = {}
    for _, command, answer in rows[2:]:
        typed = re.search(r"`([^`]+)`\]\(([^)#]+)", command)
        assert typed, command
        found[typed[1], typed[2]] = answer
    return found


def measured_answers(start: str) -> list[tuple[str, str, str]]:
    """Those that hold a figure, of commands that begin so."""
    rows = [(command, page, answer) for (command, page), answer in answers().items()]
    # What is computed from a file of measurements is held to that file by the test of claims.
    computed = re.compile(r"<!-- made .*?<!-- end -->") if start == "simlab " else re.compile(r"(?!)")
    return [row for row in rows if row[0].startswith(start) and figures_of(computed.sub("", row[2]))]


def options_of(command: str) -> frozenset[str]:
    """The latency profiles of a command."""
    words = shlex.split(command)
    return frozenset(after for word, after in pairwise(words) if word == "--cost")


def test_the_first_table_is_what_the_first_command_prints() -> None:
    (command,) = [one for one in commands("simlab replay") if "--trace" not in one]
    printed = output_of(*shlex.split(command)[1:])
    (table, *_) = re.findall(r"^```text\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    assert [line for line in table.splitlines() if line not in printed] == []


def test_the_table_of_two_machines_is_what_its_command_prints() -> None:
    """It stands on the site's home too."""
    home = (REPOSITORY / "docs" / "index.md").read_text(encoding="utf-8")
    whole = re.compile(r"(\| speedup over .*?)\n\n`(simlab replay [^`]+)`", re.DOTALL)
    ((table, command),) = whole.findall(README)
    assert whole.findall(home) == [(table, command)]
    printed = output_of(*shlex.split(command)[1:])
    speedups = re.findall(r"\d\.\d\d \[\d\.\d\d, \d\.\d\d\]", table)
    assert len(speedups) == 8
    assert [one for one in speedups if f" {one} " not in printed] == []


def test_what_stands_there_in_python_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (block,) = re.findall(r"^```python\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    exec(compile(block, "README.md", "exec"), {})
    assert capsys.readouterr().err == ""


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("command", "answer"),
    [(command, answer) for command, _, answer in measured_answers("simlab ")],
    ids=[command for command, _, _ in measured_answers("simlab ")],
)
def test_every_figure_of_an_answer_is_printed_by_the_command_beside_it(command: str, answer: str) -> None:
    printed = set(figures_of(output_of(*shlex.split(command)[1:])))
    assert [figure for figure in figures_of(answer) if figure not in printed] == []


def test_a_figure_of_an_answer_that_takes_hours_is_on_its_page() -> None:
    """What such a command made is on the page, and the page's own test holds it to the command's file."""
    rows = measured_answers("make ")
    assert {command for command, _, _ in rows} == {"make field"}
    for _, page, answer in rows:
        said = set(figures_of((REPOSITORY / page).read_text(encoding="utf-8")))
        assert [figure for figure in figures_of(answer) if figure not in said] == []


@pytest.mark.thorough
def test_the_report_has_the_latency_profile_of_the_table_above_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (above,) = [one for one in commands("simlab replay") if "--trace" not in one]
    (command,) = [one for one in commands("simlab report") if "--trace" not in one]
    assert options_of(command) == options_of(above)
    assert main(shlex.split(command)[1:]) == 0
    page = html.unescape((tmp_path / "report.html").read_text(encoding="utf-8"))
    (chain,) = re.findall(r"^chain .*?(\d\.\d\d \[.*?\])$", README, re.MULTILINE)
    *_, speedup = re.findall(r"\d\.\d\d \[\d\.\d\d, \d\.\d\d\]", f"chain {chain}")
    assert re.search(r'<th scope="row">chain</th><td>' + re.escape(speedup), page)


def test_planted_figures_are_found() -> None:
    assert figures_of("a 3-gram of `ddtree:budget=8` is 5.8 % [−0.8, 1.0] over Qwen3-8B, 1,024 of 12.") == [
        "5.8",
        "-0.8",
        "1.0",
        "1,024",
        "12",
    ]
