"""The tables of a paper: policies by data sets, paired comparisons, and what ``simlab optimize`` chose.

Bold is computed, never typed: in each column the highest value, and each other that a paired test over the same prompts
does not tell from it. Oracle upper bounds are no policies and never bold.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

import polars as pl

from simlab.analysis.compare.comparisons import POWERS, Comparison
from simlab.analysis.export.batch_choices import against_first
from simlab.analysis.export.tables import Cell, ExportTable
from simlab.analysis.statistics.intervals import UNKNOWN, Interval, rough_intervals
from simlab.analysis.statistics.slices import SLICES, split_by_slice
from simlab.analysis.table.summaries import BASELINE, Summary, summarise
from simlab.analysis.table.text import SPEEDS, SPEEDUP, ends, is_known, number
from simlab.errors import TraceError, UsageError, enumerated, named_or_listed
from simlab.policies import POLICIES
from simlab.traces.artefacts.optimum import Optimum
from simlab.traces.results.rows import BOUNDS, HINDSIGHT

POLICY, NOTHING, ALL = "policy", "none", "all"

MEASURES: Mapping[str, tuple[str, str, int]] = {
    "acceptance_length": ("length", "Acceptance length (length): tokens committed per round, bonus token included", 2),
    "acceptance_length_macro": ("macro", "Macro average (macro): the mean of each response's own acceptance length", 2),
    "speedup": ("speedup", "Speedup over autoregressive decoding", 2),
    "tokens_per_s": ("tokens/s", "Tokens per second", 1),
    "nodes_per_round": ("drafted", "Drafted tokens per round (drafted)", 1),
    "accepted_per_verified": ("accepted", "Accepted per verified token (accepted)", 3),
}
"""What a table may show: the heading of its column, what it is, and its decimals."""

_SIZES = ("budget", "length", "max_budget")
_BOLD = (
    "Bold: the highest of a {line}, and every other that does not differ significantly from it (paired over prompts, "
    "5 %, Holm{prices})."
)
_BOLD_PRICES = "; speeds also beyond the noise of the latency profile"
_ORACLE = "Below the line: oracle upper bounds, which know the target's text."
_IN_FILE = re.compile(r".+\.py:([^:]+(?::.*)?)", re.DOTALL)
"""A policy of a file: its class and settings."""

_SPEED_MEASURES = ("speedup", "tokens_per_s")


@dataclass(frozen=True, slots=True)
class PaperOptions:
    """How the table of results is laid out.

    Attributes:
        rows: ``policy``, or a slice: ``dataset``, ``context``, ``turn``.
        columns: as that, or ``none``: all prompts together.
        show: of `MEASURES`; empty: the acceptance length, and the speedup where it is known.
        labels: what policies and slices are called, by what they are called in the results.
        intervals: whether 95 % intervals stand behind the numbers that have some.
    """

    rows: str = POLICY
    columns: str = NOTHING
    show: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    intervals: bool = False

    def __post_init__(self) -> None:
        for measure in self.show:
            if measure not in MEASURES:
                raise UsageError(f"there is no measure `{measure}`{named_or_listed(measure, MEASURES, _LISTED)}")
        if len(set(self.show)) < len(self.show):
            raise UsageError(f"a measure is shown once; got {', '.join(self.show)}")
        if (self.rows == POLICY) == (self.columns == POLICY):
            raise UsageError("policies stand in the rows or in the columns, and something else in the other")


_LISTED = f"the measures are {', '.join(MEASURES)}"


def labels_of(typed: Sequence[str], names: Sequence[str]) -> dict[str, str]:
    """What is called how: ``NAME=WHAT IT IS CALLED``, where a name may hold ``=`` itself.

    Raises:
        UsageError: a text begins with none of the names.

    >>> labels_of(["ddtree:budget=16=DDTree (16)"], ["ddtree:budget=16", "chain"])
    {'ddtree:budget=16': 'DDTree (16)'}
    """
    labels = {}
    for text in typed:
        fitting = [name for name in names if text.startswith(f"{name}=") and len(text) > len(name) + 1]
        if not fitting:
            meant, listed = text.rpartition("=")[0] or text, f"the results hold {', '.join(names)}"
            raise UsageError(
                f"--labels {text!r} names nothing of these results{named_or_listed(meant, names, listed)}; write "
                "NAME=LABEL, such as 'ddtree:budget=16=DDTree (16)'"
            )
        name = max(fitting, key=len)
        labels[name] = text[len(name) + 1 :]
    return labels


def slice_names(rows: pl.DataFrame) -> list[str]:
    """What slices of some rows are called, and all of them together."""
    return [*(str(value) for by in SLICES for value, _ in split_by_slice(rows, by)), ALL]


def default_label(policy: str) -> str:
    """What a policy or bound is called where nobody says so: its class, and the size of its tree.

    Args:
        policy: its label in the results.

    >>> default_label("ddtree:budget=16"), default_label("hindsight:best<=16")
    ('DDTree (16)', 'Oracle budgets (up to 16)')
    >>> default_label("runs/mine.py:Wide:width=2,fast=true")
    'Wide (width=2, fast=true)'
    """
    in_file = _IN_FILE.fullmatch(policy)
    name, _, settings = (policy if in_file is None else in_file[1]).partition(":")
    if policy in ("autoregressive", BASELINE):
        return "Autoregressive"
    if name == HINDSIGHT:
        kind, _, size = settings.partition("=")
        of = {"budget": f"Oracle tree ({size})", "best<": f"Oracle budgets (up to {size})"}
        return of.get(kind, "Oracle routes")
    pairs = [pair.partition("=") for pair in re.findall(r'(?:"(?:[^"\\]|\\.)*"|[^,])+', settings)]
    shown = [value if key in _SIZES else f"{key}={value}" for key, _, value in pairs]
    return f"{_class_name(name)} ({', '.join(shown)})" if shown else _class_name(name)


def _class_name(name: str) -> str:
    """The name of a policy as its class has it, where the two differ in capitals alone."""
    class_name = getattr(POLICIES[name], "__name__", name) if name in POLICIES else name
    return class_name if class_name.lower() == name else name


def paper_tables(rows: pl.DataFrame, options: PaperOptions) -> list[ExportTable]:
    """A table of policies by slices for each kind of rows and latency profile.

    Data sets that were recorded as traces of their own stand in one table, each of one trace.

    Args:
        rows: result rows.
        options: the layout.

    Raises:
        TraceError: there are no rows.
        UsageError: a measure is not known of any policy.
    """
    if rows.is_empty():
        raise TraceError("the result file holds no rows, so there is no table; replay some policies with --out")
    slices = options.columns if options.rows == POLICY else options.rows
    texts = rows.select("dataset", "text_id", "draft_id").unique()
    by_dataset = slices in (NOTHING, "dataset") and texts.height == texts["dataset"].n_unique()
    keys = ("kind", "cost_id") if by_dataset else ("kind", "text_id", "draft_id", "cost_id")
    parts = rows.partition_by(*keys, maintain_order=True)
    return [
        _paper_table(part, options, "results" if len(parts) == 1 else f"results-{number}")
        for number, part in enumerate(parts, 1)
    ]


def _paper_table(rows: pl.DataFrame, options: PaperOptions, key: str) -> ExportTable:
    by = options.columns if options.rows == POLICY else options.rows
    parts = [] if by == NOTHING else [(str(value), part) for value, part in split_by_slice(rows, by)]
    parts += [(ALL, rows)] if len(parts) != 1 else []
    whole = summarise(rows)
    measures = _measures(options.show, whole)
    names = called([summary.policy for summary in whole], options.labels)
    cells = {name: _cells(part, list(names), measures, options.intervals) for name, part in parts}
    slices = [(name, options.labels.get(name, name)) for name, _ in parts]
    ordered = [
        *(summary for summary in whole if summary.name not in BOUNDS),
        *(summary for summary in whole if summary.name in BOUNDS),
    ]
    policies = [(summary.policy, names[summary.policy]) for summary in ordered]
    heads = [MEASURES[measure][0] for measure in measures]
    num_policies = sum(summary.name not in BOUNDS for summary in whole)
    if options.rows == POLICY:
        over = slices if len(slices) > 1 else [(slices[0][0], "")]
        table_heads = [(name, head) for _, name in over for head in heads]
        body = [(name, tuple(chain(*(cells[column][label] for column, _ in over)))) for label, name in policies]
        rules = (num_policies,) if 0 < num_policies < len(whole) else ()
        corner = "policy"
    else:
        table_heads = [(name, head) for _, name in policies for head in heads]
        body = [(name, tuple(chain(*(cells[column][label] for label, _ in policies)))) for column, name in slices]
        rules = (len(body) - 1,) if slices[-1][0] == ALL and len(body) > 1 else ()
        corner = by
    if len(heads) == 1 and any(first for first, _ in table_heads):
        table_heads = [("", first) for first, _ in table_heads]
    return ExportTable(
        corner=corner,
        heads=tuple(table_heads),
        rows=tuple(body),
        rules=rules,
        caption=_caption(rows, whole, measures, options, any(cell.is_bold for _, row in body for cell in row)),
        key=key,
        comment=(
            *_source(rows),
            *_notes(whole, measures),
            *(_policy_line(summary, names) for summary in ordered),
        ),
    )


def _measures(asked: Sequence[str], summaries: Sequence[Summary]) -> tuple[str, ...]:
    timed = any(summary.speed.seconds is not None for summary in summaries)
    for measure in asked:
        if measure in _SPEED_MEASURES and not timed:
            raise UsageError(f"--show {measure} needs latencies, and these rows have none; replay with --cost")
    return tuple(asked) or ("acceptance_length", *(["speedup"] if timed else []))


def _cells(
    rows: pl.DataFrame, policies: Sequence[str], measures: Sequence[str], with_intervals: bool
) -> dict[str, list[Cell]]:
    """The values of each policy on one slice; dashes where it has none.

    Of other texts nothing can be compared, and a mean over some of the data sets is none over all, so policies that did
    not see every text of the slice have dashes too.
    """
    summaries = summarise(rows)
    complete = [summary for summary in summaries if summary.sequences == max(other.sequences for other in summaries)]
    best = {measure: _best(rows, complete, measure) if measure in POWERS else set() for measure in measures}
    cells = {policy: [Cell("-")] * len(measures) for policy in policies}
    for summary in complete:
        values = [(measure, *value_of(summary, measure)) for measure in measures]
        cells[summary.policy] = [
            Cell(
                number(value, MEASURES[measure][2]),
                ends(interval) if with_intervals and is_known(interval) else "",
                summary.policy in best[measure],
            )
            for measure, value, interval in values
        ]
    return cells


def _best(rows: pl.DataFrame, complete: Sequence[Summary], measure: str) -> set[str]:
    """The highest of a measure, and those that the prompts do not tell from it; empty where nothing is known."""
    values = {summary.policy: value_of(summary, measure)[0] for summary in complete if summary.name not in BOUNDS}
    known = sorted((label for label in values if not math.isnan(values[label])), key=lambda label: -values[label])
    comparisons = against_first(rows, known, measure)
    if not comparisons or not all(comparison.is_known or comparison.equal for comparison in comparisons):
        return set()
    return {known[0], *(comparison.second for comparison in comparisons if not comparison.differs)}


def value_of(summary: Summary, measure: str) -> tuple[float, Interval]:
    """A number of a summary and its interval over prompts, as far as they are known."""
    totals, speed = summary.totals, summary.speed
    return {
        "acceptance_length": (totals.acceptance_length, summary.interval),
        "acceptance_length_macro": (summary.acceptance_length_macro, UNKNOWN),
        "speedup": (speed.speedup, speed.interval),
        "tokens_per_s": (speed.tokens_per_s, UNKNOWN),
        "nodes_per_round": (totals.nodes_per_round, UNKNOWN),
        "accepted_per_verified": (totals.accepted_per_verified, UNKNOWN),
    }[measure]


def called(policies: Sequence[str], labels: Mapping[str, str]) -> dict[str, str]:
    """What policies are called, by their labels in the results; where two would be the same, as in the results."""
    names = {policy: default_label(policy) for policy in policies}
    every = list(names.values())
    return {policy: labels.get(policy, name if every.count(name) == 1 else policy) for policy, name in names.items()}


def _caption(
    rows: pl.DataFrame, summaries: Sequence[Summary], measures: Sequence[str], options: PaperOptions, has_bold: bool
) -> str:
    prompts = rows.select("dataset", "prompt_id").n_unique()
    kind = "predicted" if rows["kind"][0] == "predicted" else "measured"
    titles = [MEASURES[measure][1] + (f", {kind}" if measure in _SPEED_MEASURES else "") for measure in measures]
    titles = [titles[0], *(f"{title[:1].lower()}{title[1:]}" for title in titles[1:])]
    parts = [f"{'; '.join(titles)}; {prompts} prompts."]
    parts += ["In brackets 95 % intervals over prompts."] if options.intervals else []
    if has_bold:
        line = "column" if options.rows == POLICY else "row"
        prices = _BOLD_PRICES if kind == "predicted" and any(measure in _SPEED_MEASURES for measure in measures) else ""
        parts.append(_BOLD.format(line=line, prices=prices))
    parts += [_ORACLE] if options.rows == POLICY and any(summary.name in BOUNDS for summary in summaries) else []
    return " ".join(parts)


def _source(rows: pl.DataFrame) -> list[str]:
    """Which texts, drafters and latency profile some rows rest on."""
    kind = "Predicted by replay" if rows["kind"][0] == "predicted" else "Measured on the real models"
    counts = rows.group_by("dataset", maintain_order=True).agg(pl.col("prompt_id").n_unique())
    sets = ", ".join(f"{dataset} {prompts}" for dataset, prompts in counts.iter_rows())
    ids = [
        f"{title} {', '.join(sorted(map(str, rows[column].drop_nulls().unique())))}"
        for title, column in (("text", "text_id"), ("draft set", "draft_id"), ("latency profile", "cost_id"))
        if rows[column].drop_nulls().len()
    ]
    prompts = rows.select("dataset", "prompt_id").n_unique()
    return [
        f"{kind}; {prompts} prompts ({sets}), {rows.select('text_id', 'sequence').n_unique()} sequences",
        *ids,
        f"simlab {', '.join(sorted(set(rows['simlab_version'])))}",
    ]


def _notes(summaries: Sequence[Summary], measures: Sequence[str]) -> list[str]:
    notes = [SPEEDS[summaries[0].kind], SPEEDUP] if any(measure in _SPEED_MEASURES for measure in measures) else []
    return [*notes, *rough_intervals(min(summary.prompts for summary in summaries))]


def _policy_line(summary: Summary, names: Mapping[str, str]) -> str:
    return f"{names[summary.policy]}: {summary.policy} ({summary.policy_id})"


def comparison_table(comparisons: Sequence[Comparison], labels: Mapping[str, str]) -> ExportTable:
    """Paired comparisons of one measure: both values, the ratio with its interval, and the adjusted p-value.

    Args:
        comparisons: at least one.
        labels: what policies are called.
    """
    measure, seconds = comparisons[0].measure, list(dict.fromkeys(comparison.second for comparison in comparisons))
    head, title, digits = MEASURES.get(measure, (measure, measure.replace("_", " "), 2))
    names = called(
        list(dict.fromkeys(label for comparison in comparisons for label in (comparison.first, comparison.second))),
        labels,
    )
    against = names[seconds[0]]
    rows = []
    for comparison in comparisons:
        name, other = names[comparison.first], names[comparison.second]
        name = name if len(seconds) == 1 else f"{name} against {other}"
        name = name if comparison.slice is None else f"{name}, {comparison.slice}"
        cells = (
            Cell(number(comparison.first_value, digits)),
            Cell(number(comparison.second_value, digits)),
            Cell(number(comparison.ratio, 3), _exact_ends(comparison.ratio_interval), comparison.differs),
            Cell(_p_value(comparison.p_adjusted)),
        )
        rows.append((name, cells))
    shown = against if len(seconds) == 1 else "the other"
    prompts = enumerated(list(dict.fromkeys(str(comparison.prompts) for comparison in comparisons)))
    caption = (
        f"{title}; paired over {prompts} prompts{f', against {against}' if len(seconds) == 1 else ''}. In brackets 95 "
        "% intervals over prompts; p adjusted for the number of comparisons. Bold: significant."
    )
    heads = (("", head), ("", shown), ("", "ratio"), ("", "p"))
    ids = [
        f"{comparison.first} against {comparison.second}: {comparison.prompts} prompts, family of {comparison.family}"
        for comparison in comparisons
    ]
    return ExportTable("policy", heads, tuple(rows), (), caption, "comparison", tuple(ids))


def _exact_ends(interval: Interval) -> str:
    return f"[{interval.low:.3f}, {interval.high:.3f}]" if is_known(interval) else ""


def _p_value(value: float) -> str:
    return "-" if math.isnan(value) else "<0.001" if value < 0.001 else f"{value:.3f}"


def choice_table(optimum: Optimum, labels: Mapping[str, str]) -> ExportTable:
    """What was chosen, its rivals and the references, on the prompts of the report.

    Args:
        optimum: the choice.
        labels: what policies are called.
    """
    rows = []
    first = [row for row in optimum.rows if row.get("cost_id") == optimum.rows[0].get("cost_id")]
    names = called([str(row.get("policy")) for row in first], labels)
    for row in first:
        label = str(row.get("policy"))
        cells = []
        for name in ("evaluation_acceptance_length", "evaluation_speedup"):
            value, low, high = (_float(row, key) for key in (name, f"{name}_ci_low", f"{name}_ci_high"))
            interval = "" if math.isnan(low) else ends(Interval(low, high))
            cells.append(Cell(number(value, 2), interval, label == optimum.best.policy))
        rows.append((names[label], tuple(cells)))
    caption = (
        f"{optimum.searched:,} policies searched on {optimum.chosen_on.prompts} prompts, reported on "
        f"{optimum.reported_on.prompts} others; in brackets 95 % intervals over prompts. Bold: the policy that was "
        f"chosen. {optimum.verdict[:1].upper()}{optimum.verdict[1:]}"
    )
    comment = [
        f"chosen on text {optimum.chosen_on.text_id}, reported on text {optimum.reported_on.text_id}",
        *(f"latency profile {cost_id}" for cost_id in optimum.cost_ids),
        f"simlab {optimum.simlab_version}",
    ]
    return ExportTable("policy", (("", "length"), ("", "speedup")), tuple(rows), (), caption, "choice", tuple(comment))


def _float(row: Mapping[str, object], name: str) -> float:
    value = row.get(name)
    return float(value) if isinstance(value, int | float) else math.nan
