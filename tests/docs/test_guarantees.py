"""Every promise names a test that exists, and asks something."""

import re

from places import DOCS, REPOSITORY

PAGE = (DOCS / "reference" / "guarantees.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| (?!Promise|---)(.+?) \| (.+?) \|$", PAGE, re.MULTILINE)


def test_there_are_promises_of_every_kind() -> None:
    assert len(ROWS) > 20
    assert re.findall(r"^## (.*)$", PAGE, re.MULTILINE)[:5] == [
        "Figures",
        "Files",
        "Resumes",
        "Memory and time",
        "Security",
    ]


def faults_of(promise: str, tests: str) -> list[str]:
    """What is wrong with a row: a file without tests, or none that a quick run has."""
    named = re.findall(r"`(tests/[\w/]+\.py)`", tests)
    if not named or ", ".join(f"`{name}`" for name in named) != tests:
        return [f"{promise}: no list of tests"]
    texts = {name: (REPOSITORY / name).read_text(encoding="utf-8") for name in named if (REPOSITORY / name).is_file()}
    faults = [f"{promise}: {name} has no test" for name in named if "def test_" not in texts.get(name, "")]
    if all("pytestmark = pytest.mark.thorough" in text for text in texts.values()):
        faults.append(f"{promise}: no quick test")
    return faults


def test_each_promise_is_held_by_a_test() -> None:
    assert [fault for row in ROWS for fault in faults_of(*row)] == []


def test_a_promise_without_a_test_is_found() -> None:
    assert faults_of("a", "some test") == ["a: no list of tests"]
    assert faults_of("a", "`tests/nowhere.py`") == ["a: tests/nowhere.py has no test", "a: no quick test"]
