"""The functions of ``import simlab``: what they give shows itself, and nothing is loaded before it is used."""

import re
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path

import pytest

import simlab
from simlab.sequence_replay import draft_source
from simlab.studies.inputs import progress
from simlab.studies.inputs.progress import step

TREES = ["chain", "ddtree:budget=4/8"]


def test_a_trace_shows_itself() -> None:
    trace = simlab.sample_trace()
    assert repr(trace).startswith("Trace('")
    shown = trace._repr_html_()
    assert "<th>draft set dflash</th>" in shown
    assert "48 sequences of 41 prompts" in shown
    assert simlab.open_trace(trace.location).text_id == trace.text_id


def test_a_round_is_shown_with_the_path_of_the_target() -> None:
    view = simlab.show_round(sequence=0, number=1)
    round_ = view.round
    assert f"Accepted: {round_.num_accepted} of 16 drafted tokens" in view.text()
    assert view.text().count("\n* ") == round_.num_accepted + 1
    assert view.svg().startswith("<svg")
    assert view.svg() in view._repr_html_()
    assert round_.tree._repr_html_().count("\n") == round_.tree.num_nodes
    telling = simlab.show_round(policy="ddtree:budget=8")
    assert telling.round.num_accepted > 0
    with pytest.raises(simlab.SimlabError, match="names 2 policies"):
        simlab.show_round(policy="ddtree:budget=4/8")
    with pytest.raises(simlab.SimlabError, match="there is no text 99"):
        simlab.show_round(sequence=99)
    with pytest.raises(simlab.SimlabError, match="there is no text '0'"):
        simlab.show_round(sequence="0")  # type: ignore[arg-type]
    with pytest.raises(simlab.SimlabError, match="there is no round 999"):
        simlab.show_round(sequence=0, number=999)


def test_a_draft_shows_its_candidates() -> None:
    recorded = next(simlab.sample_trace().recorded("dflash"))
    draft = draft_source(simlab.Needs(), recorded)(0)
    assert draft._repr_html_().count("<th>depth") == 7


def test_every_public_name_is_there_and_documented() -> None:
    for name in simlab.__all__:
        assert getattr(simlab, name).__doc__, name
    assert set(simlab.__all__) <= set(dir(simlab))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = simlab.nothing


def test_type_checkers_see_the_same_names() -> None:
    imports = re.findall(r"^    from (\S+) import (\w+) as (\w+)$", Path(simlab.__file__).read_text(), re.MULTILINE)
    assert [seen for _, seen, _ in imports] == [seen for _, _, seen in imports]
    assert sorted(seen for _, _, seen in imports) == sorted(simlab.__all__)
    for module, name, _ in imports:
        assert getattr(simlab, name) is getattr(import_module(module), name)


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
