"""Summaries as the table that a person reads."""

import math
from collections.abc import Sequence

from simlab.analysis.intervals import FEW_PROMPTS
from simlab.analysis.tables import Summary

_HEADINGS = (
    ("policy", ""),
    ("acceptance length", "pooled [95 %]"),
    ("", "per response"),
    ("nodes/round", ""),
    ("accepted per", "verified"),
    ("rounds", ""),
)
NOTES = (
    "Acceptance length: tokens committed per round, bonus token included; [95 %] over prompts.",
    "No speeds yet: this version has no cost tables.",
)


def table(found: Sequence[Summary]) -> str:
    """The rows of one slice, or of everything, under one heading."""
    cells = [list(heading) for heading in zip(*_HEADINGS, strict=True)] + [_cells(one) for one in found]
    widths = [max(len(row[column]) for row in cells) for column in range(len(_HEADINGS))]
    return "\n".join(_line(row, widths) for row in cells)


def blocks(slices: Sequence[Summary], whole: Sequence[Summary], by: str) -> str:
    """A table per slice, and one of everything at the end."""
    values = list(dict.fromkeys(one.slice for one in slices))
    parts = [_block(f"{by} {value}", [one for one in slices if one.slice == value]) for value in values]
    return "\n\n".join([*parts, _block("all", whole)])


def notes(found: Sequence[Summary]) -> str:
    """What a reader must know beside the numbers, a sentence a line."""
    fewest = min(one.prompts for one in found)
    lines: list[str] = [*NOTES]
    if fewest < FEW_PROMPTS:
        lines.append(f"Fewer than {FEW_PROMPTS} prompts in a table: its intervals are rough and rather too narrow.")
    return "\n".join(lines)


def _block(title: str, found: Sequence[Summary]) -> str:
    return f"{title}: {found[0].prompts} prompts, {found[0].sequences} sequences\n{table(found)}"


def _cells(one: Summary) -> list[str]:
    totals = one.totals
    return [
        one.policy,
        f"{_number(totals.acceptance_length, 2)} {_interval(one)}",
        _number(one.acceptance_length_macro, 2),
        _number(totals.nodes_per_round, 1),
        _number(totals.accepted_per_verified, 3),
        f"{totals.rounds:,}",
    ]


def _interval(one: Summary) -> str:
    low, high = one.interval.low, one.interval.high
    text = "" if math.isnan(low) or low == high else f"[{low:.2f}, {high:.2f}]"
    return text.ljust(len("[1.00, 1.00]"))


def _number(value: float, digits: int) -> str:
    return "-" if math.isnan(value) else f"{value:.{digits}f}"


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    """Names to the left, numbers to the right; the heading of a pair of columns begins at its left."""
    padded = [
        cell.ljust(width) if column < 2 else cell.rjust(width)
        for column, (cell, width) in enumerate(zip(row, widths, strict=True))
    ]
    return "  ".join(padded).rstrip()
