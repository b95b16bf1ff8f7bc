"""What holds for every command: exit codes, one sentence, nothing heavy before it is needed."""

import gc
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from commands import output_of, ran, refusal_of
from places import REPOSITORY

from simlab.cli import completion, main
from simlab.errors import USER_CODE, needing_models
from simlab.ids import VERSION, versions_of
from simlab.untrusted.visible import visible


def test_the_garbage_collector_is_given_back_as_it_was(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before, frozen = gc.get_threshold(), gc.get_freeze_count()
    assert main.main(["version"]) == 0
    assert (gc.get_threshold(), gc.get_freeze_count()) == (before, frozen)
    monkeypatch.setattr(sys, "argv", ["simlab", "version"])
    try:
        assert main.main() == 0
        assert gc.get_threshold() == before
        assert gc.get_freeze_count() > frozen
    finally:
        gc.unfreeze()
    assert capsys.readouterr().out == f"{VERSION}\n" * 2


EVERY = [
    *([name] for name in main.COMMANDS),
    *([name, kind] for name, (_, kinds) in main.KINDS.items() for kind in kinds),
]


@pytest.mark.parametrize("words", EVERY, ids=" ".join)
def test_help_is_one_screen_and_the_whole_help_has_every_option(words: list[str]) -> None:
    parser = main.parser_for(*words)._parser_of(words)[0]
    short, whole = parser.format_help(), parser.whole_help()
    assert short.count("\n") <= 50
    for action in parser._actions:
        for name in action.option_strings[:1]:
            assert name in short
            assert name in whole
    assert max(map(len, short.splitlines())) <= 120


def test_who_types_nothing_is_told_what_there_is() -> None:
    assert "COMMAND" in refusal_of()


def test_an_address_is_read_as_it_is_typed() -> None:
    """A path has no two slashes behind each other."""
    read = main.parser_for("replay").read(["replay", "--trace", "hf://datasets/org/name"])
    assert read.trace == "hf://datasets/org/name"


@pytest.mark.parametrize("words", [[], ["replay"], ["train"], ["train", "dflash"]], ids=" ".join)
def test_help_is_an_option_and_a_command(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    shown = output_of("help", *words)
    assert shown.startswith("usage: simlab")
    commands = ("demo", "record", "replay", "train", "policies", "inspect", "export", "version")
    assert words or all(f"\n    {command} " in shown for command in commands)
    for asked, printed in (("--help", shown), ("--version", f"{VERSION}\n")):
        with pytest.raises(SystemExit) as left:
            main.main([asked] if asked == "--version" else [*words, asked])
        assert left.value.code == 0
        assert capsys.readouterr().out == printed


def raising(error: BaseException) -> Callable[[object], int]:
    """A command that fails so."""

    def run(_options: object) -> int:
        raise error

    return run


def test_what_is_no_bug_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(completion, "run", raising(KeyboardInterrupt()))
    assert ran("completion", "bash") == (130, "", "\nsimlab: interrupted\n")
    monkeypatch.setattr(completion, "run", raising(OSError(28, "No space left on device", "results.parquet")))
    assert refusal_of("completion", "bash") == "simlab: results.parquet: No space left on device\n"
    monkeypatch.setattr(completion, "run", raising(MemoryError()))
    assert "memory of this machine is not enough" in refusal_of("completion", "bash")


@pytest.mark.parametrize("error", [ValueError("a bug\x1b[2J"), pl.exceptions.PanicException("a panic")])
@pytest.mark.parametrize("can_write", [True, False])
def test_a_programming_error_keeps_its_traceback(
    error: BaseException, can_write: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """In a file, or else on the terminal."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / ("" if can_write else "missing")))
    for name in [module for module in sys.modules if module.startswith(USER_CODE)]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(completion, "run", raising(error))
    code, out, said = ran("completion", "bash")
    assert (code, out) == (main.BUG, "")
    last = said.splitlines()[-1]
    assert last.startswith(f"simlab: this is a bug in simlab, not a mistake of yours: {type(error).__name__}: a ")
    assert "\x1b" not in said
    if can_write:
        (kept,) = tmp_path.glob("simlab-bug-*.txt")
        assert str(kept) in last
        assert said.count("\n") == 1
        assert visible(str(error)) in kept.read_text(encoding="utf-8")
        said = kept.read_text(encoding="utf-8")
    assert "completion bash" in said
    assert "Traceback (most recent call last)" in said


def test_a_package_on_the_path_that_is_not_installed_has_its_version(tmp_path: Path) -> None:
    """A copy, in a process in which no metadata of simlab is found."""
    (tmp_path / "simlab").symlink_to(REPOSITORY / "simlab")
    (tmp_path / "sitecustomize.py").write_text(
        "from importlib import metadata\n"
        "found = metadata.distribution\n"
        "def distribution(name):\n"
        "    if name == 'simlab':\n"
        "        raise metadata.PackageNotFoundError(name)\n"
        "    return found(name)\n"
        "metadata.distribution = distribution\n",
        encoding="utf-8",
    )
    asked = "from simlab.ids import *; print(versions_of(['simlab', 'numpy'])); metadata.version('simlab')"
    done = [
        subprocess.run(
            [sys.executable, *words],
            env=os.environ | {"PYTHONPATH": str(tmp_path)},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        for words in (["-m", "simlab", "version"], ["-c", asked])
    ]
    assert [one.stdout for one in done] == [f"{VERSION}\n", f"{versions_of(['simlab', 'numpy'])}\n"]
    assert done[1].stderr.endswith("PackageNotFoundError: No package metadata was found for simlab\n")


def test_a_missing_package_is_named() -> None:
    with pytest.raises(Exception, match=r"needs the package torch.*simlab\[models\]"), needing_models("record"):
        raise ModuleNotFoundError("No module named 'torch'", name="torch")
    with pytest.raises(ModuleNotFoundError), needing_models("record"):
        raise ModuleNotFoundError("No module named 'simlab.gone'", name="simlab.gone")


def test_a_reader_that_leaves_is_no_error() -> None:
    command = [sys.executable, "-m", "simlab", "policies"]
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
    finally:
        os.close(writing)
    assert done.stderr == ""
    assert done.returncode == 141


LIGHT = "numpy numba scipy polars torch"
"""What is typed most, and completed at every key, must be there at once."""

NOT_NEEDED = (
    *((one, LIGHT) for one in ("--help", "help", "version", "--version", "completion bash")),
    ("policies", "polars torch transformers tqdm"),
    ("replay --limit 1", "scipy.stats scipy.optimize plotly networkx torch"),
    ("inspect smollm2-135m-h200-eager", "torch transformers"),
    ("replay --limit 1 --cost smollm2-135m-h200-cuda_graphs", "torch transformers"),
    ("report --limit 1 -p chain --cost smollm2-135m-h200-eager --out OUT", "torch transformers"),
    ("demo --help", "torch transformers"),
)
"""Commands, each of which may load what those before it may, and more."""


def test_no_more_is_loaded_than_is_needed(tmp_path: Path) -> None:
    """One command after the other, in one process."""
    asked = [(typed.replace("OUT", str(tmp_path / "report.html")).split(), heavy) for typed, heavy in NOT_NEEDED]
    code = f"""
import sys, simlab.cli.main as m
for words, heavy in {asked!r}:
    try: m.main(words)
    except SystemExit: pass
    if set(heavy.split()) & set(sys.modules): sys.exit(f"{{words}} loads {{set(heavy.split()) & set(sys.modules)}}")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
