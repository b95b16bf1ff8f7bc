"""Figures are the same to the last bit in every run: no sum of floats is left to the order of polars' threads."""

import ast

import pytest
from places import REPOSITORY

SOURCES = [path for folder in ("analysis", "simlab/studies") for path in sorted((REPOSITORY / folder).rglob("*.py"))]


def named(call: ast.Call) -> set[str | None]:
    return {one.arg for one in call.keywords}


def without_order(source: str) -> list[int]:
    """Lines on which rows are grouped, or joined by their keys, in whatever order threads finish."""
    calls = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call))
    return [
        call.lineno
        for call in calls
        if isinstance(call.func, ast.Attribute)
        and (
            call.func.attr == "group_by" or (call.func.attr == "join" and any(one.arg == "on" for one in call.keywords))
        )
        and not any(one.arg == "maintain_order" for one in call.keywords)
    ]


def test_groups_and_joins_keep_the_order_of_their_rows() -> None:
    found = {str(path.relative_to(REPOSITORY)): without_order(path.read_text(encoding="utf-8")) for path in SOURCES}
    assert len(found) > 100
    assert {path: lines for path, lines in found.items() if lines} == {}


@pytest.mark.parametrize("line", ['rows.group_by("a").agg(b)', 'rows.join(others, on="a")'])
def test_what_leaves_the_order_open_is_found(line: str) -> None:
    assert without_order(line) == [1]
    assert without_order(f"{line.replace(')', ', maintain_order=True)', 1)}") == []
