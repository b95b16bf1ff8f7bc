"""Summaries as the table that a person reads."""

import math
import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from simlab.analysis.statistics.intervals import Interval, rough_intervals
from simlab.analysis.table.summaries import Summary
from simlab.untrusted.visible import label_lines, visible_html

Column = tuple[str, str, Callable[[Summary], str]]
"""Two lines of heading, and what stands below them."""

_COUNTS: tuple[Column, ...] = (
    ("policy", "", lambda summary: summary.policy),
    (
        "acceptance length",
        "pooled [95 %]",
        lambda summary: with_interval(summary.totals.acceptance_length, summary.interval),
    ),
    ("", "macro avg", lambda summary: number(summary.acceptance_length_macro, 2)),
    ("nodes", "/round", lambda summary: number(summary.totals.nodes_per_round, 1)),
    ("accepted", "/verified", lambda summary: number(summary.totals.accepted_per_verified, 3)),
    ("rounds", "", lambda summary: f"{summary.totals.rounds:,}"),
)
_SPEEDS: tuple[Column, ...] = (
    ("tokens/s", "", lambda summary: number(summary.speed.tokens_per_s, 1)),
    ("speedup", "[95 %]", lambda summary: with_interval(summary.speed.speedup, summary.speed.interval)),
    ("prices", "[95 %]", lambda summary: ends(summary.speed.price_interval)),
)
_LESS_NEEDED = ("accepted", "rounds", "macro avg", "prices", "nodes")
"""Columns that are left out, in this order, where a table is too wide; ``--json`` and notebooks have all."""

WIDTH, _NARROWEST = 100, 60
"""Columns of tables and of the text around them, where no terminal is narrower; and of the narrowest."""

_LEAST_LABEL = 24
"""Labels of rows are wrapped to no fewer columns."""

_LEFT = {"policy", "acceptance length", "speedup", "prices"}

NOTES = "Acceptance length: tokens added per round, bonus token included; [95 %] over prompts."
MACRO = "Macro avg: mean of each response's own mean."
NO_SPEEDS = "No speeds: the seconds of these rows are not known; `simlab profile` measures a latency profile."
SPEEDS = {
    "predicted": "Speeds are predicted from a latency profile; prefill is not in them.",
    "measured": "Speeds were measured; prefill is not in them.",
}
SPEEDUP = "Speedup: over autoregressive decoding (its fastest measured implementation), on the same prompts."
SPEEDUP_OVER_PASS = "Speedup: over a pass of one token (autoregressive decoding was not timed), on the same prompts."
NO_SPEEDUP = "No speedup: autoregressive decoding was not timed."
PRICES = "Prices [95 %]: the speedup by the noise of the latency profile alone."
NO_PRICES = {
    "predicted": "Prices: not known; one sample of each size does not say how noisy a latency profile is.",
    "measured": "Prices: none, since these seconds were measured.",
}
"""Why there is no price interval."""


@dataclass(frozen=True, slots=True)
class Cells:
    """A table as cells of text, before it is made into lines or into HTML.

    Attributes:
        headings: one or more lines above the rows, a cell for each column.
        rows: of equally many cells.
        to_left: for each column whether its cells begin at its left; else they end at its right.
    """

    headings: Sequence[Sequence[str]]
    rows: Sequence[Sequence[str]]
    to_left: Sequence[bool]

    def text(self) -> str:
        """The table as lines, each column as wide as its widest cell."""
        return aligned([*self.headings, *self.rows], self.to_left)


def summary_table(summaries: Sequence[Summary]) -> str:
    """The rows of one slice, or of everything, under one heading; speeds only where some are known."""
    return summary_cells(summaries, fitting_columns(summaries)).text()


def summary_cells(summaries: Sequence[Summary], shown: Sequence[str] | None = None) -> Cells:
    """The cells of the table of one slice, or of everything, with two lines of headings.

    Args:
        summaries: a row each.
        shown: the headings of the columns, as `fitting_columns` has them; None: all.
    """
    columns = [column for column in table_columns(summaries) if shown is None or f"{column[0]} {column[1]}" in shown]
    return Cells(
        headings=([first for first, _, _ in columns], [second for _, second, _ in columns]),
        rows=[[text(summary) for _, _, text in columns] for summary in summaries],
        to_left=[first in _LEFT for first, _, _ in columns],
    )


def table_columns(summaries: Sequence[Summary]) -> tuple[Column, ...]:
    """The columns of a table; speeds only where some are known."""
    return (*_COUNTS, *_SPEEDS) if has_speeds(summaries) else _COUNTS


def fitting_columns(summaries: Sequence[Summary]) -> list[str]:
    """The headings, both lines together, of those columns of a table for which the page has room."""
    widths = {
        f"{first} {second}": max(len(first), len(second), *(len(text(summary).rstrip()) for summary in summaries))
        for first, second, text in table_columns(summaries)
    }
    widths["policy "] = min(widths["policy "], _LEAST_LABEL)
    for name in _LESS_NEEDED:
        if sum(widths.values()) + 2 * (len(widths) - 1) <= page_width():
            break
        widths = {heading: width for heading, width in widths.items() if name not in heading}
    return list(widths)


def has_speeds(summaries: Sequence[Summary]) -> bool:
    """Whether the seconds of any of these policies are known."""
    return any(summary.speed.seconds is not None for summary in summaries)


def summary_blocks(slices: Sequence[Summary], whole: Sequence[Summary], by: str) -> str:
    """A table per slice, and one of everything at the end."""
    return "\n\n".join(f"{title}\n{summary_table(summaries)}" for title, summaries in summary_parts(slices, whole, by))


def summary_parts(slices: Sequence[Summary], whole: Sequence[Summary], by: str) -> list[tuple[str, list[Summary]]]:
    """The title and the summaries of each table: one for each slice in its order, and at the end one of everything."""
    values = list(dict.fromkeys(summary.slice for summary in slices))
    parts = [(f"{by} {value}", [summary for summary in slices if summary.slice == value]) for value in values]
    return [
        (f"{name}: {members[0].prompts} prompts, {members[0].sequences} sequences", members)
        for name, members in [*parts, ("all", list(whole))]
    ]


def summary_notes(summaries: Sequence[Summary], without_speeds: str = NO_SPEEDS, speedup: str = SPEEDUP) -> str:
    """What a reader must know beside the numbers, as a paragraph.

    Args:
        summaries: the summaries of the table.
        without_speeds: why there are no speeds, where there are none.
        speedup: what speedups are over, in a sentence.
    """
    kind, shown = summaries[0].kind, fitting_columns(summaries)
    prices = PRICES if any(is_known(summary.speed.price_interval) for summary in summaries) else NO_PRICES[kind]
    lines = [NOTES, *([MACRO] if " macro avg" in shown else [])]
    lines += [SPEEDS[kind], *speedup.splitlines()] if has_speeds(summaries) else [without_speeds]
    lines += [prices] if "prices [95 %]" in shown else []
    lines += rough_intervals(min(summary.prompts for summary in summaries), "prompts in a table")
    return within_width(" ".join(lines))


def with_interval(value: float, interval: Interval) -> str:
    """A number with its interval, always as wide; a point or an unknown interval is left out."""
    text = ends(interval) if is_known(interval) else ""
    return f"{number(value, 2)} {text.ljust(len('[1.00, 1.00]'))}"


def ends(interval: Interval) -> str:
    """An interval alone: a dash where it is not known, and nothing of a point."""
    if not is_known(interval):
        return "-"
    return "" if interval.low == interval.high else f"[{_end(interval.low)}, {_end(interval.high)}]"


def is_known(interval: Interval) -> bool:
    """Whether it has ends."""
    return not math.isnan(interval.low)


def _end(value: float) -> str:
    """One end of an interval; the far ends that a few prompts give are not worth their decimals."""
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:.3g}"


def number(value: float, digits: int) -> str:
    """A number with so many decimals, or a dash where it is not known."""
    return "-" if math.isnan(value) else f"{value:.{digits}f}"


def page_width() -> int:
    """Columns of a page: those of the terminal, where there is one and it is narrower than `WIDTH`."""
    columns = shutil.get_terminal_size((WIDTH, 1)).columns if sys.stdout is not None and sys.stdout.isatty() else WIDTH
    return max(_NARROWEST, min(columns, WIDTH))


def aligned(cells: Sequence[Sequence[str]], to_left: Sequence[bool]) -> str:
    """Rows of cells as lines within the page, each column as wide as its widest cell.

    Where they are wider the first cells, which name the rows, are wrapped; and where that is not enough, columns stand
    in several tables below each other, each with the names of the rows.

    Args:
        cells: rows of equally many cells.
        to_left: for each column whether its cells begin at its left; else they end at its right.
    """
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    over = sum(widths) + 2 * (len(widths) - 1) - page_width()
    if over > 0:
        widths[0] = min(widths[0], max(_LEAST_LABEL, widths[0] - over))
    parts = [[0]]
    for column in range(1, len(widths)):
        if sum(widths[index] + 2 for index in parts[-1]) + widths[column] > page_width() and len(parts[-1]) > 1:
            parts.append([0])
        parts[-1].append(column)
    return "\n\n".join(
        "\n".join(
            line
            for row in cells
            for line in _lines(
                [row[index] for index in part], [widths[index] for index in part], [to_left[index] for index in part]
            )
        )
        for part in parts
    )


def _lines(row: Sequence[str], widths: Sequence[int], to_left: Sequence[bool]) -> list[str]:
    """The lines of a row, whose name may take several."""
    first, *more = label_lines(row[0], widths[0])
    return [_line([first, *row[1:]], widths, to_left), *(f"  {line}" for line in more)]


def _line(row: Sequence[str], widths: Sequence[int], to_left: Sequence[bool]) -> str:
    padded = [
        cell.ljust(width) if left else cell.rjust(width) for cell, width, left in zip(row, widths, to_left, strict=True)
    ]
    return "  ".join(padded).rstrip()


def within_width(text: str) -> str:
    """Every line of a heading or a note within the page; a word that is longer, such as a path, stays whole.

    What is wrapped goes on below its line's first word, behind its name if it has one.

    >>> print(within_width("latency  " + "word " * 20))
    latency  word word word word word word word word word word word word word word word word word word
             word word
    """
    return "\n".join(map(_wrapped, text.split("\n")))


def _wrapped(line: str) -> str:
    width = page_width()
    if len(line) <= width:
        return line
    named = re.match(r"\s*\w[\w ]{,14}?  +|\s*", line)
    assert named is not None
    behind = " " * len(named[0])
    return "\n".join(
        textwrap.wrap(
            line[named.end() :],
            width,
            initial_indent=named[0],
            subsequent_indent=behind,
            break_long_words=False,
            break_on_hyphens=False,
        )
    )


# Tables as HTML for notebooks: the cells of the text tables, with inline styles only.


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
            f'<p style="margin: 8px 0 2px"><b>{visible_html(title)}</b></p>\n{cells_html(summary_cells(members))}'
            for title, members in summary_parts(slices, whole, by)
        ]
    else:
        parts = [cells_html(summary_cells(whole))]
    # A browser wraps by itself.
    notes = " ".join(summary_notes(slices or whole, without_speeds, speedup).splitlines())
    return "\n".join(["<div>", *parts, sentences_html(notes), "</div>"])


def _row(cells: Sequence[str], to_left: Sequence[bool], kind: str) -> str:
    parts = [
        f'<{kind} style="{_CELL}; text-align: {"left" if left else "right"}">{visible_html(cell.strip())}</{kind}>'
        for cell, left in zip(cells, to_left, strict=True)
    ]
    return f"<tr>{''.join(parts)}</tr>"
