"""The functions of ``import simlab``: each gives what its command prints, as values."""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from commands import output_of

import simlab
from simlab.sequence_replay import draft_source
from simlab.studies.inputs import progress
from simlab.studies.inputs.progress import step
from simlab.studies.result import StudyResult

TREES = ["chain", "ddtree:budget=4/8"]

Made = tuple[Callable[[], StudyResult], list[str]]

STUDIES: dict[str, Made] = {
    "replay": (lambda: simlab.replay(policies=TREES, limit=3), ["-p", TREES[0], "-p", TREES[1], "--limit", "3"]),
    "study curves": (lambda: simlab.curves(limit=2, budget=8), ["--limit", "2", "--budget", "8"]),
    "study scoring": (lambda: simlab.scoring(limit=2, nodes=16), ["--limit", "2", "--nodes", "16"]),
    "optimize": (lambda: simlab.optimize(policies=["ddtree:budget=4/8"]), ["-p", "ddtree:budget=4/8"]),
    "study reproduce": (lambda: simlab.reproduce("ddtreepp-rounds"), ["ddtreepp-rounds"]),
}
"""A call of each function without files, and the arguments of the command that asks for the same."""


QUICK = ("replay", "study curves", "study reproduce")
"""Of these the printed text is compared too; that of the others has tests of its own."""


def printed(*arguments: str) -> str:
    return output_of(*arguments)


def known(rows: list[dict[str, object]]) -> list[dict[str, object]]:
    """The rows without what is null; a key that only some rows have is null in the others' frame."""
    return [{key: value for key, value in row.items() if value is not None} for row in rows]


@pytest.mark.parametrize("name", STUDIES)
def test_a_function_gives_what_its_command_prints(name: str) -> None:
    make, arguments = STUDIES[name]
    result = make()
    if name in QUICK:
        assert result.text() == printed(*name.split(), *arguments).removesuffix("\n")
    value = json.loads(printed(*name.split(), *arguments, "--json"))
    assert json.loads(json.dumps(result.to_json())) == value
    rows = value[result.ROWS]
    assert set(result.frame.columns) == {key for row in rows for key in row}
    assert known(result.frame.to_dicts()) == known(rows)
    assert repr(result) == result.text()
    assert "<" in result._repr_html_()


def test_two_policies_of_a_table_are_compared(tmp_path: Path) -> None:
    """A table, its file and the trace itself give the same comparison."""
    out = tmp_path / "results.parquet"
    table = simlab.replay(policies=TREES, out=out)
    found = simlab.compare(table, ["ddtree:budget=8", "chain"])
    arguments = ["compare", str(out), "-p", "ddtree:budget=8", "-p", "chain", "--json"]
    value = json.loads(printed(*arguments))
    assert found.to_json()["verdicts"] == value["verdicts"]
    assert found.frame.to_dicts() == value["rows"]
    trace = simlab.compare(simlab.sample_trace(), ["ddtree:budget=8", "chain"])
    assert trace.to_json()["verdicts"] == value["verdicts"]
    assert "ddtree:budget=8 is " in found._repr_html_()
    assert found._repr_html_().count("<tr>") == 1 + len(value["rows"])


def test_a_report_is_a_page(tmp_path: Path) -> None:
    made = simlab.report(limit=2, texts=0, policies=["ddtree:budget=4"])
    size = made.write(tmp_path / "report.html")
    assert (tmp_path / "report.html").read_bytes() == made.html.encode()
    assert size == len(made.html.encode())
    assert made.verdict
    assert made._repr_html_().startswith("<iframe")


def test_an_export_is_a_text() -> None:
    made = simlab.export("vllm", "chain", limit=2)
    assert made.text == printed("export", "--format", "vllm", "-p", "chain", "--limit", "2")
    assert made.summary == "Settings of chain for vllm"


def test_a_trace_shows_itself() -> None:
    trace = simlab.sample_trace()
    assert repr(trace).startswith("Trace('")
    shown = trace._repr_html_()
    assert "<th>draft set dflash</th>" in shown
    assert "48 sequences of 41 prompts" in shown
    assert simlab.open_trace(trace.place).text_id == trace.text_id


def test_a_round_is_shown_with_the_path_of_the_target() -> None:
    view = simlab.show_round(sequence=0, number=1)
    one = view.round
    assert f"Accepted: {one.num_accepted} of 16 drafted tokens" in view.text()
    assert view.text().count("\n* ") == one.num_accepted + 1
    assert view.svg().startswith("<svg")
    assert view.svg() in view._repr_html_()
    assert one.tree._repr_html_().count("\n") == one.tree.num_nodes
    telling = simlab.show_round(policy="ddtree:budget=8")
    assert telling.round.num_accepted > 0
    with pytest.raises(simlab.SimlabError, match="names 2 policies"):
        simlab.show_round(policy="ddtree:budget=4/8")
    with pytest.raises(simlab.SimlabError, match="there is no text 99"):
        simlab.show_round(sequence=99)
    with pytest.raises(simlab.SimlabError, match="there is no round 999"):
        simlab.show_round(sequence=0, number=999)


def test_a_draft_shows_its_candidates() -> None:
    recorded = next(simlab.sample_trace().recorded("dflash"))
    draft = draft_source(simlab.Needs(), recorded)(0)
    assert draft._repr_html_().count("<th>depth") == 7


def test_policies_are_listed() -> None:
    policies = simlab.list_policies()
    assert policies.text() == printed("policies").removesuffix("\n")
    assert policies.frame["name"].to_list() == [one["name"] for one in policies.to_json()]


def test_every_public_name_is_there_and_documented() -> None:
    for name in simlab.__all__:
        assert getattr(simlab, name).__doc__, name
    assert set(simlab.__all__) <= set(dir(simlab))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = simlab.nothing


def test_importing_simlab_loads_nothing_heavy() -> None:
    code = "import sys, simlab; print(sorted({'numpy', 'numba', 'scipy', 'polars', 'torch'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# What a study says while it works: nothing if it is quick, a line if it takes long and nobody sees a bar


def test_a_quick_step_is_silent_away_from_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with step("report", "trees"):
        pass
    assert capsys.readouterr() == ("", "")


def test_a_long_step_is_announced_while_it_works(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "PATIENCE_S", 0.01)
    with step("report", "trees"):
        deadline, seen = time.monotonic() + 30, ""
        while not seen and time.monotonic() < deadline:
            seen = capsys.readouterr().err
            time.sleep(0.005)
    assert seen == "report: trees ...\n"
