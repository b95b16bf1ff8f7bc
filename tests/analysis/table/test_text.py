"""Lines of text around tables: they fit, and nothing of them is lost."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simlab.analysis.table.text import WIDTH, within_width


@given(st.lists(st.text("ab-/,", min_size=1, max_size=30), min_size=1, max_size=40))
def test_lines_fit_and_keep_their_words(words: list[str]) -> None:
    lines = within_width(f"latency  {' '.join(words)}").split("\n")
    assert all(len(line) <= WIDTH for line in lines)
    assert " ".join(lines).split() == ["latency", *words]
    assert all(line.startswith(" " * 9) for line in lines[1:])


@pytest.mark.parametrize("line", ["", "short", "a  b" * 20, f"trace    /{'x' * 120}"])
def test_what_fits_and_what_cannot_be_broken_stays(line: str) -> None:
    assert within_width(line) == line
