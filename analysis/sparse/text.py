"""What sparse logs predict, as people read it."""

import math
from collections.abc import Sequence

from simlab.analysis.compare.comparisons import Comparison
from simlab.analysis.compare.verdicts import measure_name
from simlab.analysis.sparse.logs import MEAN, NEAREST
from simlab.analysis.sparse.table import DENSE, MEASURED, SparseChoice, SparseFigure, SparseLog, borrowed_row
from simlab.analysis.statistics.intervals import FEW_PROMPTS
from simlab.analysis.table.text import aligned, number

_SHOWN = ("tokens_per_s", "acceptance_length")
_SOURCES = {DENSE: "dense", MEAN: "mean over rows", NEAREST: "nearest row", MEASURED: "measured"}

NOTES = (
    "starts recorded: the share of the policy's rounds that begin at a recorded root.",
    "mean over rows: its trees at the recorded roots, averaged as if its rounds began there.",
    "nearest row: its rounds one after the other, each with the recorded row nearest to its root.",
    "Shares are against the dense prediction, on the same prompts; [95 %] over prompts, each its own;",
    "* significant among all of the same log and measure (p-values adjusted by Holm), and beyond the noise of the",
    "latency profile, which is in the JSON as the price interval of each ratio.",
)


def sparse_text(log: SparseLog, figures: Sequence[SparseFigure], choices: Sequence[SparseChoice]) -> str:
    """The tables of one recorded policy, and which policy each source would have chosen."""
    share = 100 * log.num_rows / log.num_roots
    title = f"recorded only where rounds of {log.policy} begin: {log.num_rows:,} of {log.num_roots:,} roots"
    parts = [f"{title} ({share:.0f} %)"]
    for measure in _SHOWN:
        some = [one for one in figures if one.measure == measure]
        if some:
            parts += [_table(some, measure), _gains(some, measure)]
            parts.append("\n".join(_choice(one) for one in choices if one.measure == measure))
    parts.append(_borrowed(log))
    return "\n\n".join(part for part in parts if part)


def sparse_notes(figures: Sequence[SparseFigure]) -> str:
    """What to know beside the tables."""
    lines = [*NOTES]
    if any(one.against_measured for one in figures):
        lines.append(
            "Against measured is the dense prediction's; it has the errors of the latency profile and of the runner's "
            "text."
        )
    if figures and min(one.prompts for one in figures) < FEW_PROMPTS:
        lines.append(f"Fewer than {FEW_PROMPTS} prompts: the intervals are rough.")
    return "\n".join(lines)


def _table(figures: Sequence[SparseFigure], measure: str) -> str:
    ran = any(one.against_measured for one in figures)
    heads = [measure_name(measure), "starts", "dense", "mean", "", "nearest", ""]
    under = ["", "recorded", "trace", "over rows", "% [95 %]", "row", "% [95 %]"]
    if ran:
        heads, under = [*heads, "measured", "dense"], [*under, "", "against it, %"]
    cells = [heads, under]
    for figure in figures:
        row = [figure.policy, f"{100 * figure.starts_recorded:.0f} %", number(figure.values[DENSE], 2)]
        for name in (MEAN, NEAREST):
            row += [number(figure.values.get(name, math.nan), 2), _off(figure.against_dense.get(name))]
        if ran:
            row += [number(figure.values[MEASURED], 2), _off(figure.against_measured.get(DENSE), mark=False)]
        cells.append(row)
    return aligned(cells, [place in (0, 4, 6, 8) for place in range(len(heads))])


def _gains(figures: Sequence[SparseFigure], measure: str) -> str:
    others = [one for one in figures if one.gains]
    if not others:
        return ""
    sources = [name for name in _SOURCES if any(name in one.gains for one in others)]
    heads = [f"{measure_name(measure)} over {others[0].recorded}, %", *(_SOURCES[name] for name in sources)]
    cells = [[one.policy, *(_off(one.gains.get(name), mark=False) for name in sources)] for one in others]
    return aligned([heads, *cells], [True] * len(heads))


def _borrowed(log: SparseLog) -> str:
    """Tokens of rounds that begin at no recorded root, by the nearest row and in truth."""
    heads = [
        "rounds at no recorded root",
        "nearest row",
        "its tokens",
        "their own",
        "nearest row",
        "its tokens",
        "their own",
    ]
    cells = [heads, ["", "is earlier", "/round", "/round", "is later", "/round", "/round"]]
    for policy in (one for one in log.borrowed if one != log.policy):
        row = borrowed_row(log, policy)
        values = [policy]
        for place in ("earlier", "later"):
            values.append(f"{row[f'{place}_rounds']:,}")
            means = (row[f"{place}_borrowed"], row[f"{place}_own"])
            values += ["-" if one is None else f"{one:.2f}" for one in means]
        cells.append(values)
    return aligned(cells, [True, *[False] * 6]) if len(cells) > 2 else ""


def _choice(one: SparseChoice) -> str:
    lost = "" if one.lost_share <= 0 else f", {100 * one.lost_share:.1f} % behind the best by the dense prediction"
    return f"best by {measure_name(one.measure)}, {_SOURCES[one.source]}: {one.policy}{lost}"


def _off(comparison: Comparison | None, mark: bool = True) -> str:
    """How far a ratio is from 1, in per cent."""
    if comparison is None or math.isnan(comparison.ratio):
        return "-"
    if comparison.equal:
        return "exact" if mark else "0.0"
    low, high = comparison.ratio_interval.low, comparison.ratio_interval.high
    ends = "" if math.isnan(low) else f" [{100 * (low - 1):+.1f}, {100 * (high - 1):+.1f}]"
    return f"{100 * (comparison.ratio - 1):+.1f}{ends}{' *' if mark and comparison.differs else ''}"
