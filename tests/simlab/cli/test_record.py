"""``simlab record``: what is typed arrives at the recorder, and mistakes are met at the door."""

import shlex
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from commands import output_of, refusal_of

from simlab.cli.main import main
from simlab.errors import ModelError
from simlab.real_runner.record.options import RecordOptions
from simlab.traces.reader import open_trace, packaged_trace

NEEDED = ("record", "--target", "t", "--draft", "d", "--prompts", "p.jsonl", "--out", "runs/x")


@dataclass
class Calls:
    """What reached the recorder."""

    recorded: list[RecordOptions] = field(default_factory=list)
    tried: list[RecordOptions] = field(default_factory=list)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    """A recorder that only remembers."""
    found = Calls()

    def dry_run(options: RecordOptions) -> str:
        found.tried.append(options)
        return "the first prompt"

    def record(options: RecordOptions) -> Path:
        found.recorded.append(options)
        return options.folder

    monkeypatch.setattr("simlab.studies.record.write_recording", record)
    monkeypatch.setattr("simlab.studies.record.open_trace", lambda folder: open_trace(packaged_trace()))
    monkeypatch.setattr("simlab.cli.record.dry_run", dry_run)
    return found


def test_what_is_typed_arrives(calls: Calls) -> None:
    assert main([*NEEDED, "--temperature", "0.7", "--chat-template-kwargs", '{"enable_thinking": false}']) == 0
    (options,) = calls.recorded
    assert (options.target, options.draft, options.prompts, options.out) == ("t", "d", Path("p.jsonl"), Path("runs/x"))
    assert (options.completions, options.text_from, options.limit, options.resume) == (None, None, None, False)
    assert (options.temperature, options.chat_template_kwargs) == (0.7, {"enable_thinking": False})
    assert (options.min_width, options.exact_budget, options.model_dtype, options.devices) == (
        64,
        512,
        "float32",
        ("cpu",),
    )


def test_the_models_that_come_with_simlab_are_the_default(calls: Calls) -> None:
    assert main(["record", "--prompts", "p.jsonl", "--out", "runs/x"]) == 0
    (options,) = calls.recorded
    assert (options.target_name, options.draft_name) == ("smollm2-135m", "dflash-smollm2-135m")


def test_a_dry_run_records_nothing(calls: Calls) -> None:
    assert output_of(*NEEDED, "--dry-run", "sample") == "the first prompt\n"
    assert (len(calls.tried), calls.recorded) == (1, [])


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--temperature", "-1"), "temperature must be 0 or"),
        (("--temperature", "nan"), "expected a number; got 'nan'"),
        (("--top-p", "0"), "top_p must be above 0"),
        (("--top-k", "-1"), "at least 0"),
        (("--max-new-tokens", "0"), "at least 1"),
        (("--chat-template-kwargs", "[1]"), "must be a JSON object"),
        (("--chat-template-kwargs", '{"x": NaN}'), "must be a JSON object"),
        (("--chat-template-kwargs", '{"tokenize": false}'), "may not set tokenize"),
        (("--min-width", "65536"), "min_width must be from 1 to 65,535; got 65,536"),
        (("--exact-budget", "70000"), "exact_budget must be from 1 to 65,535; got 70,000"),
        (("--completions", "c.jsonl"), "not allowed with"),
        (("--dtype", "int8"), "int8"),
    ],
)
def test_a_mistake_is_one_sentence(calls: Calls, more: tuple[str, ...], said: str) -> None:
    assert said in refusal_of(*NEEDED, *more)
    assert calls.recorded == []


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--temperature", "0"), "where --temperature can change nothing"),
        (("--seed", "0", "--max-new-tokens", "8"), "where --seed, --max-new-tokens can change nothing"),
        (("--chat-template-kwargs", "{}"), "where --chat-template-kwargs can change nothing"),
    ],
)
def test_a_text_told_again_takes_no_sampling(calls: Calls, more: tuple[str, ...], said: str) -> None:
    arguments = ("record", "--text-from", "runs/old", "--out", "runs/x")
    assert said in refusal_of(*arguments, *more)
    assert calls.recorded == []
    assert main(arguments) == 0
    assert calls.recorded[0].text_from == "runs/old"


def test_the_command_that_is_suggested_can_be_pasted(calls: Calls) -> None:
    typed = [*NEEDED]
    typed[typed.index("--out") + 1] = "runs/my trace"
    command = output_of(*typed).splitlines()[-1].split("`")[1]
    assert shlex.split(command)[:4] == ["simlab", "replay", "--trace", "runs/my trace"]
    assert len(calls.recorded) == 1


def test_an_interrupted_recording_says_how_to_go_on(
    calls: Calls, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stop(_options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("simlab.studies.record.write_recording", stop)
    assert main(list(NEEDED)) == 130
    assert "interrupted; finished batches are in runs/x: add --resume to go on" in capsys.readouterr().err


def test_a_refusal_of_the_recorder_is_passed_on(calls: Calls, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_options: object) -> None:
        raise ModelError("the drafter does not fit the target")

    monkeypatch.setattr("simlab.studies.record.write_recording", refuse)
    assert refusal_of(*NEEDED) == "simlab: the drafter does not fit the target\n"
