"""Options of every command, held alike: numbers and files are refused at the door, and what is typed arrives."""

import argparse
import dataclasses
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from commands import ran, refusal_of

from simlab.cli import main
from simlab.cli.parser import Parser
from simlab.errors import SimlabError, UsageError
from simlab.options import Option, declared, flags
from simlab.real_runner.profile.options import ProfileOptions
from simlab.real_runner.record.options import RecordOptions
from simlab.studies.profile.profile import reading_text
from simlab.traces.reader import open_trace, packaged_trace

KINDS = {f"{name} {kind}": one for name, (_, kinds) in main.KINDS.items() for kind, one in kinds.items()}
COMMANDS = {**main.COMMANDS, **KINDS}


def parser_of(command: str) -> Parser:
    parser = main.parser_for(*command.split())
    for word in command.split():
        assert parser.commands is not None
        parser = parser.commands.choices[word]
    return parser


def read(action: argparse.Action, text: str) -> object:
    """A value as an option reads it."""
    assert callable(action.type)
    return action.type(text)


def is_number(action: argparse.Action) -> bool:
    """Whether an option is read as a number, or as a list of whole numbers."""
    for text in ("7", "0.5"):
        try:
            value = read(action, text)
        except (argparse.ArgumentTypeError, SimlabError):
            continue
        return isinstance(value, int | float) or (isinstance(value, tuple) and isinstance(value[0], int))
    return False


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_options_and_something_to_run(command: str) -> None:
    kind = main.named(COMMANDS[command].options)
    assert kind.DETAILS.strip()
    assert dataclasses.is_dataclass(kind)
    assert callable(main.named(COMMANDS[command].run))


@pytest.mark.parametrize("command", COMMANDS)
def test_a_number_is_one_in_plain_digits_that_a_machine_can_hold(command: str) -> None:
    whole, parser = main.parser_for(*command.split()), parser_of(command)

    def refused(typed: str) -> str:
        with pytest.raises(UsageError) as error:
            whole.read([*command.split(), typed])
        return str(error.value)

    for action in (one for one in parser._actions if one.option_strings and one.type and is_number(one)):
        option = action.option_strings[-1]
        assert refusal_of(*command.split(), f"{option}=x") == f"simlab: {refused(f'{option}=x')}\n"
        for value in ("", "x", "1_0", "٣", "３", "nan", "1e999", "9" * 400, "9" * 5000):
            said = refused(f"{option}={value}")
            assert f"argument {'/'.join(action.option_strings)}: expected" in said, (option, value[:9])
            assert len(said) < 500
        if isinstance(read(action, "7"), int):
            for value in ("-1", "+5", "1e3", "0.5", str(2**63)):
                assert f"{option}: expected a whole number" in refused(f"{option}={value}"), (option, value)


def needed(parser: Parser, but: str) -> list[str]:
    """Words for all that must be typed, but for one option."""
    groups = [group._group_actions for group in parser._mutually_exclusive_groups if group.required]
    groups += [[action] for action in parser._actions if action.required]
    others = [group[0] for group in groups if not any(but in action.option_strings for action in group)]
    return [word for one in others for word in (*one.option_strings[-1:], next(iter(one.choices or "x")))]


def accepted(action: argparse.Action) -> str:
    """A word that an option takes."""
    for text in (*map(str, action.choices or ()), "7", "0.5", "7%", "sample", "{}", "0/2", "chain=x", "random,below=8"):
        with suppress(argparse.ArgumentTypeError, SimlabError):
            read(action, text)
            return text
    raise AssertionError(f"none of these words is one of {action.option_strings}")


@pytest.mark.parametrize("command", COMMANDS)
def test_a_list_is_typed_once(command: str) -> None:
    """Of another option that is typed again the last value counts, as everywhere."""
    whole, parser = main.parser_for(*command.split()), parser_of(command)
    for action in (one for one in parser._actions if one.option_strings and one.type):
        option, value = action.option_strings[-1], accepted(action)
        words = [*command.split(), *needed(parser, option), option, value, option, value]
        is_list = isinstance(read(action, value), tuple) or "," in str(action.metavar)
        if isinstance(action, argparse._AppendAction):
            assert len(vars(whole.read(words))[action.dest]) == 2
        elif is_list:
            with pytest.raises(UsageError, match=f"{option} was given twice; give it once: {option} "):
                whole.read(words)
        else:
            assert vars(whole.read(words))[action.dest] == read(action, value)


@pytest.mark.parametrize("command", COMMANDS)
def test_what_cannot_be_written_is_refused_before_the_work(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    for field, typed in declared(main.named(COMMANDS[command].options)):
        if isinstance(typed, Option) and typed.example:
            option = flags(field, typed)[-1]
            words = (*command.split(), *needed(parser_of(command), option), option)
            said = refusal_of(*words, tmp_path)
            assert f"{option} names the folder {tmp_path}; expected a file, such as {tmp_path / typed.example}" in said
            assert f"{option} names /dev/null, which is a device or a pipe" in refusal_of(*words, "/dev/null")
            said = refusal_of(*words, tmp_path / "file" / "below")
            assert f"{option} names a file below {tmp_path / 'file'}, which is a file" in said
            with monkeypatch.context() as patched:  # root may write everywhere
                patched.setattr(os, "access", lambda *_: False)
                assert f"the folder {tmp_path} cannot be written" in refusal_of(*words, tmp_path / "new" / "below")


# --- the commands that run models: what reaches them

RECORD = ("record", "--target", "t", "--draft", "d", "--prompts", "p.jsonl", "--out", "runs/x")
RECORDS, PROFILES = "simlab.studies.record.write_recording", "simlab.studies.profile.profile.run_profile"


@pytest.fixture
def stopped(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[object]:
    """The options that reach a recorder or a profile that does nothing."""
    reached: list[object] = []

    def stop(options: object) -> None:
        reached.append(options)
        raise SimlabError("the drafter does not fit the target")

    monkeypatch.chdir(tmp_path)
    for name in (RECORDS, PROFILES):
        monkeypatch.setattr(name, stop)
    return reached


def test_what_is_typed_arrives(stopped: list[object]) -> None:
    """And what the runner refuses is said."""
    grid = "--node-counts 9,2..4,2 --contexts 64,16 --repeats 3 --threads 5 --temperature 0.7 --top-p 0.9 --top-k 40"
    models = "--target t --draft d --out x.json --dtype bfloat16 --device cuda:1"
    kwargs = ("--temperature", "0.7", "--chat-template-kwargs", '{"enable_thinking": false}')
    for typed in (("profile", *models.split(), *grid.split()), (*RECORD, *kwargs), (*RECORD[:1], *RECORD[5:])):
        assert refusal_of(*typed) == "simlab: the drafter does not fit the target\n"
    profiled, recorded, packaged = stopped
    assert profiled == ProfileOptions(
        target="t",
        draft="d",
        out=Path("x.json"),
        text=reading_text(),
        node_counts=(0, 2, 3, 4, 9),
        contexts=(16, 64),
        repeats=3,
        temperature=0.7,
        top_p=0.9,
        top_k=40,
        dtype="bfloat16",
        device="cuda:1",
        threads=5,
    )
    assert isinstance(recorded, RecordOptions)
    assert (recorded.target, recorded.draft) == ("t", "d")
    assert (recorded.prompts, recorded.out) == (Path("p.jsonl"), Path("runs/x"))
    assert (recorded.completions, recorded.text_from, recorded.limit, recorded.resume) == (None, None, None, False)
    assert (recorded.temperature, recorded.chat_template_kwargs) == (0.7, {"enable_thinking": False})
    assert (recorded.min_width, recorded.exact_budget) == (64, 512)
    assert (recorded.model_dtype, recorded.devices) == ("float32", ("cpu",))
    assert isinstance(packaged, RecordOptions)
    assert (packaged.target_name, packaged.draft_name) == ("smollm2-135m", "dflash-smollm2-135m")


@pytest.mark.parametrize(
    ("typed", "works", "said"),
    [
        (RECORD, RECORDS, "finished batches are in runs/x: add --resume to go on"),
        (("profile", "--out", "x.json"), PROFILES, "what was measured is in x.json: add --resume to go on"),
        (
            ("confirm", "--out", "x"),
            "simlab.studies.confirm.confirm.run_confirmation",
            "finished parts are in x: add --resume to go on",
        ),
        (
            ("replay", "--out", "x.parquet"),
            "simlab.studies.replay.replay.replay_trace",
            "finished rows are kept: add --resume to continue x.parquet",
        ),
        (
            ("optimize", "--storage", "sqlite:///x.db", "-p", "ddtree:budget=1~2"),
            "simlab.studies.optimize.optimize.run_trials",
            "the trials are in sqlite:///x.db: the same command goes on",
        ),
    ],
)
def test_who_interrupts_reads_how_to_go_on(
    typed: tuple[str, ...], works: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_arguments: object, **_named: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(works, stop)
    code, out, err = ran(*typed)
    assert (code, out, err.splitlines()[-1]) == (130, "", f"simlab: interrupted; {said}")


def test_a_recording_says_what_it_would_be_and_how_it_is_replayed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[Path] = []

    def record(options: RecordOptions) -> Path:
        done.append(options.folder)
        return options.folder

    dry: Callable[[object], str] = lambda _options: "the first prompt"  # noqa: E731
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(RECORDS, record)
    monkeypatch.setattr("simlab.studies.record.open_trace", lambda _folder: open_trace(packaged_trace()))
    monkeypatch.setattr("simlab.cli.record.dry_run", dry)
    assert ran(*RECORD, "--dry-run", "sample")[:2] == (0, "the first prompt\n")
    assert done == []
    code, out, _ = ran(*RECORD[:-1], "runs/my trace")
    assert (code, done) == (0, [Path("runs/my trace")])
    assert "`simlab replay --trace 'runs/my trace' " in out.splitlines()[-1]
