"""The completion scripts: they are those of the parser, and the shells take them."""

import importlib.util
import shutil
import subprocess

import pytest
from places import DOCS

from simlab.cli.completion import SHELLS
from simlab.cli.main import main

SPEC = importlib.util.spec_from_file_location("make_completion", DOCS / "make_completion.py")
assert SPEC is not None
assert SPEC.loader is not None
MAKER = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(MAKER)


@pytest.mark.parametrize("shell", SHELLS)
def test_the_script_is_that_of_the_parser(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    if capsys.readouterr().out != MAKER.completion_script(shell):
        pytest.fail(f"simlab/data/completion/simlab.{shell} is not what the parser says; run `make reference`")


@pytest.mark.parametrize(
    ("words", "completed"),
    [(["simlab", "rep"], {"replay", "report"}), (["simlab", "replay", "--ro"], {"--rounds"})],
)
def test_bash_completes(words: list[str], completed: set[str], capsys: pytest.CaptureFixture[str]) -> None:
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("there is no bash")
    assert main(["completion", "bash"]) == 0
    typed = " ".join(words)
    code = f"COMP_WORDS=({typed}); COMP_CWORD={len(words) - 1}; _shtab_simlab; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    script = f"{capsys.readouterr().out}\n{code}"
    done = subprocess.run([bash], input=script, capture_output=True, text=True, check=True)
    assert completed <= {line.strip() for line in done.stdout.splitlines()}
