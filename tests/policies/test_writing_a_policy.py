"""docs/how_to/write_a_policy.md: its blocks are the files it names, they run in order, and so do its commands."""

import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from places import DOCS

from simlab.cli.main import main
from simlab.policies.parsing.parse import parse_policies
from simlab.testing import check_policy

PAGE = DOCS / "how_to" / "write_a_policy.md"
FILES = ("mine", "composed", "rule", "order")


def blocks() -> list[tuple[str, str]]:
    """Language and text of every block, in order."""
    return re.findall(r"^```(\w+)\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def file_name(code: str) -> str | None:
    """The file that a block says it is."""
    found = re.match(r'"""(\w+\.py): ', code)
    return None if found is None else found[1]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of one's own that holds the files of the page."""
    for _, code in blocks():
        name = file_name(code)
        if name is not None:
            (tmp_path / name).write_text(code, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for name in FILES:
        sys.modules.pop(name, None)


def test_a_policy_is_under_thirty_lines() -> None:
    code = {file_name(code): code for _, code in blocks()}["mine.py"]
    lines = [line for line in code.splitlines() if line.strip()]
    assert len(lines) < 30
    assert f"in {len(lines)} lines of code" in PAGE.read_text(encoding="utf-8")


def test_every_block_runs(folder: Path) -> None:
    assert {path.stem for path in folder.glob("*.py")} == set(FILES)
    ran = 0
    for language, code in blocks():
        if language == "python":
            exec(compile(code, file_name(code) or "block", "exec"), {"__name__": "page"})
            ran += 1
    assert ran == 8


def test_every_command_runs(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    commands = [line for language, code in blocks() if language == "sh" for line in code.splitlines()]
    assert len(commands) == 4
    for command in commands:
        program, *arguments = shlex.split(command)
        assert program == "simlab"
        assert main(arguments) == 0, command
    out = capsys.readouterr().out
    assert "mine.py:SecondChoices:length=7" in out
    assert "the first 2 candidates at each depth" in out
    assert all(part in out for part in ("composed.py:Likely:", "threshold=0.05,"))  # a long label takes several lines
    assert (folder / "second_choices.jsonl").is_file()


@pytest.mark.parametrize(
    "typed", ["mine.py:SecondChoices", "composed.py:Likely", "rule.py:Shared", "order.py:ChainFirst"]
)
def test_each_keeps_the_contract_as_it_is_typed(folder: Path, typed: str) -> None:
    (policy,) = parse_policies([str(folder / typed)])
    check_policy(policy.policy, draws=20)


def test_the_slip_that_the_page_warns_of_is_caught(folder: Path) -> None:
    """Without the cut to two ranks the class reads what it does not declare."""
    path = folder / "slip.py"
    code = (folder / "mine.py").read_text(encoding="utf-8")
    path.write_text(code.replace("[0][:2].tolist()", "[0].tolist()"), encoding="utf-8")
    (policy,) = parse_policies([f"{path}:SecondChoices"])
    with pytest.raises(AssertionError, match="reads beyond the first 2 ranks"):
        check_policy(policy.policy)
