"""The notebook of the tutorial: it runs as it stands, gives what it shows, and its page is made from it."""

import importlib.util
from typing import Any

import nbformat
import pytest
from places import DOCS

SPEC = importlib.util.spec_from_file_location("make_notebook", DOCS / "make_notebook.py")
assert SPEC is not None
assert SPEC.loader is not None
MAKER = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(MAKER)

BY_TOKENIZER = "show_round"
"""What a cell with this in it shows depends on whether the target's tokenizer is on the machine."""


def tables(notebook: Any) -> list[str]:  # noqa: ANN401 - nbformat carries no types
    """The HTML of each cell that gives a table; words of tokens are left out."""
    cells = (cell for cell in notebook.cells if cell.cell_type == "code" and BY_TOKENIZER not in cell.source)
    outputs = (output.get("data", {}) for cell in cells for output in cell.outputs)
    return [data["text/html"] for data in outputs if "text/html" in data]


POINTS = ("x", "y")


def without_points(line: Any) -> Any:  # noqa: ANN401
    """What a line of the figure is called, and how it is drawn."""
    return {key: value for key, value in line.items() if key not in POINTS}


@pytest.fixture(scope="module")
def stored() -> Any:  # noqa: ANN401
    return nbformat.read(MAKER.NOTEBOOK, as_version=4)


def test_it_runs_and_gives_what_it_shows(stored: Any) -> None:  # noqa: ANN401
    found = MAKER.executed()
    assert tables(found) == tables(stored)
    assert len(tables(stored)) >= 5
    lines, before = (MAKER.figure_of(one)["data"] for one in (found, stored))
    assert [without_points(line) for line in lines] == [without_points(line) for line in before]
    for line, other in zip(lines, before, strict=True):
        for axis in POINTS:
            # The last bits of an interval are the processor's.
            assert line[axis] == pytest.approx(other[axis], rel=1e-12)


def test_its_page_is_made_from_it(stored: Any) -> None:  # noqa: ANN401
    assert MAKER.PAGE.read_text(encoding="utf-8") == MAKER.page_of(stored), "run `make notebook`"
    assert MAKER.FIGURE.is_file()
