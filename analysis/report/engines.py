"""What live engines did beside the trace, as a table of a report."""

import math
from collections.abc import Sequence

from simlab.analysis.crosscheck.summary import CrosscheckSummary
from simlab.analysis.report.parts import Grid

_HEADS = ("engine", "verdict", "texts equal", "rounds equal", "acceptance length", "foretold", "foretold over it, %")


def crosscheck_grid(found: Sequence[CrosscheckSummary]) -> Grid:
    """A row for each crosscheck, and its reason below."""
    rows = [
        [
            one.engine,
            one.verdict,
            f"{one.texts[0]:,} of {one.texts[1]:,}",
            f"{one.rounds[0]:,} of {one.rounds[1]:,}" if one.rounds[1] else "not told",
            _number(one.measured),
            _number(one.foretold),
            _error(one.error),
        ]
        for one in found
    ]
    caption = [f"{one.engine}, {one.verdict} ({one.level}): {one.reason}." for one in found]
    strong = frozenset(place for place, one in enumerate(found) if not one.is_good)
    return Grid(_HEADS, rows, caption, strong)


def _number(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.3f}"


def _error(error: tuple[float, float, float]) -> str:
    ratio, low, high = error
    if math.isnan(ratio):
        return "-"
    ends = "" if math.isnan(low) else f" [{100 * (low - 1):+.2f}, {100 * (high - 1):+.2f}]"
    return f"{100 * (ratio - 1):+.2f}{ends}"
