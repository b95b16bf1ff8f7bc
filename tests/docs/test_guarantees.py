"""Every promise names a test that exists, and asks something."""

import re

import pytest
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


@pytest.mark.parametrize(("promise", "tests"), ROWS, ids=[promise[:40] for promise, _ in ROWS])
def test_each_promise_is_held_by_a_test(promise: str, tests: str) -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)`", tests)
    assert named, promise
    assert ", ".join(f"`{one}`" for one in named) == tests
    for one in named:
        assert "def test_" in (REPOSITORY / one).read_text(encoding="utf-8"), one
