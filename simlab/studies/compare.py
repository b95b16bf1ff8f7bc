"""Two results, traces, drafters, machines or policies compared on the same prompts, by paired tests."""

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import ClassVar

from simlab.analysis.compare.comparisons import Comparison, compare_runs, headline_measure
from simlab.analysis.compare.verdicts import (
    comparison_cells,
    comparison_notes,
    comparison_table,
    verdict_sentence,
    verdicts_text,
)
from simlab.analysis.table.prompt_sums import PolicyRun, shared_runs
from simlab.analysis.table.text import cells_html, sentences_html, within_width
from simlab.errors import UsageError, named_or_listed
from simlab.options import by_option, limit_option, option, policies_option, study
from simlab.policies.parsing.parse import label_of, parse_policies
from simlab.policy import GivenPolicies, GivenPolicy, given_policies
from simlab.studies.inputs.artefacts import PoliciesOnMachine, TraceArtefacts, largest_budget
from simlab.studies.inputs.prices import prices_for_trace
from simlab.studies.replay.replay import ReplayTable
from simlab.studies.replay.run import ReplayRun, replay_trace
from simlab.studies.result import StudyResult
from simlab.traces.artefacts.confirmation import results_of
from simlab.traces.reader import Trace, open_trace
from simlab.traces.results.files import read_results
from simlab.traces.results.rows import BOUNDS, Results

Source = str | Path | Trace | ReplayTable
"""A result file, a trace (its place, or opened), or the table of a replay."""

WITHOUT_CHOICE = ("chain", "ddtree:budget=16")
"""What traces are replayed under where no policy is named."""

_NO_POLICIES = ("ar", *BOUNDS)
"""Names of rows that are a reference or a bound; they are compared only if they are asked for."""

_MOST_NAMED = 5
"""Prompts that were left out are named in the text up to so many; all are in the JSON."""


@dataclass(frozen=True, slots=True, eq=False)
class ComparedRows:
    """Result rows of one kind, at one machine's prices.

    Attributes:
        heading: what they are, in a line.
        rows: of all policies of the source.
        labels: of the policies that are to be compared.
    """

    heading: str
    rows: Results
    labels: tuple[str, ...]


@dataclass(frozen=True, eq=False, repr=False)
class ComparisonTable(StudyResult):
    """Paired comparisons on the prompts that both sides have.

    Attributes:
        sources: one, or two.
        comparisons: of every measure, and of every slice.
        measure: what the verdict is about.
        left_out: prompts of each run that another has not.
        by: what the comparisons are cut by; None: nothing.
        correction: of a family, ``holm`` or ``bh``.
    """

    sources: tuple[ComparedRows, ...]
    comparisons: tuple[Comparison, ...]
    measure: str
    left_out: Mapping[str, Sequence[tuple[str, str]]]
    by: str | None
    correction: str

    PICTURES: ClassVar[str] = "simlab.studies.plot:comparison_pictures"

    @property
    def exported(self) -> list[Comparison]:
        """The comparisons that the verdict is about, which `simlab.export` makes a table of."""
        return self.of_measure

    @property
    def of_measure(self) -> list[Comparison]:
        """The comparisons that the verdict is about."""
        return [comparison for comparison in self.comparisons if comparison.measure == self.measure]

    @property
    def shown(self) -> Sequence[Comparison]:
        """The comparisons of the table: of a single pair every measure, else those that the verdict is about."""
        return self.of_measure if len(self.of_measure) > 1 else self.comparisons

    def to_json(self) -> dict[str, object]:
        """The value that ``simlab compare --json`` prints."""
        return {
            **{letter: source.heading for letter, source in zip("AB", self.sources, strict=False)},
            "measure": self.measure,
            "verdicts": [verdict_sentence(comparison) for comparison in self.of_measure],
            "left_out": {
                name: [list(prompt) for prompt in prompts] for name, prompts in self.left_out.items() if prompts
            },
            "rows": [comparison.row() for comparison in self.comparisons],
        }

    def text(self) -> str:
        """The verdicts and the table as ``simlab compare`` prints them."""
        of_measure, rows = self.of_measure, self.shown
        heading = self._headings()
        texts = [set(source.rows["text_id"]) for source in self.sources]
        if texts[0] != texts[-1]:
            heading.append("A and B have different texts on the same prompts.")
        heading += [_left_out_text(name, prompts) for name, prompts in self.left_out.items() if prompts]
        parts = [
            within_width("\n".join(heading)),
            verdicts_text(of_measure, self.by),
            comparison_table(rows, self.by),
            comparison_notes(rows, self.correction),
        ]
        return "\n\n".join(parts)

    def _repr_html_(self) -> str:
        heading, table = sentences_html("\n".join(self._headings())), cells_html(comparison_cells(self.shown, self.by))
        verdicts, notes = verdicts_text(self.of_measure, self.by), comparison_notes(self.shown, self.correction)
        return f"{heading}\n<div>\n{sentences_html(verdicts)}\n{table}\n{sentences_html(notes)}\n</div>"

    def _headings(self) -> list[str]:
        """What each source is, in a line."""
        return [f"{letter}  {source.heading}" for letter, source in zip("AB", self.sources, strict=False)]


@dataclass(frozen=True)
class CompareOptions:
    """What is compared with what."""

    DETAILS: ClassVar = """\
A and B are result files of `simlab replay --out` or `simlab confirm`, or traces, which are replayed.
Prompts that only one side has are named and left out. Where both have several policies, each
is compared with the same policy of the other side.
With A alone its policies are compared: the first -p with each of the others.
Tests are paired over prompts. Several comparisons are one family: their p-values are adjusted.

  simlab compare before.parquet after.parquet
  simlab compare results.parquet -p ddtree:budget=16 --against chain
  simlab compare runs/one runs/other -p ddtree:budget=16/32 --by dataset
  simlab compare runs/one runs/one --cost a.json --cost b.json -p caddtree"""

    first: Source = option(..., "a result file or a trace", "A", positional=True)
    policies: GivenPolicies = policies_option("a policy to compare; may be repeated")
    against: GivenPolicy | None = option(None, "the policy of B (or of A alone) to compare them with", "POLICY")
    _: KW_ONLY
    second: Source | None = option(None, "another; without it policies of A are compared", "B", positional=True)
    measure: str | None = option(
        None,
        "measure of the verdict (default: tokens_per_s where both have latencies, else acceptance_length)",
        choices=("tokens_per_s", "speedup", "acceptance_length", "acceptance_length_macro"),
    )
    by: str | None = by_option("a comparison for each, and one of all")
    correction: str = option("holm", "adjustment of the p-values of a family", choices=("holm", "bh"))
    kind: str | None = option(None, "which rows to compare, where a file holds both", choices=("predicted", "measured"))
    cost: Sequence[str] = option(
        (), "for a trace a cost file, for a result file a cost id; a second one is for B", "COST", repeats=True
    )
    draft_set: Sequence[str] = option((), "the draft set of a trace; a second one is for B", "NAME", repeats=True)
    limit: int | None = limit_option("only the first N prompts of a trace")


@study(CompareOptions)
def compare(options: CompareOptions) -> ComparisonTable:
    """Compare policies of one result, or two results, on the same prompts.

    Raises:
        SimlabError: a source cannot be read, it is not clear what is meant, or no prompt is in both.
    """
    for name, values in (("cost", options.cost), ("draft-set", options.draft_set)):
        if len(values) > 2:
            raise UsageError(f"--{name} may be given twice, for A and for B; got {len(values)}")
    same = options.second is None and len(options.cost) < 2 and len(options.draft_set) < 2
    rows_a, rows_b = (_rows_of(options, side) for side in (0, 1))
    pairs = _pairs(options, rows_a, rows_b, same)
    runs, indices = _runs(rows_a, rows_b, pairs, same)
    shared, left_out = shared_runs(runs)
    comparisons = tuple(compare_runs(shared, indices, options.by, options.correction))
    if not comparisons:
        raise UsageError("there is no prompt that both have, with the same turns and samples; nothing can be compared")
    chosen = options.measure or headline_measure(comparisons)
    if chosen not in {comparison.measure for comparison in comparisons}:
        raise UsageError(f"--measure {chosen} needs latencies of both, and there are none")
    sources = (rows_a,) if same else (rows_a, rows_b)
    return ComparisonTable(sources, comparisons, chosen, left_out, options.by, options.correction)


def _of_side(values: Sequence[str], side: int) -> str | None:
    return values[min(side, len(values) - 1)] if values else None


def _rows_of(options: CompareOptions, side: int) -> ComparedRows:
    """The rows of a result, or of a trace replayed under the policies; side 0 is the first source, 1 the second."""
    source = options.first if side == 0 or options.second is None else options.second
    typed = options.policies if side == 0 or options.against is None else (options.against,)
    wanted, prices, draft = given_policies(typed), _of_side(options.cost, side), _of_side(options.draft_set, side)
    if isinstance(source, ReplayTable):
        name, rows = f"replay of {source.trace.label}", source.rows
    elif not isinstance(source, Trace) and (file := results_of(source)).is_file():
        name, rows = str(source), read_results(file)
    else:
        return _of_trace(options, source, wanted, prices, draft)
    if draft is not None or options.limit is not None:
        raise UsageError(f"--draft-set and --limit are for traces; {name} is a result file")
    return _of_results(name, rows, wanted, options.kind, prices)


def _of_results(
    name: str, everything: Results, wanted: Sequence[GivenPolicy], kind: str | None, prices: str | None
) -> ComparedRows:
    """The rows of a result that are of one kind and one latency profile."""
    if everything.is_empty():
        raise UsageError(f"{name} holds no rows")
    rows = everything if kind is None else everything.filter(everything["kind"] == kind)
    kinds = sorted(set(rows["kind"]))
    if len(kinds) != 1:
        held = "both predicted and measured rows; choose with --kind" if kinds else f"no {kind} rows"
        raise UsageError(f"{name} holds {held}")
    if prices is not None:
        rows = rows.filter(rows["cost_id"].eq_missing(prices))
    ids = list(rows["cost_id"].unique(maintain_order=True))
    if len(ids) != 1:
        listed = ", ".join(str(cost_id) for cost_id in everything["cost_id"].unique(maintain_order=True))
        raise UsageError(f"{name} holds rows of the latency profiles {listed}; choose one with --cost ID")
    parts = [name, kinds[0], *([] if ids[0] is None else [f"latency profile {ids[0]}"])]
    table = list(rows.select("policy", "name").unique(maintain_order=True).iter_rows())
    labels = [label for label, _ in table]
    asked = tuple(label_of(policy) for policy in wanted)
    for label in asked:
        if label not in labels:
            listed = named_or_listed(label, labels, f"it has {', '.join(labels)}")
            raise UsageError(f"{name} has no policy `{label}`{listed}")
    usual = tuple(label for label, row in table if row not in _NO_POLICIES)
    return ComparedRows(", ".join(parts), rows, asked or usual)


def _of_trace(
    options: CompareOptions,
    source: str | Path | Trace,
    wanted: Sequence[GivenPolicy],
    cost: str | None,
    draft_set: str | None,
) -> ComparedRows:
    trace = source if isinstance(source, Trace) else open_trace(source)
    name = trace.location if isinstance(source, Trace) else str(source)
    if options.kind == "measured":
        raise UsageError(f"{name} is no result file, and a replay measures nothing; leave out --kind")
    draft = trace.draft_name(draft_set)
    prices = prices_for_trace(None if cost is None else Path(cost), trace, draft, options.limit)
    policies = parse_policies(wanted or WITHOUT_CHOICE, TraceArtefacts(prices, trace, draft))
    prices = prices.reaching(largest_budget(policies, trace.manifest.draft_sets[draft].depth))
    plain = [
        policy for policy in parse_policies(["ar"]) if policy.policy_id not in {asked.policy_id for asked in policies}
    ]
    machine = PoliciesOnMachine(prices, (*plain, *policies))
    rows = replay_trace(trace, draft, [machine], options.limit, ReplayRun(best_budgets=False))
    heading = f"{name}, replayed, draft set {draft}, latency profile {prices.heading}"
    return ComparedRows(heading, rows, tuple(policy.label for policy in policies))


def _runs(
    first: ComparedRows, second: ComparedRows, pairs: Sequence[tuple[str, str]], same: bool
) -> tuple[list[PolicyRun], list[tuple[int, int]]]:
    """Each policy of each source once, and the pairs by their places in the list."""
    names = [(ours, theirs) if same else (f"{ours} (A)", f"{theirs} (B)") for ours, theirs in pairs]
    runs: dict[str, PolicyRun] = {}
    for labels, both in zip(pairs, names, strict=True):
        for rows, label, name in zip((first.rows, second.rows), labels, both, strict=True):
            runs.setdefault(name, PolicyRun(name, rows.filter(policy=label), rows.filter(name="ar")))
    order = list(runs)
    return list(runs.values()), [(order.index(ours), order.index(theirs)) for ours, theirs in names]


def _left_out_text(name: str, prompts: Sequence[tuple[str, str]]) -> str:
    listed = ", ".join("/".join(prompt) for prompt in prompts[:_MOST_NAMED])
    more = f" and {len(prompts) - _MOST_NAMED} more (all with --json)" if len(prompts) > _MOST_NAMED else ""
    return f"Left out, not in all with the same turns and samples: {len(prompts)} of {name}: {listed}{more}."


def _pairs(options: CompareOptions, first: ComparedRows, second: ComparedRows, same: bool) -> list[tuple[str, str]]:
    """Pair the policies of the first source with those of the second, which may be the same again."""
    ours, theirs, against = first.labels, second.labels, options.against is not None
    if against and len(theirs) != 1:
        raise UsageError(f"--against takes one policy; got {', '.join(theirs)}")
    if against:
        return [(our, theirs[0]) for our in ours if not (same and our == theirs[0] and len(ours) > 1)]
    if same:
        if len(ours) < 2 or (len(ours) > 2 and not given_policies(options.policies)):
            raise UsageError(
                f"{first.heading} has the policies {', '.join(ours)}; name those to compare: -p ONE -p OTHER, or "
                "-p ONE --against OTHER"
            )
        return [(ours[0], other) for other in ours[1:]]
    if len(ours) == len(theirs) == 1:
        return [(ours[0], theirs[0])]
    shared = [(our, our) for our in ours if our in theirs]
    if not shared:
        raise UsageError(
            f"no policy is in both: A has {', '.join(ours)}, B has {', '.join(theirs)}; name one of each: "
            "-p ONE --against OTHER"
        )
    return shared
