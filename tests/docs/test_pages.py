"""The pages of docs/: links and anchors, blocks that Markdown understands, the map, the tutorial's commands."""

import re
import shlex
from pathlib import Path

import pytest
from places import DOCS, REPOSITORY

from simlab.cli.main import main

PAGES = sorted([*DOCS.rglob("*.md"), REPOSITORY / "README.md", REPOSITORY / "CHANGELOG.md"])
TUTORIAL = DOCS / "tutorial" / "index.md"
SLOW = ("simlab report",)
"""Commands of the tutorial that have tests of their own and take long."""


def without_code(text: str) -> str:
    """A page with its blocks of code and pieces of inline code left out; lines stay where they are."""
    text = re.sub(r"^```.*?^```[ ]*$", lambda block: "\n" * block[0].count("\n"), text, flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"`[^`\n]*`", "x", text)


def anchors(text: str) -> set[str]:
    """What the headings of a page can be linked by, as GitHub and the site make it."""
    fenceless = re.sub(r"^```.*?^```[ ]*$", "", text, flags=re.MULTILINE | re.DOTALL)
    titles = re.findall(r"^#+ (.+)$", fenceless, re.MULTILINE)
    plain = (re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title).replace("`", "") for title in titles)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in plain}


def broken_links(page: Path, text: str) -> list[str]:
    """The links of a page that lead to no file, or to no heading of one."""
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)\)", without_code(text)):
        target, _, anchor = link.partition("#")
        if "://" in target:
            continue
        path = (page.parent / target).resolve() if target else page
        is_there = path.exists()
        if is_there and anchor and path.suffix == ".md":
            is_there = anchor in anchors(text if path == page else path.read_text(encoding="utf-8"))
        if not is_there:
            broken.append(link)
    return broken


def glued_blocks(text: str) -> list[str]:
    """Lists and tables that follow a line of text without an empty line: the site shows them as one paragraph."""
    lines = ["", *without_code(text).split("\n")]
    item, row = re.compile(r"\s*([*-]|\d+\.) \S"), re.compile(r"\|.*\|")

    def begins(pattern: re.Pattern[str], place: int) -> bool:
        before = lines[place - 1]
        inside = bool(item.match(before)) or (pattern is item and before.startswith(" "))
        return bool(pattern.match(lines[place]) and before.strip() and not pattern.match(before) and not inside)

    return [lines[index] for index in range(1, len(lines)) if begins(item, index) or begins(row, index)]


def paths_that_are_not_there(page: str) -> list[str]:
    """Paths from the repository that a page names, of which there is no file or folder."""
    named = re.findall(r"`((?:simlab|traces|policies|analysis|real_runner|tests)/[\w/.]*)`", page)
    return [path for path in named if not (REPOSITORY / path).exists()]


def tutorial_commands() -> list[str]:
    """The commands of the tutorial that need no models, in order."""
    blocks = re.findall(r"^```sh\n(.*?)^```$", TUTORIAL.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines()]
    return [line for line in lines if line.startswith("simlab ") and not line.startswith(SLOW)]


def test_pages_are_well_formed() -> None:
    texts = {page: page.read_text(encoding="utf-8") for page in PAGES}
    assert [(page, link) for page, text in texts.items() for link in broken_links(page, text)] == []
    assert [(page, line) for page, text in texts.items() for line in glued_blocks(text)] == []


def test_planted_faults_are_found() -> None:
    page = DOCS / "index.md"
    assert broken_links(page, "[a](nowhere.md) [b](map.md#nowhere) [c](map.md) [d](#e)\n\n# E") == [
        "nowhere.md",
        "map.md#nowhere",
    ]
    assert glued_blocks("text\n* item\n\n* item\n  more\n* item\n\ntext\n| a |\n") == ["* item", "| a |"]
    assert anchors("# 8. Memory, a `value`\n```\n# no\n```\n") == {"8-memory-a-value"}


def test_every_page_is_on_the_site() -> None:
    text = (REPOSITORY / "mkdocs.yml").read_text(encoding="utf-8")
    listed = re.findall(r"([\w/.-]+\.md)$", text, re.MULTILINE)
    assert sorted(listed) == sorted(page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md"))


def test_what_the_map_names_is_there() -> None:
    assert paths_that_are_not_there((DOCS / "map.md").read_text(encoding="utf-8")) == []
    assert paths_that_are_not_there("`simlab/` and `traces/nowhere.py`") == ["traces/nowhere.py"]


def test_the_commands_of_the_tutorial_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    commands = tutorial_commands()
    assert len(commands) >= 6
    for command in commands:
        assert main(shlex.split(command)[1:]) == 0, command
    printed = capsys.readouterr().out
    tables = re.findall(r"^```text\n(.*?)^```$", TUTORIAL.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    missing = [line for table in tables for line in table.splitlines() if line not in printed]
    assert missing == []
