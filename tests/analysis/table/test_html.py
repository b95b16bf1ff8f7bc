"""The HTML of a notebook shows the cells of the text table, no others, and escapes them."""

import re
from dataclasses import replace
from html import unescape

from summary_rows import priced, results

from simlab.analysis.statistics.intervals import Interval
from simlab.analysis.table.summaries import Summary, summarise
from simlab.analysis.table.text import Cells, cells_html, sentences_html, summaries_html, summary_cells, summary_notes


def rows_of(page: str, kind: str) -> list[list[str]]:
    """The cells of each line of headings (``th``) or of each row (``td``)."""
    lines = re.findall(r"<tr>(.*?)</tr>", page, re.DOTALL)
    cells = [[unescape(one) for one in re.findall(rf"<{kind} [^>]*>(.*?)</{kind}>", line)] for line in lines]
    return [row for row in cells if row]


def assert_shows(page: str, found: list[Summary]) -> None:
    cells = summary_cells(found)
    assert rows_of(page, "th") == [list(line) for line in cells.headings]
    assert rows_of(page, "td") == [[cell.strip() for cell in row] for row in cells.rows]


def test_headings_cells_and_notes_are_those_of_the_text() -> None:
    for rows in (results(), priced()):
        found = summarise(rows)
        page = summaries_html(found)
        assert_shows(page, found)
        paragraphs = [unescape(one) for one in re.findall(r"<p [^>]*>(.*?)</p>", page)]
        assert paragraphs == summary_notes(found).splitlines()
        assert "<script" not in page
        assert "class=" not in page


def test_intervals_are_in_it() -> None:
    found = [replace(one, interval=Interval(1.25, 2.5)) for one in summarise(priced())]
    assert all(row[1].endswith("[1.25, 2.50]") for row in rows_of(summaries_html(found), "td"))


def test_slices_have_tables_of_their_own() -> None:
    whole, slices = summarise(results()), summarise(results(), "dataset")
    page = summaries_html(whole, slices, "dataset", without_speeds="No prices <were> given.")
    titles = re.findall(r"<b>(.*?)</b>", page)
    assert titles == [
        "dataset maths: 2 prompts, 2 sequences",
        "dataset chat: 1 prompts, 2 sequences",
        "all: 3 prompts, 4 sequences",
    ]
    tables = re.findall(r"<table.*?</table>", page, re.DOTALL)
    for place, value in enumerate(("maths", "chat")):
        assert_shows(tables[place], [one for one in slices if one.slice == value])
    assert_shows(tables[2], whole)
    assert "No prices &lt;were&gt; given." in page


def test_everything_is_escaped() -> None:
    page = cells_html(Cells([["<a>"]], [["b & c"], ["  <script>  "]], [True]))
    assert rows_of(page, "td") == [["b & c"], ["<script>"]]
    assert "<script>" not in page
    assert "<a>" not in page
    assert sentences_html("a < b\n\nc") == sentences_html("a < b\nc")
    assert "a &lt; b" in sentences_html("a < b\n\nc")
