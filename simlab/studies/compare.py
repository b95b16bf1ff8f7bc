"""Two results, traces, drafters, machines or policies compared on the same prompts, by paired tests."""

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import ClassVar

from simlab.analysis.compare.comparisons import Comparison, compare_runs, headline_measure
from simlab.analysis.compare.verdicts import (
    comparison_notes,
    comparison_table,
    comparisons_html,
    verdict_sentence,
    verdicts_text,
)
from simlab.analysis.table.prompt_sums import PolicyRun, shared_runs
from simlab.analysis.table.text import sentences_html, within_width
from simlab.errors import UsageError, named_or_listed
from simlab.options import by_option, limit_option, option, policies_option, study
from simlab.policies.parsing.parse import label_of, parse_policies
from simlab.policy import GivenPolicies, GivenPolicy, given_policies
from simlab.studies.inputs.artefacts import PricedPolicies, TraceArtefacts, largest_budget
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
class _Wanted:
    """What was asked of one of the two sources.

    Attributes:
        source: a result file, a trace, or a table.
        policies: as they were given; none: all of a result file, or `WITHOUT_CHOICE` of a trace.
        kind: ``predicted`` or ``measured``; None: whichever there is.
        prices: of a result file the cost id, of a trace a cost file; None: whichever there are.
        draft: of a trace the draft set; None: the only one.
        limit: of a trace, the first prompts only.
    """

    source: Source
    policies: tuple[GivenPolicy, ...]
    kind: str | None = None
    prices: str | None = None
    draft: str | None = None
    limit: int | None = None

    @property
    def name(self) -> str:
        """What the source is called in sentences."""
        if isinstance(self.source, ReplayTable):
            return f"replay of {self.source.trace.place}"
        return self.source.place if isinstance(self.source, Trace) else str(self.source)


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

    def of(self, label: str) -> Results:
        """The rows of the policy of that label."""
        return self.rows.filter(self.rows["policy"] == label)

    def plain(self) -> Results:
        """The rows of plain decoding."""
        return self.rows.filter(self.rows["name"] == "ar")


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

    def to_json(self) -> dict[str, object]:
        """The value that ``simlab compare --json`` prints."""
        return {
            **{letter: source.heading for letter, source in zip("AB", self.sources, strict=False)},
            "measure": self.measure,
            "verdicts": [verdict_sentence(one) for one in self.of_measure],
            "left_out": {
                name: [list(prompt) for prompt in prompts] for name, prompts in self.left_out.items() if prompts
            },
            "rows": [comparison.row() for comparison in self.comparisons],
        }

    def text(self) -> str:
        """The verdicts and the table as ``simlab compare`` prints them."""
        of_measure = self.of_measure
        rows = of_measure if len(of_measure) > 1 else self.comparisons
        heading = [f"{letter}  {source.heading}" for letter, source in zip("AB", self.sources, strict=False)]
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
        heading = "\n".join(f"{letter}  {source.heading}" for letter, source in zip("AB", self.sources, strict=False))
        table = comparisons_html(self.comparisons, self.measure, self.by, self.correction)
        return f"{sentences_html(heading)}\n{table}"


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
    policies = given_policies(options.policies)
    rivals = policies if options.against is None else (options.against,)
    sides = ((options.first, policies), (options.first if options.second is None else options.second, rivals))
    rows_a, rows_b = (
        _rows_of(
            _Wanted(
                source,
                given,
                options.kind,
                _of_side(options.cost, side),
                _of_side(options.draft_set, side),
                options.limit,
            )
        )
        for side, (source, given) in enumerate(sides)
    )
    pairs = _pairs(rows_a, rows_b, same, bool(policies), options.against is not None)
    runs, places = _runs(rows_a, rows_b, pairs, same)
    shared, left_out = shared_runs(runs)
    comparisons = tuple(compare_runs(shared, places, options.by, options.correction))
    if not comparisons:
        raise UsageError("there is no prompt that both have, with the same turns and samples; nothing can be compared")
    chosen = options.measure or headline_measure(comparisons)
    if chosen not in {comparison.measure for comparison in comparisons}:
        raise UsageError(f"--measure {chosen} needs latencies of both, and there are none")
    sources = (rows_a,) if same else (rows_a, rows_b)
    return ComparisonTable(sources, comparisons, chosen, left_out, options.by, options.correction)


def _of_side(values: Sequence[str], side: int) -> str | None:
    return values[min(side, len(values) - 1)] if values else None


def _rows_of(wanted: _Wanted) -> ComparedRows:
    """The rows of a result, or of a trace replayed under the policies."""
    source = wanted.source
    if isinstance(source, ReplayTable):
        return _of_results(wanted, source.rows)
    if not isinstance(source, Trace) and (file := results_of(source)).is_file():
        return _of_results(wanted, read_results(file))
    return _of_trace(wanted, source if isinstance(source, Trace) else open_trace(source))


def _of_results(wanted: _Wanted, everything: Results) -> ComparedRows:
    if wanted.draft is not None or wanted.limit is not None:
        raise UsageError(f"--draft-set and --limit are for traces; {wanted.name} is a result file")
    if everything.is_empty():
        raise UsageError(f"{wanted.name} holds no rows")
    rows = everything if wanted.kind is None else everything.filter(everything["kind"] == wanted.kind)
    kinds = sorted(set(rows["kind"]))
    if len(kinds) != 1:
        there = "both predicted and measured rows; choose with --kind" if kinds else f"no {wanted.kind} rows"
        raise UsageError(f"{wanted.name} holds {there}")
    if wanted.prices is not None:
        rows = rows.filter(rows["cost_id"].eq_missing(wanted.prices))
    ids = list(rows["cost_id"].unique(maintain_order=True))
    if len(ids) != 1:
        listed = ", ".join(str(one) for one in everything["cost_id"].unique(maintain_order=True))
        raise UsageError(f"{wanted.name} holds rows of the latency profiles {listed}; choose one with --cost ID")
    parts = [wanted.name, kinds[0], *([] if ids[0] is None else [f"latency profile {ids[0]}"])]
    return ComparedRows(", ".join(parts), rows, _labels(rows, wanted))


def _of_trace(wanted: _Wanted, trace: Trace) -> ComparedRows:
    if wanted.kind == "measured":
        raise UsageError(f"{wanted.name} is no result file, and a replay measures nothing; leave out --kind")
    draft = trace.draft_name(wanted.draft)
    prices = prices_for_trace(None if wanted.prices is None else Path(wanted.prices), trace, draft, wanted.limit)
    policies = parse_policies(wanted.policies or WITHOUT_CHOICE, TraceArtefacts(prices, trace, draft))
    prices = prices.reaching(largest_budget(policies, trace.manifest.draft_sets[draft].depth))
    plain = [
        policy for policy in parse_policies(["ar"]) if policy.policy_id not in {each.policy_id for each in policies}
    ]
    machine = PricedPolicies(prices, (*plain, *policies))
    rows = replay_trace(trace, draft, [machine], wanted.limit, ReplayRun(best_budgets=False))
    heading = f"{wanted.name}, replayed, draft set {draft}"
    return ComparedRows(
        f"{heading}, latency profile {prices.heading}", rows, tuple(policy.label for policy in policies)
    )


def _labels(rows: Results, wanted: _Wanted) -> tuple[str, ...]:
    """Those that were asked for, or all but references and bounds."""
    table = list(rows.select("policy", "name").unique(maintain_order=True).iter_rows())
    there = [label for label, _ in table]
    asked = tuple(label_of(one) for one in wanted.policies)
    for label in asked:
        if label not in there:
            listed = f"it has {', '.join(there)}"
            raise UsageError(f"{wanted.name} has no policy `{label}`{named_or_listed(label, there, listed)}")
    return asked or tuple(label for label, name in table if name not in _NO_POLICIES)


def _runs(
    first: ComparedRows, second: ComparedRows, pairs: Sequence[tuple[str, str]], same: bool
) -> tuple[list[PolicyRun], list[tuple[int, int]]]:
    """Each policy of each source once, and the pairs by their places in the list."""
    runs: dict[str, PolicyRun] = {}
    for labels in pairs:
        for letter, rows, label in zip("AB", (first, second), labels, strict=True):
            name = _run_name(letter, label, same)
            runs.setdefault(name, PolicyRun(name, rows.of(label), rows.plain()))
    order = list(runs)
    places = [
        (order.index(_run_name("A", one, same)), order.index(_run_name("B", other, same))) for one, other in pairs
    ]
    return list(runs.values()), places


def _run_name(letter: str, label: str, same: bool) -> str:
    return label if same else f"{label} ({letter})"


def _left_out_text(name: str, prompts: Sequence[tuple[str, str]]) -> str:
    listed = ", ".join("/".join(prompt) for prompt in prompts[:_MOST_NAMED])
    more = f" and {len(prompts) - _MOST_NAMED} more (all with --json)" if len(prompts) > _MOST_NAMED else ""
    return f"Left out, not in all with the same turns and samples: {len(prompts)} of {name}: {listed}{more}."


def _pairs(first: ComparedRows, second: ComparedRows, same: bool, chosen: bool, against: bool) -> list[tuple[str, str]]:
    """Pair the policies of the first source with those of the second.

    Args:
        first: rows of a source.
        second: another, or the same again.
        same: whether it is the same.
        chosen: whether policies were asked for.
        against: whether all are held against the one policy of the second.
    """
    ours, theirs = first.labels, second.labels
    if against and len(theirs) != 1:
        raise UsageError(f"--against takes one policy; got {', '.join(theirs)}")
    if against:
        return [(our, theirs[0]) for our in ours if not (same and our == theirs[0] and len(ours) > 1)]
    if same:
        if len(ours) < 2 or (len(ours) > 2 and not chosen):
            raise UsageError(
                f"{first.heading} has the policies {', '.join(ours)}; name those to compare: -p ONE -p OTHER, or "
                "-p ONE --against OTHER"
            )
        return [(ours[0], other) for other in ours[1:]]
    if len(ours) == len(theirs) == 1:
        return [(ours[0], theirs[0])]
    found = [(our, our) for our in ours if our in theirs]
    if not found:
        raise UsageError(
            f"no policy is in both: A has {', '.join(ours)}, B has {', '.join(theirs)}; name one of each: "
            "-p ONE --against OTHER"
        )
    return found
