"""What a comparison says, in a sentence: who is ahead and by how much, or that the difference is not significant."""

import math
from collections.abc import Sequence

from simlab.analysis.compare.comparisons import Comparison
from simlab.analysis.statistics.intervals import Interval, rough_intervals
from simlab.analysis.statistics.significance import POWER
from simlab.analysis.table.estimates import Estimate
from simlab.analysis.table.text import Cells, is_known, number
from simlab.errors import enumerated

_AHEAD = {
    "acceptance_length": "has a longer acceptance length",
    "acceptance_length_macro": "has a longer acceptance length (macro average)",
    "tokens_per_s": "is faster",
    "speedup": "has a larger speedup",
    "worst_speedup": "has a larger worst speedup",
}
_SAID = {
    "acceptance_length": "acceptance length",
    "acceptance_length_macro": "acceptance length (macro average)",
    "tokens_per_s": "tokens/s",
    "speedup": "speedup",
    "worst_speedup": "worst speedup",
}

_WITHIN = "their difference is within the noise of the latency profile"


def measure_name(measure: str) -> str:
    """As it stands in tables."""
    return "acceptance, macro avg" if measure == "acceptance_length_macro" else _SAID[measure]


def verdict_sentence(comparison: Comparison, unit: str = "prompt") -> str:
    """In a sentence without a full stop.

    ``A is faster than B by 31.2 % [27.0, 35.1] (prices [30.0, 32.4])``, ``no winner between A and B: not significant;
    minimum detectable difference 3.1 % (n = 40 prompts)``, ``no winner between A and B: their difference is within the
    noise of the latency profile (prices [-1.2, +3.4] %)`` and, where every prompt has the same in both, ``no
    difference between A and B``.

    Args:
        comparison: the comparison.
        unit: what its intervals are over, in the singular.
    """
    both = f"{comparison.first} and {comparison.second}"
    if math.isnan(comparison.ratio):
        return f"{both} cannot be compared: their {_SAID[comparison.measure]} is not known"
    if comparison.equal and comparison.prompts:
        everywhere = _all(comparison.prompts, unit)
        return f"no difference between {both}: their {_SAID[comparison.measure]} is the same on {everywhere}"
    if not comparison.is_known:
        return (
            f"no verdict on {both}: {_prompts(comparison.prompts, unit)} that carry a sum alone allow no interval "
            f"({_signed(comparison.ratio)} %)"
        )
    if not comparison.differs_by_prompts:
        return f"no winner between {both}: {_unresolved(comparison, unit)}"
    if comparison.is_within_price_noise:
        return f"no winner between {both}: {within_price_noise(comparison)}"
    return _ahead(comparison, unit)


def within_price_noise(comparison: Comparison) -> str:
    """Why two are not told apart that the prompts alone would tell apart, in half a sentence."""
    low, high = (_signed(end) for end in (comparison.price_interval.low, comparison.price_interval.high))
    return f"{_WITHIN} (prices [{low}, {high}] %)"


def standing_sentence(comparisons: Sequence[Comparison], unit: str = "prompt") -> str:
    """Where one run stands among several, in a sentence without a full stop.

    ``A is faster than each of 3 others, the closest being B, by 4.1 % [2.0, 6.2]`` or ``no winner among A, B and C:
    not significant; minimum detectable difference up to 3.1 % (n = 40 prompts)``. It is fair to say of a run that was
    chosen on other prompts; the best of many on these very prompts looks better than it is.

    Args:
        comparisons: comparisons of that run with each of the others, by one measure, of one family.
        unit: what their intervals are over, in the singular.
    """
    if len({(comparison.first, comparison.measure, comparison.slice) for comparison in comparisons}) != 1:
        raise ValueError("expected comparisons of one run with others, by one measure")
    first, ahead = comparisons[0].first, _AHEAD[comparisons[0].measure]
    better = [comparison.second for comparison in comparisons if comparison.differs and comparison.ratio < 1]
    level = [comparison for comparison in comparisons if not comparison.differs]
    if better:
        many = len(better) > 1
        return f"{enumerated(better)} {_plural(ahead) if many else ahead} than {first}"
    if level:
        named = enumerated([first, *(comparison.second for comparison in level)])
        return f"no winner among {named}: {_all_level(level, unit)}"
    closest = min(comparisons, key=lambda comparison: comparison.ratio)
    by = f"{_share(closest.ratio, closest.ratio_interval)}{_prices(closest.price_interval)}"
    return f"{first} {ahead} than each of {len(comparisons)} others, the closest being {closest.second}, by {by}"


def _all_level(level: Sequence[Comparison], unit: str) -> str:
    """Why one run is not told apart from others: too few prompts, or prices that are too noisy."""
    by_prompts = [comparison for comparison in level if not comparison.differs_by_prompts]
    by_prices = [comparison.second for comparison in level if comparison.differs_by_prompts]
    if not by_prompts:
        return _WITHIN if len(by_prices) == 1 else _WITHIN.replace("difference is", "differences are")
    limits = [prompt.detectable for prompt in by_prompts if not math.isnan(prompt.detectable)]
    up_to = "up to " if len(limits) > 1 else ""
    limit = f"; minimum detectable difference {up_to}{_percent(max(limits))} %" if limits else ""
    more = (
        f"; the difference from {enumerated(by_prices)} is within the noise of the latency profile" if by_prices else ""
    )
    return f"not significant{limit} (n = {_prompts(level[0].prompts, unit)}){more}"


def _plural(ahead: str) -> str:
    return ahead.replace("is ", "are ", 1).replace("has ", "have ", 1)


def _ahead(comparison: Comparison, unit: str) -> str:
    """Who is ahead, by a ratio with the ends of its intervals, all above 1."""
    winner, loser = comparison.first, comparison.second
    ratio, over_prompts, by_prices = comparison.ratio, comparison.ratio_interval, comparison.price_interval
    if ratio < 1:
        winner, loser, ratio = loser, winner, 1 / ratio
        over_prompts, by_prices = (
            Interval(1 / interval.high, 1 / interval.low) for interval in (over_prompts, by_prices)
        )
    by = f"{_share(ratio, over_prompts)}{_prices(by_prices)}"
    return f"{winner} {_AHEAD[comparison.measure]} than {loser} by {by}, on {_prompts(comparison.prompts, unit)}"


def _share(ratio: float, interval: Interval) -> str:
    return f"{_percent(ratio)} % [{_percent(interval.low)}, {_percent(interval.high)}]"


def _prices(interval: Interval) -> str:
    """The price interval of a ratio behind that over prompts; empty where it is not known."""
    known = not math.isnan(interval.low)
    return f" (prices [{_percent(interval.low)}, {_percent(interval.high)}])" if known else ""


def _unresolved(comparison: Comparison, unit: str) -> str:
    among = f", {comparison.family} comparisons" if comparison.family > 1 else ""
    limit, prompts = _percent(comparison.detectable), _prompts(comparison.prompts, unit)
    seen = f"observed {_signed(comparison.ratio)} %"
    return f"not significant; minimum detectable difference {limit} % (n = {prompts}{among}); {seen}"


def _prompts(num: int, unit: str) -> str:
    return f"{num} {unit}" + ("" if num == 1 else "s")


def _all(num: int, unit: str) -> str:
    return f"the one {unit}" if num == 1 else f"each of {num} {unit}s"


def _percent(ratio: float) -> str:
    """Above 1, in per cent, with enough digits to be told from none."""
    share = 100 * (ratio - 1)
    return f"{share:.0f}" if share >= 100 else f"{share:.1f}" if abs(share) >= 0.1 else f"{share:.2g}"


def _signed(ratio: float) -> str:
    return f"{'+' if ratio >= 1 else '-'}{_percent(1 + abs(ratio - 1))}"


# Comparisons as people read them: the verdicts, a table, and what to know beside it.


_PRICES, _DIFFERENCE = "prices [95 %]", "difference [95 %]"
_HEADINGS = ("", "first", "second", _DIFFERENCE, "ratio [95 %]", _PRICES, "p", "detectable")
_LEFT = ("", _DIFFERENCE, "ratio [95 %]", _PRICES)


def verdicts_text(comparisons: Sequence[Comparison], by: str | None = None) -> str:
    """A line for each, slices named; above them where one run stands, if all are of the same one."""
    lines = [f"{_slice(comparison, by)}{verdict_sentence(comparison)}." for comparison in comparisons]
    if by is None and len(comparisons) > 1 and len({comparison.first for comparison in comparisons}) == 1:
        lines.insert(0, f"{standing_sentence(comparisons)}.")
    return "\n".join(lines)


def comparison_table(comparisons: Sequence[Comparison], by: str | None = None) -> str:
    """A table of text with a row for each comparison; ratios say what differences do, and the page is narrow."""
    return comparison_cells(comparisons, by, (_DIFFERENCE,)).text()


def comparison_cells(comparisons: Sequence[Comparison], by: str | None = None, left_out: Sequence[str] = ()) -> Cells:
    """The cells of the table, a row for each comparison; price intervals only where some are known."""
    alone = len({(comparison.first, comparison.second) for comparison in comparisons}) == 1
    rows = [[_place(comparison, by, alone), *_cells(comparison)] for comparison in comparisons]
    left_out = left_out if _has_prices(comparisons) else (*left_out, _PRICES)
    shown = [index for index, name in enumerate(_HEADINGS) if name not in left_out]
    heading, *rows = ([row[index] for index in shown] for row in (_HEADINGS, *rows))
    return Cells([heading], rows, [name in _LEFT for name in heading])


def _has_prices(comparisons: Sequence[Comparison]) -> bool:
    return any(is_known(comparison.price_interval) for comparison in comparisons)


def comparison_notes(comparisons: Sequence[Comparison], correction: str) -> str:
    """What a reader must know beside the numbers, a sentence a line."""
    lines = [
        "Ratios are the first's over the second's, on the same prompts; [95 %] over prompts.",
        f"Detectable: the minimum detectable difference, found with so many prompts in {100 * POWER:.0f} % of cases.",
    ]
    if _has_prices(comparisons):
        lines.append("Prices [95 %]: the ratio by the noise of the latency profile alone, prompts held fixed.")
    if max(comparison.family for comparison in comparisons) > 1:
        name = {"holm": "Holm", "bh": "Benjamini and Hochberg"}[correction]
        lines.append(f"p is adjusted for the number of comparisons ({name}); the intervals are each comparison's own.")
    return "\n".join([*lines, *rough_intervals(min(comparison.prompts for comparison in comparisons))])


def _slice(comparison: Comparison, by: str | None) -> str:
    return "" if by is None else f"{'all' if comparison.slice is None else f'{by} {comparison.slice}'}: "


def _place(comparison: Comparison, by: str | None, alone: bool) -> str:
    runs = "" if alone else f"{comparison.first} / {comparison.second}: "
    return f"{_slice(comparison, by)}{runs}{measure_name(comparison.measure)}"


def _cells(comparison: Comparison) -> list[str]:
    share = 100 * (comparison.detectable - 1)
    return [
        number(comparison.first_value, 2),
        number(comparison.second_value, 2),
        _difference(comparison.difference, comparison.difference_interval),
        f"{Estimate(comparison.ratio, comparison.ratio_interval):3}",
        f"{Estimate(comparison.ratio, comparison.price_interval):i3}" or "-",
        "<0.001" if comparison.p_adjusted < 0.001 else number(comparison.p_adjusted, 3),
        "-" if math.isnan(share) else f"{share:.2g} %" if share < 100 else f"{share:.0f} %",
    ]


def _difference(value: float, interval: Interval) -> str:
    if math.isnan(value):
        return "-"
    return f"{value:+.2f} [{interval.low:+.2f}, {interval.high:+.2f}]" if is_known(interval) else f"{value:+.2f}"
