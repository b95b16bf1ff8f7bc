"""Policy files that fail, end the program or return nonsense: one sentence, exit code 2, and nothing half written."""

import sys
from pathlib import Path

import pytest
from commands import output_of, refusal_of

from simlab.cli.main import main

HEAD = """
import sys
from dataclasses import dataclass
from simlab import DraftTree, Needs, Stateless


class Leaves(SystemExit):
    pass


class Unsaid(ValueError):
    def __str__(self):
        raise ValueError


@dataclass(frozen=True, slots=True)
class Mine(Stateless):
    budget: int = 4

    @property
    def needs(self) -> Needs:
        return Needs()

    def select(self, draft, state=None):
        {body}
"""


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("sys.exit(3)", "line 25, ended the program (SystemExit: 3)"),
        ("sys.exit()", "line 25, ended the program (SystemExit)"),
        ("raise Leaves('\\x1b[2J')", "ended the program (Leaves: [U+001B][2J)"),
        ("raise KeyboardInterrupt", "line 25, ended the program (KeyboardInterrupt)"),
        ("return 1 / 0", "line 25, failed: ZeroDivisionError: division by zero"),
        ("raise OSError('no disk')", "line 25, failed: OSError: no disk"),
        ("raise MemoryError", "line 25, failed: MemoryError"),
        ("return self.select(draft)", "failed: RecursionError: maximum recursion depth exceeded"),
        ("raise StopIteration", "line 25, failed: RuntimeError: generator raised StopIteration"),
        ("raise Unsaid", "line 25, failed: Unsaid: what it says cannot be shown"),
        ("sys.stdout = None; return DraftTree.chain(draft.root_token, [])", "in place of the standard output"),
        ("return object.__new__(DraftTree)", "`select` returns a DraftTree"),
        ("sys.setrecursionlimit(60); return self.select(draft)", "failed: RecursionError"),
        ("return None", "chose NoneType; `select` returns a DraftTree"),
        ("return DraftTree.chain(draft.root_token, range(9))", "drafted 9 tokens; its budget is 4"),
        ("return DraftTree.chain(draft.root_token + 1, [])", "the root is"),
        ("print('\\x1b]0;owned\\x07'); raise ValueError('\\u202e')", "failed: ValueError: [U+202E]"),
    ],
)
def test_a_policy_that_goes_wrong(body: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, out = tmp_path / "mine.py", tmp_path / "results.parquet"
    file.write_text(HEAD.replace("{body}", body), encoding="utf-8")
    limit = sys.getrecursionlimit()
    try:
        assert main(["replay", "--limit", "1", "-p", f"{file}:Mine", "--out", str(out), "--no-progress"]) == 2
    finally:
        sys.setrecursionlimit(limit)
    shown = capsys.readouterr()
    assert said in shown.err
    assert shown.err.count("\n") == 1
    assert "\x1b" not in shown.out
    assert "Traceback" not in shown.err
    assert "stdout" in body or not out.exists()


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("budget: int = 4", "width: int = 4", "`budget`, the most tokens that it drafts in a round, should be"),
        ("budget: int = 4", "budget: int = -1", "at least 0; got -1"),
        ("budget: int = 4", "budget: int = True", "at least 0; got True"),
        ("return Needs()", "return 3", "`needs` should be a simlab.Needs, which says what it reads; got 3"),
        ("Mine(Stateless)", "Mine", "has no method start; mix in simlab.Stateless"),
        ("import sys", "import sys; sys.exit(1)", "does not run: SystemExit: 1"),
        ("import sys", "import sys; 1 / 0", "does not run: ZeroDivisionError"),
        ("import sys", "import (", "does not run: SyntaxError"),
    ],
)
def test_a_policy_that_is_none(old: str, new: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(HEAD.replace(old, new).replace("{body}", "return None"), encoding="utf-8")
    assert said in refusal_of("replay", "--limit", "1", "-p", f"{file}:Mine")


def test_a_policy_that_goes_right(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    body = "return DraftTree.chain(draft.root_token, draft.marginals.top_tokens(4))"
    file.write_text(HEAD.replace("{body}", body), encoding="utf-8")
    assert "mine.py:Mine" in output_of("replay", "--limit", "1", "-p", f"{file}:Mine")
