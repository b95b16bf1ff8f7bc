"""Text of others as it is shown: nothing steers a terminal, nothing hides, and what is harmless stays."""

import io
import sys
import tempfile
import unicodedata
from pathlib import Path

import polars as pl
import pytest
from commands import ran
from file_server import serving_files
from hypothesis import given
from hypothesis import strategies as st
from synthetic_traces import write_synthetic_trace

import simlab
from simlab.analysis.export.paper import PaperOptions, paper_tables
from simlab.analysis.export.tables import latex, markdown
from simlab.cli import main as main_module
from simlab.cli.main import main
from simlab.errors import USER_CODE
from simlab.traces.results.files import write_results
from simlab.untrusted import visible as visible_module
from simlab.untrusted.visible import VisibleOutput, visible, visible_html

SLY = "chain\x1b[2J\x1b]0;owned\x07\u202eevil\u200b\x9b31m\r\x08"
SHOWN = "chain[U+001B][2J[U+001B]]0;owned[U+0007][U+202E]evil[U+200B][U+009B]31m[U+000D][U+0008]"
KEPT = "\n\t\u200c\u200d"
"""Line feed and tab; joiners, which scripts and emoji need."""


@given(st.text())
def test_no_control_and_no_direction_is_left_and_all_else_is(text: str) -> None:
    found = visible(text)
    assert all(one in KEPT or unicodedata.category(one) not in ("Cc", "Zl", "Zp", "Cs") for one in found)
    assert all(
        unicodedata.bidirectional(one) not in ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")
        for one in found
    )
    plain = "".join(one for one in text if one.isalnum())
    assert visible(plain) == plain
    assert visible(found) == found


def test_what_is_sly_is_written_out() -> None:
    assert visible(SLY) == SHOWN
    assert visible("\ud800 a\nb\tc") == "[U+D800] a\nb\tc"
    assert visible_html(f"<b>{SLY}") == f"&lt;b&gt;{SHOWN}"
    stream = io.StringIO()
    assert VisibleOutput(stream).write(SLY) == len(SLY)
    assert stream.getvalue() == SHOWN


@pytest.fixture
def sly(tmp_path: Path) -> Path:
    """Results whose policy and data set steer terminals."""
    rows = simlab.replay(policies=["chain"], limit=3).rows
    path = tmp_path / "sly.parquet"
    write_results(path, rows.with_columns(policy=pl.col("policy") + SLY, dataset=pl.col("dataset") + SLY))
    return path


def test_commands_show_it_everywhere(sly: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = tmp_path / "report.html"
    commands = [
        ["inspect", str(sly)],
        ["inspect", str(sly), "--json"],
        ["compare", str(sly), "-p", f"chain{SLY}", "--against", f"autoregressive{SLY}"],
        ["compare", str(sly), "-p", SLY],
        ["export", "--format", "latex", "--results", str(sly)],
        ["export", "--format", "markdown", "--results", str(sly), "--columns", "dataset"],
        ["report", str(sly), "--out", str(report)],
        ["replay", "-p", SLY],
        ["replay", "--trace", f"{tmp_path}/{SLY}"],
    ]
    for command in commands:
        main(command)
        out, err = capsys.readouterr()
        for said in (out, err):
            assert visible(said) == said, command
        assert "[U+202E]" in out + err or "\\u202e" in out or command[0] == "report", command
    page = report.read_text(encoding="utf-8")
    assert SHOWN in page
    assert "\u202e" not in page
    assert "\x1b" not in page


def test_tables_of_papers_show_it(sly: Path) -> None:
    tables = paper_tables(
        simlab.replay(policies=["chain"], limit=2).rows.with_columns(policy=pl.lit(SLY)), PaperOptions()
    )
    for text in (latex(tables), markdown(tables)):
        assert visible(text) == text
        assert "U+202E" in text


def test_an_object_shows_itself_visibly(sly: Path) -> None:
    result = simlab.inspect(str(sly))
    assert "\x1b" in result.text()
    table = simlab.compare(sly, [f"chain{SLY}", f"autoregressive{SLY}"])
    assert "\x1b" not in repr(table)
    assert "\x1b" not in table._repr_html_()


def test_what_may_be_a_login_is_not_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(visible_module, "_secrets", {})
    monkeypatch.setenv("SIMLAB_CACHE", str(tmp_path / "cache"))
    write_synthetic_trace(tmp_path / "trace", num_sequences=3, length=20)
    page = tmp_path / "report.html"
    with serving_files(tmp_path) as served:
        place = f"{served.address}/trace?sig=a%2Fb|c&X-Amz-Signature=c0ffee"
        said = [
            ran(*typed)
            for typed in (
                ("replay", "--trace", place, "-p", "chain"),
                ("replay", f"--trace={place}", "-p", "chain", "--json"),
                ("inspect", place),
                ("inspect", place.replace("/trace", "/nothing")),
                ("report", "--trace", place, "-p", "chain", "--out", page),
            )
        ]
    assert [code for code, _, _ in said] == [0, 0, 0, 2, 0]
    assert all("/trace?..." in out for _, out, _ in (said[0], said[2]))
    assert "/nothing/manifest.json?... could not be read" in said[3][2]
    shown = [*(text for _, out, err in said for text in (out, err)), page.read_text()]
    assert not any(word in text for text in shown for word in ("c0ffee", "b%7Cc", "b|c"))


def test_a_password_is_in_no_sentence_and_in_no_report_of_a_bug(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(visible_module, "_secrets", {})
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    storage = "mysql://me:hunter2@db.example.org/trials"
    typed = ("optimize", "-p", "presto:ngram_weight=0.0~1.0", "--storage", storage, "--trials", "1")
    code, out, err = ran(*typed)
    assert (code, "hunter2" in out + err) == (2, False)
    assert "mysql://me:...@db.example.org/trials" in err

    def fails(_typed: list[str]) -> int:
        raise ZeroDivisionError(storage)

    # Where a policy file was run in this process, it may be the cause.
    for name in [module for module in sys.modules if module.startswith(USER_CODE)]:
        monkeypatch.delitem(sys.modules, name)

    monkeypatch.setattr(main_module, "_run_alone", fails)
    code, out, err = ran(*typed)
    assert (code, "hunter2" in out + err) == (70, False)
    (kept,) = tmp_path.glob("simlab-bug-*.txt")
    assert "hunter2" not in kept.read_text()
    assert "--storage mysql://me:...@db" in kept.read_text()
