"""Tables as HTML for notebooks: the cells of the text tables, with inline styles only."""

from collections.abc import Sequence

from simlab.analysis.table.summaries import Summary
from simlab.analysis.table.text import NO_SPEEDS, SPEEDUP, Cells, summary_cells, summary_notes, summary_parts
from simlab.untrusted.visible import visible_html

_TABLE = "border-collapse: collapse; font-variant-numeric: tabular-nums"
_CELL = "padding: 2px 10px; white-space: nowrap"


def cells_html(cells: Cells) -> str:
    """Cells as a ``<table>`` element: lines of headings, then rows, everything escaped."""
    heads = "\n".join(_row(line, cells.to_left, "th") for line in cells.headings)
    rows = "\n".join(_row(row, cells.to_left, "td") for row in cells.rows)
    return f'<table style="{_TABLE}">\n<thead>\n{heads}\n</thead>\n<tbody>\n{rows}\n</tbody>\n</table>'


def sentences_html(text: str) -> str:
    """The lines of a text as small paragraphs, escaped; empty lines are left out."""
    style = "margin: 2px 0; font-size: 85%"
    return "\n".join(f'<p style="{style}">{visible_html(line)}</p>' for line in text.splitlines() if line.strip())


def summaries_html(
    whole: Sequence[Summary],
    slices: Sequence[Summary] = (),
    by: str = "",
    without_speeds: str = NO_SPEEDS,
    speedup: str = SPEEDUP,
) -> str:
    """The table of results with its intervals and notes; with slices a table of each, and one of everything at the end.

    Args:
        whole: a summary of each policy on everything.
        slices: summaries of each policy on each slice; may be none.
        by: what the slices are of.
        without_speeds: why there are no speeds, where there are none.
        speedup: what speedups are over, in a sentence.
    """
    if slices:
        parts = [
            f"{_title(title)}\n{cells_html(summary_cells(some))}" for title, some in summary_parts(slices, whole, by)
        ]
    else:
        parts = [cells_html(summary_cells(whole))]
    return "<div>\n" + "\n".join([*parts, sentences_html(summary_notes(whole, without_speeds, speedup))]) + "\n</div>"


def _title(title: str) -> str:
    return f'<p style="margin: 8px 0 2px"><b>{visible_html(title)}</b></p>'


def _row(cells: Sequence[str], to_left: Sequence[bool], kind: str) -> str:
    parts = [
        f'<{kind} style="{_CELL}; text-align: {"left" if left else "right"}">{visible_html(cell.strip())}</{kind}>'
        for cell, left in zip(cells, to_left, strict=True)
    ]
    return f"<tr>{''.join(parts)}</tr>"
