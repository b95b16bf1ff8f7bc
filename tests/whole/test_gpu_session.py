"""The script for a machine with a GPU: every command that it types is one that simlab takes, in the right order."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from places import REPOSITORY
from tiny_models import make_pair

from simlab.cli.main import parser_for

SCRIPT = REPOSITORY / "real_runner" / "gpu_session.sh"

FAKE = """#!{python} -SE
import json, sys
from pathlib import Path
with open({log!r}, "a") as file:
    file.write(json.dumps(sys.argv[1:]) + "\\n")
if "--out" in sys.argv and "--dry-run" not in sys.argv:
    out = Path(sys.argv[sys.argv.index("--out") + 1])
    if sys.argv[1] in ("record", "confirm"):
        out.mkdir(exist_ok=True)
        (out / "manifest.json").write_text("")
    else:
        out.write_text("{{}}\\n" if sys.argv[1] == "prompts" else "")
"""
"""Writes down what was typed, and makes the files that the next steps ask for."""

pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="the script needs bash")


def typed(tmp_path: Path, *arguments: str, **settings: str) -> list[list[str]]:
    """The commands that the script runs."""
    log, folder = tmp_path / "log", tmp_path / "bin"
    folder.mkdir(exist_ok=True)
    (folder / "simlab").write_text(FAKE.format(python=sys.executable, log=str(log)))
    (folder / "simlab").chmod(0o755)
    log.write_text("")
    kept: Mapping[str, str] = {"PATH": f"{folder}:{Path(sys.executable).parent}:{os.environ['PATH']}"}
    environment = os.environ | kept | {"DEVICE": "cpu", "STEPS_LEFT_OUT": "bench"} | settings
    done = subprocess.run(
        ["bash", str(SCRIPT), str(tmp_path / "out"), *arguments],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    commands: list[list[str]] = [json.loads(line) for line in log.read_text().splitlines()]
    for words in commands:
        parser_for(*words[:2]).parse_args(words)
    return commands


def of(commands: list[list[str]], name: str) -> list[list[str]]:
    return [command for command in commands if command[0] == name]


@pytest.mark.thorough
def test_it_goes_from_prompts_to_a_report(tmp_path: Path) -> None:
    commands = typed(tmp_path)
    names = list(dict.fromkeys(command[0] for command in commands if command[0] != "version"))
    assert names == ["prompts", "record", "profile", "replay", "optimize", "confirm", "report"]
    assert [(command[1], command[3]) for command in of(commands, "prompts")] == [
        (dataset, split) for split in ("dev", "test") for dataset in ("gsm8k", "mbpp", "humaneval", "mt-bench")
    ]
    dry, dev, trace = of(commands, "record")
    assert dry[-1] == "--dry-run"
    for command in (dry, dev, trace):
        assert command[command.index("--target") + 1] == "Qwen/Qwen3-8B"
        assert command[command.index("--draft") + 1] == "z-lab/Qwen3-8B-DFlash-b16"
        assert command[command.index("--dtype") + 1] == "bfloat16"
        assert json.loads(command[command.index("--chat-template-kwargs") + 1]) == {"enable_thinking": False}
    assert (dev[dev.index("--prompts") + 1], trace[trace.index("--prompts") + 1]) == (
        str(tmp_path / "out" / "dev_prompts.jsonl"),
        str(tmp_path / "out" / "prompts.jsonl"),
    )
    again = typed(tmp_path)
    assert not of(again, "prompts") + of(again, "record")
    assert "--resume" in of(again, "confirm")[0]


@pytest.mark.thorough
def test_options_are_handed_on(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_text("{}\n" * 3)
    commands = typed(
        tmp_path,
        str(tmp_path / "a"),
        str(tmp_path / "b"),
        EXECUTIONS="eager compiled",
        LIMIT="2",
        TEMPERATURES="0.5 1",
        RECORD_OPTIONS="--device-map auto --batch-size 8",
        PROFILE_OPTIONS="--repeats 3",
        OPTIMIZE_OPTIONS="--threads 2",
        CONFIRM_OPTIONS="--audit-device cpu",
        REPORT_OPTIONS="--title Two",
    )
    assert not of(commands, "prompts")
    assert len((tmp_path / "out" / "prompts.jsonl").read_text().splitlines()) == 2
    records = of(commands, "record")
    assert len(records) == 5
    assert all("--device-map" in command and "--chat-template-kwargs" not in command for command in records)
    assert [command[-1] for command in records[3:]] == ["0.5", "1"]
    handed = {"profile": "--repeats", "optimize": "--threads", "confirm": "--audit-device", "report": "--title"}
    for name, option in handed.items():
        assert len(of(commands, name)) == 2
        assert all(option in command for command in of(commands, name))


def test_what_does_not_fit_into_the_minutes_is_left_out(tmp_path: Path) -> None:
    """The prompts are packaged ones, no step that takes time begins, and each says why."""
    commands = typed(tmp_path, IN_MINUTES="0")
    assert [command[:2] for command in commands if command[0] != "version"] == [
        ["prompts", "field-dev"],
        ["prompts", "sample"],
    ]
    said = (tmp_path / "out" / "steps.txt").read_text().splitlines()
    assert [line.partition(":")[0] for line in said] == ["profile_eager", "record_dev", "record_trace"]
    assert all(re.search(r": left out, it takes about \d+ s and -?\d+ s are left$", line) for line in said)


@pytest.mark.thorough
@pytest.mark.timeout(1800)
def test_a_rehearsal_within_minutes_ends_with_a_report(tmp_path: Path) -> None:
    """Nothing is a stand-in but the models, which are tiny."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "simlab").write_text(f'#!/bin/sh\nexec {sys.executable} -m simlab "$@"\n')
    (tmp_path / "bin" / "simlab").chmod(0o755)
    target, drafter = map(str, make_pair(tmp_path))
    places = (str(tmp_path / "bin"), str(Path(sys.executable).parent), os.environ["PATH"])
    kept = {"PATH": ":".join(places), "PYTHONPATH": str(REPOSITORY), "DEVICE": "cpu", "DTYPE": "float32"}
    sizes = {"IN_MINUTES": "30", "LIMIT": "2", "TOKENS": "8", "MOST": "64", "MINUTES": "10"}
    options = {"PROFILE_OPTIONS": "--contexts 64,640 --node-counts 0,7,16,64 --repeats 3"}
    done = subprocess.run(
        ["bash", str(SCRIPT), str(tmp_path / "out")],
        env=os.environ | kept | sizes | options | {"TARGET": target, "DRAFT": drafter},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    said = re.findall(r"^(\w+): about (\d+) s, at most (\d+) s; (\d+) s are left$", done.stdout, re.MULTILINE)
    names = ["profile_eager", "record_dev", "record_trace", "replay", "optimize_eager", "confirm_eager", "report_eager"]
    assert [name for name, *_ in said] == names
    assert all(int(seen) <= int(most) <= int(left) for _, seen, most, left in said)
    steps = (tmp_path / "out" / "steps.txt").read_text().splitlines()
    assert [line.endswith("exit code 0") for line in steps] == [True] * len(names), steps
    assert (tmp_path / "out" / "report_eager.html").is_file()


def test_the_field_runs_where_it_is_asked_for(tmp_path: Path) -> None:
    files = [str(tmp_path / name) for name in ("prompts.jsonl", "dev.jsonl")]
    for file in files:
        Path(file).write_text("{}\n")
    (own,) = of(typed(tmp_path, *files, FIELD_MODELS="mine.json", FIELD_OPTIONS="--quick"), "study")
    assert own[own.index("--models") + 1] == "mine.json"
    assert own[-1] == "--quick"
