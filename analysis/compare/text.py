"""Comparisons as people read them: the verdicts, a table, and what to know beside it."""

import math
from collections.abc import Sequence

from simlab.analysis.compare.comparisons import Comparison, headline_measure
from simlab.analysis.compare.verdicts import measure_name, standing_sentence, verdict_sentence
from simlab.analysis.statistics.intervals import FEW_PROMPTS, Interval
from simlab.analysis.statistics.significance import POWER
from simlab.analysis.table.html import cells_html, sentences_html
from simlab.analysis.table.text import Cells, is_known, number

_PRICES = "prices [95 %]"
_HEADINGS = ("", "first", "second", "difference [95 %]", "ratio [95 %]", _PRICES, "p", "detectable")
_LEFT = ("", "difference [95 %]", "ratio [95 %]", _PRICES)


def verdicts_text(comparisons: Sequence[Comparison], by: str | None = None) -> str:
    """A line for each, slices named; above them where one run stands, if all are of the same one."""
    lines = [f"{_slice(one, by)}{verdict_sentence(one)}." for one in comparisons]
    if by is None and len(comparisons) > 1 and len({one.first for one in comparisons}) == 1:
        lines.insert(0, f"{standing_sentence(comparisons)}.")
    return "\n".join(lines)


def comparison_table(comparisons: Sequence[Comparison], by: str | None = None) -> str:
    """A table of text with a row for each comparison."""
    return comparison_cells(comparisons, by).text()


def comparisons_html(
    comparisons: Sequence[Comparison], measure: str | None = None, by: str | None = None, correction: str = "holm"
) -> str:
    """The verdicts by one measure, the table and its notes as HTML for notebooks.

    Args:
        comparisons: what `simlab.analysis.compare.comparisons.compare_runs` gave; at least one.
        measure: the one that verdicts are about; None: tokens per second where they are known, else acceptance length.
        by: what slices are of; None: there are none.
        correction: one of `simlab.analysis.statistics.significance.CORRECTIONS`, by which p-values were adjusted.
    """
    of_measure, rows = shown_comparisons(comparisons, measure)
    verdicts, notes = verdicts_text(of_measure, by), comparison_notes(rows, correction)
    parts = [sentences_html(verdicts), cells_html(comparison_cells(rows, by)), sentences_html(notes)]
    return "<div>\n" + "\n".join(parts) + "\n</div>"


def shown_comparisons(
    comparisons: Sequence[Comparison], measure: str | None = None
) -> tuple[Sequence[Comparison], Sequence[Comparison]]:
    """The comparisons that verdicts are about, and those of the table: of a single pair every measure, else this one.

    Args:
        comparisons: at least one.
        measure: None: tokens per second where they are known of every pair, else acceptance length.
    """
    wanted = measure or headline_measure(comparisons)
    of_measure = [one for one in comparisons if one.measure == wanted]
    return of_measure, of_measure if len(of_measure) > 1 else comparisons


def comparison_cells(comparisons: Sequence[Comparison], by: str | None = None) -> Cells:
    """The cells of the table, a row for each comparison; price intervals only where some are known."""
    alone = len({(one.first, one.second) for one in comparisons}) == 1
    rows = [[_place(one, by, alone), *_cells(one)] for one in comparisons]
    shown = [place for place, name in enumerate(_HEADINGS) if name != _PRICES or _has_prices(comparisons)]
    heading, *rows = ([row[place] for place in shown] for row in (_HEADINGS, *rows))
    return Cells([heading], rows, [name in _LEFT for name in heading])


def _has_prices(comparisons: Sequence[Comparison]) -> bool:
    return any(is_known(one.price_interval) for one in comparisons)


def comparison_notes(comparisons: Sequence[Comparison], correction: str) -> str:
    """What a reader must know beside the numbers, a sentence a line."""
    lines = [
        "Differences and ratios are the first's against the second's, on the same prompts; [95 %] over prompts.",
        f"Detectable: the minimum detectable difference, found with so many prompts in {100 * POWER:.0f} % of cases.",
    ]
    if _has_prices(comparisons):
        lines.append("Prices [95 %]: the ratio by the noise of the latency profile alone, prompts held fixed.")
    if max(one.family for one in comparisons) > 1:
        name = {"holm": "Holm", "bh": "Benjamini and Hochberg"}[correction]
        lines.append(f"p is adjusted for the number of comparisons ({name}); the intervals are each comparison's own.")
    fewest = min(one.prompts for one in comparisons)
    if fewest < FEW_PROMPTS:
        lines.append(f"Fewer than {FEW_PROMPTS} prompts: the intervals are rough.")
    return "\n".join(lines)


def _slice(one: Comparison, by: str | None) -> str:
    return "" if by is None else f"{'all' if one.slice is None else f'{by} {one.slice}'}: "


def _place(one: Comparison, by: str | None, alone: bool) -> str:
    runs = "" if alone else f"{one.first} / {one.second}: "
    return f"{_slice(one, by)}{runs}{measure_name(one.measure)}"


def _cells(comparison: Comparison) -> list[str]:
    share = 100 * (comparison.detectable - 1)
    return [
        number(comparison.first_value, 2),
        number(comparison.second_value, 2),
        _with_interval(comparison.difference, comparison.difference_interval, 2, sign=True),
        _with_interval(comparison.ratio, comparison.ratio_interval, 3, sign=False),
        _ends(comparison.price_interval, ".3f") if is_known(comparison.price_interval) else "-",
        "-"
        if math.isnan(comparison.p_adjusted)
        else "<0.001"
        if comparison.p_adjusted < 0.001
        else f"{comparison.p_adjusted:.3f}",
        "-" if math.isnan(share) else f"{share:.2g} %" if share < 100 else f"{share:.0f} %",
    ]


def _with_interval(value: float, interval: Interval, digits: int, sign: bool) -> str:
    form = f"{'+' if sign else ''}.{digits}f"
    if math.isnan(value):
        return "-"
    return f"{value:{form}} {_ends(interval, form)}" if is_known(interval) else f"{value:{form}}"


def _ends(interval: Interval, form: str) -> str:
    return f"[{interval.low:{form}}, {interval.high:{form}}]"
