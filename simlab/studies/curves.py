"""Expected tokens per second by the size of the tree, at each root, and what rules lose that stop on the way."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar, Generic

import polars as pl

from simlab.analysis.curves.rows import CurveRows, CurveSetting, Found, RootScan, curve_rows, root_part, write_rows
from simlab.analysis.curves.summaries import CurveSummary, curve_summaries
from simlab.analysis.curves.tallies import CurveMachine, curve_machine
from simlab.analysis.curves.text import curves_text, unimodality_verdict, worst_example
from simlab.analysis.table.estimates import Figures
from simlab.analysis.table.text import within_width
from simlab.arrays import Longs
from simlab.channels.needs import channels_read
from simlab.cost import CostTable
from simlab.errors import CostError, PolicyError, TraceError, UsageError
from simlab.ids import VERSION
from simlab.options import (
    by_option,
    costs_option,
    draft_set_option,
    limit_option,
    option,
    out_option,
    path_or_none,
    paths,
    progress_option,
    study,
    threads_option,
    trace_option,
)
from simlab.policies.composition import order_of
from simlab.policies.costs.cell_prices import fewest_samples, half_samples
from simlab.policies.costs.curves import cost_table
from simlab.policies.engine.replay import Replay
from simlab.policies.orders.best_first import BestFirst
from simlab.policies.parsing.parse import NamedPolicy, parse_policies
from simlab.policy import AnyPolicy
from simlab.recorded import RecordedTexts
from simlab.sequence_replay import check_needs
from simlab.studies.inputs.artefacts import TraceArtefacts, in_sample_note
from simlab.studies.inputs.price_resolution import step_resolution
from simlab.studies.inputs.prices import Prices, notes_on, prices_for_trace
from simlab.studies.inputs.progress import progress_bar
from simlab.studies.inputs.trace import TraceJob, TraceSource, first_prompts, opened, trace_handle
from simlab.studies.replay.run import ROOTS_AT_ONCE
from simlab.studies.result import StudyResult
from simlab.traces.reader import Trace
from simlab.workers.on_ray import ray_options, workers_on
from simlab.workers.parts import ray_option, workers_option
from simlab.workers.threads import ignore_progress

RAW, CALIBRATED = "raw", "calibrated"

FEW_VISITS = 7
"""With fewer to a cell, draws of the prices miss much of the noise (docs/explanation/unimodality.md)."""


@dataclass(frozen=True)
class CurveInputs:
    """What was asked for, read and checked.

    Attributes:
        trace: where the texts are.
        draft: the draft set.
        wanted: the sequences.
        prices: of each machine.
        most: drafted tokens, at most.
        named: for each edge model a policy whose order of nodes is wanted.
        visits: the policy whose rounds count; None: every root.
        in_sample: labels of policies that were fitted on the very texts.
        without: why an edge model is left out; empty where none is.
    """

    trace: Trace
    draft: str
    wanted: Sequence[int]
    prices: Sequence[Prices]
    most: int
    named: Mapping[str, NamedPolicy]
    visits: NamedPolicy | None
    in_sample: tuple[str, ...]
    without: str

    @cached_property
    def orders(self) -> dict[str, BestFirst]:
        """By the names of their edge models."""
        orders = {}
        for name, policy in self.named.items():
            order = order_of(policy.policy)
            assert isinstance(order, BestFirst)
            orders[name] = order
        return orders

    @cached_property
    def machines(self) -> list[CurveMachine]:
        """What whole rounds cost, as measured, as drawn again and by halves, and by the convex view."""
        return [curve_machine(price.cost, self.most, _halves(price)) for price in self.prices if price.cost is not None]

    def text(self, sequence: int) -> RecordedTexts:
        """The recorded text of one sequence."""
        return next(self.trace.recorded_texts(self.draft, [sequence], channels=self.channels))

    @cached_property
    def channels(self) -> tuple[str, ...]:
        """Those that are read."""
        policies = [*self.named.values(), *(() if self.visits is None else (self.visits,))]
        return channels_read(policy.policy for policy in policies)

    def num_roots(self) -> int:
        """How many roots are looked at in each pass."""
        lengths = {record.index: len(record.text) - 1 for record in self.trace.sequences()}
        total = sum(lengths[index] for index in self.wanted)
        if total == 0:
            raise TraceError(f"{self.trace.location} holds no rounds, so there are no curves")
        return total


@dataclass
class _ScanJob(TraceJob, Generic[Found]):
    """A look at roots; a unit are sequences of whole shards, so that parts are the same everywhere.

    Attributes:
        channels: that are read.
        visits: the policy whose rounds count; None: every root.
        order: of nodes.
        most: nodes that are looked at.
        look: what is asked.
    """

    channels: tuple[str, ...]
    visits: AnyPolicy | None
    order: BestFirst
    most: int
    look: RootScan[Found]

    def make_ready(self) -> None:
        """The replay of the policy whose rounds count."""
        self._replay = None if self.visits is None else Replay([(self.visits, None)])

    def parts(self, unit: tuple[int, ...]) -> Iterator[RecordedTexts]:
        """The texts of a unit, some at a time."""
        return self.trace.recorded_texts(self.draft, unit, ROOTS_AT_ONCE, self.channels)

    def work(self, part: RecordedTexts) -> tuple[pl.DataFrame, Found, int]:
        """Where the roots are that count, what is found there, and how many were looked at."""
        chosen = None if self._replay is None else self._visited
        where, rounds_there = root_part(part, chosen, self.order, self.most)
        return where, self.look(rounds_there), len(part.roots.token_indices)

    def _visited(self, texts: RecordedTexts) -> Longs:
        assert self._replay is not None
        return self._replay.rounds(texts)[0].roots


@dataclass(frozen=True, eq=False, repr=False)
class CurveTable(StudyResult):
    """What was found at the roots, for each edge model and machine.

    Attributes:
        inputs: what the curves are of.
        rows: a row for each rule at each root.
        settings: each edge model at each machine's prices.
        by: what summaries are cut by; None: nothing.
    """

    inputs: CurveInputs
    rows: CurveRows
    settings: list[CurveSetting]
    by: str | None

    PICTURES: ClassVar[str] = "simlab.studies.plot:curve_pictures"

    @property
    def summaries(self) -> list[CurveSummary]:
        """Summaries of each edge model at each machine's prices, on everything."""
        return curve_summaries(self.rows, self.settings)

    def worst(self, setting: CurveSetting) -> Figures:
        """The root where the first stop lost most."""
        inputs = self.inputs
        machine = {machine.cost_id: machine for machine in inputs.machines}[setting.cost_id]
        return worst_example(self.rows, setting, inputs.orders[setting.edges], machine, inputs.text, inputs.most)

    def to_json(self) -> dict[str, object]:
        """The value of ``simlab study curves --json``.

        Summaries; the curve of the whole over fixed budgets; what is the same by each half of the samples, and how well
        prices are known; and the curve of the root where the first stop lost most.
        """
        inputs = self.inputs
        return {
            "text_id": inputs.trace.text_id,
            "draft_ids": {inputs.draft: inputs.trace.draft_ids[inputs.draft]},
            "policy": None if inputs.visits is None else inputs.visits.label,
            "budget": inputs.most,
            "in_sample": list(inputs.in_sample),
            "notes": [*notes_on(inputs.trace, inputs.prices), *filter(None, [inputs.without])],
            "rows": [row for summary in curve_summaries(self.rows, self.settings, self.by) for row in summary.rows()],
            "fixed_budget_curves": [
                {"edges": setting.edges, "cost_id": setting.cost_id, "tokens_per_s": setting.budget_curve.tolist()}
                for setting in self.settings
            ],
            "split_halves": [
                {"edges": setting.edges, "cost_id": setting.cost_id, **setting.halves}
                for setting in self.settings
                if setting.halves is not None
            ],
            "prices": [
                {"cost_id": price.cost_id, **step_resolution(price.file).row()} for price in inputs.prices if price.file
            ],
            "worst_curves": [self.worst(setting) for setting in self.settings],
        }

    def text(self) -> str:
        """The tables as ``simlab study curves`` prints them."""
        inputs = self.inputs
        whole = self.summaries
        slices = [] if self.by is None else curve_summaries(self.rows, self.settings, self.by)
        where = "every root" if inputs.visits is None else f"the rounds of {inputs.visits.label}"
        names = {price.cost_id or "": Path(price.heading.split(":")[0]).name for price in inputs.prices}
        lines = [
            f"{unimodality_verdict(whole, names)}\n",
            f"trace    {inputs.trace.label} (text {inputs.trace.text_id})",
            *([within_width(f"         {inputs.trace.left_out}")] if inputs.trace.left_out else []),
            f"curves   at {where}, 0 to {inputs.most} drafted tokens\n",
            curves_text([*slices, *whole], {price.cost_id or "": _heading(price) for price in inputs.prices}, self.by),
            *([within_width(inputs.without)] if inputs.without else []),
            *([f"\n{in_sample_note(inputs.in_sample)}"] if inputs.in_sample else []),
        ]
        return "\n".join(lines)

    def write(self, path: Path) -> None:
        """Write a Parquet file with a row for each rule at each root."""
        inputs = self.inputs
        ids = {"text_id": inputs.trace.text_id, "draft_id": inputs.trace.draft_ids[inputs.draft]}
        visited_by = None if inputs.visits is None else inputs.visits.label
        write_rows(path, self.rows, {**ids, "visited_by": visited_by, "simlab_version": VERSION})


@dataclass(frozen=True)
class CurvesOptions:
    """Which curves are drawn, at which roots."""

    DETAILS: ClassVar = """\
At each root the curve of (1 + summed path probabilities) / seconds over the number of drafted tokens,
0 to --budget: is it unimodal, or how many local maxima has it? Where does early stopping end (caddtree: at the first
size that brings no more)? What does that lose against the best of all sizes, against the best fixed budget, and
against one exchange rate of tokens for seconds in all rounds? docs/explanation/unimodality.md says what was found on
the packaged trace. With several --cost a policy that reads a latency profile reads the first.
Without --trace it takes the small packaged trace, without --cost the packaged latency profile; the latency is that of
a whole round: draft, select, verify and commit.
Prices are noisy, and noise makes maxima: it says how many survive prices from samples drawn again and from each half of
the samples, and how many samples would tell more. Intervals contain the noise of the prices.
The curves are of the drafter's own probabilities (raw), and of calibrated ones where there is a table.

  simlab study curves
  simlab study curves --trace runs/mine --cost a.json --cost b.json --by dataset --out curves.parquet
  simlab study curves -p caddtree --edges calibrated --calibration runs/calibration.json --json"""

    trace: TraceSource | None = trace_option()
    _: KW_ONLY
    cost: str | Path | Sequence[str | Path] = costs_option()
    draft_set: str | None = draft_set_option()
    budget: int | None = option(None, "the largest tree (default: as far as trace and profile reach)", "N")
    edges: Sequence[str] = option(
        (),
        "which probabilities; may be repeated (default: both, as far as there is a table)",
        choices=(RAW, CALIBRATED),
        repeats=True,
    )
    calibration: str | Path | None = option(
        None, "a table of `simlab train calibration` (default: the packaged one)", "FILE", read=Path
    )
    policy: str | None = option(
        None,
        "only where rounds of this policy start (default: at every root)",
        "POLICY",
        names="-p --policy",
    )
    by: str | None = by_option()
    limit: int | None = limit_option()
    threads: int | None = threads_option()
    ray: str | None = ray_option()
    workers: int | None = workers_option()
    progress: bool | None = progress_option()
    out: str | Path | None = out_option("write a Parquet: a row for each rule at each root", "Rows", "curves.parquet")


@study(CurvesOptions)
def curves(options: CurvesOptions) -> CurveTable:
    """Expected tokens per second by tree size at each root, and what stopping rules lose.

    Raises:
        SimlabError: something is not there, or does not fit the rest.
    """
    if options.calibration is not None and options.edges and CALIBRATED not in options.edges:
        raise UsageError("--calibration is read with --edges calibrated; leave one of the two out")
    inputs = _inputs(options)
    once, on_ray = inputs.num_roots(), ray_options(options.ray, options.workers)
    visits = None if inputs.visits is None else inputs.visits.policy
    with (
        workers_on(on_ray, options.threads) as workers,
        progress_bar(options.progress, "curves", "root", unit_scale=True) as bar,
    ):

        def roots(order: BestFirst, most: int, look: RootScan[Found]) -> Iterator[tuple[pl.DataFrame, Found]]:
            """The roots that count, looked at by workers."""
            handle, wanted = trace_handle(inputs.trace, workers), inputs.wanted
            job = _ScanJob(handle, inputs.draft, inputs.channels, visits, order, most, look)
            runs = [tuple(wanted)] if workers.shares_memory else inputs.trace.runs(frozenset(wanted))
            for where, result, num_roots in workers.results(job, runs, ignore_progress):
                yield where, result
                # Each root is looked at a few times.
                bar.total = -(-(bar.n + num_roots) // once) * once
                bar.update(num_roots)

        rows, settings = curve_rows(inputs.orders, inputs.machines, roots, inputs.most)
    made = CurveTable(inputs, rows, settings, options.by)
    if options.out is not None:
        made.write(Path(options.out))
    return made


def _inputs(options: CurvesOptions) -> CurveInputs:
    trace = opened(options.trace, paths(options.cost))
    draft = trace.draft_name(options.draft_set)
    prices = _prices(paths(options.cost), options.limit, trace, draft)
    most = _most(options.budget, trace, draft, prices)
    artefacts = TraceArtefacts(prices[0], trace, draft)
    named, without = _named_edges(options.edges, path_or_none(options.calibration), artefacts, most)
    visits = None if options.policy is None else _one_policy(options.policy, artefacts)
    policies = [*named.values(), *(() if visits is None else (visits,))]
    for policy in policies:
        check_needs(policy.policy, trace.holds(draft))
    return CurveInputs(
        trace=trace,
        draft=draft,
        wanted=first_prompts(trace, options.limit),
        prices=prices,
        most=most,
        named=named,
        visits=visits,
        in_sample=artefacts.in_sample(policies),
        without=without,
    )


def _prices(costs: Sequence[Path], limit: int | None, trace: Trace, draft: str) -> list[Prices]:
    by_cost: dict[str, Prices] = {}
    for path in costs or (None,):
        prices = prices_for_trace(path, trace, draft, limit)
        if prices.cost is None:
            raise CostError(f"curves need a latency profile. {prices.no_latency_reason}")
        by_cost.setdefault(prices.cost.cost_id, prices)
    return list(by_cost.values())


def _halves(prices: Prices) -> list[CostTable]:
    """Prices by every other visit, and by the rest; none where a cell was visited once."""
    file = prices.file
    if file is None or prices.cost is None:
        return []
    halves = [half_samples(file.samples, file.visits, half) for half in (0, 1)]
    if any(cell not in half for half in halves for cell in file.cells()):
        return []
    return [cost_table(file.cost_id, file.contexts, file.node_counts, half, file.visits) for half in halves]


def _heading(prices: Prices) -> str:
    """Whose prices they are, and how well they tell sizes apart."""
    file = prices.file
    if file is None:
        return prices.heading
    known, *more = step_resolution(file).lines()
    lines = [prices.heading, f"prices   {known}", *(f"         {line}" for line in more)]
    visits = fewest_samples(file.samples) // file.visits.rounds
    if 1 < visits < FEW_VISITS:
        lines.append(f"         {visits} visits to a cell are few: noise alone may leave valleys in 95 % of the draws")
    return "\n".join(lines)


def _most(budget: int | None, trace: Trace, draft: str, prices: Sequence[Prices]) -> int:
    shortest = min((price.cost for price in prices if price.cost is not None), key=lambda cost: cost.most_drafted)
    priced = shortest.most_drafted
    if budget is None:
        return max(1, min(trace.manifest.draft_sets[draft].exact_budget, priced))
    if budget > priced:
        raise UsageError(
            f"--budget {budget} is beyond the latency profile, which ends at {priced} drafted tokens; choose a "
            f"smaller one, or {shortest.how_to_reach()}"
        )
    return budget


def _named_edges(
    edges: Sequence[str], calibration: Path | None, artefacts: TraceArtefacts, most: int
) -> tuple[dict[str, NamedPolicy], str]:
    """A policy for each edge model, and why there is none for calibrated probabilities, unless they were asked for."""
    policies, without = {}, ""
    table = "" if calibration is None else f",table={json.dumps(str(calibration))}"
    for name in edges or (RAW, CALIBRATED):
        typed = f"ddtree:budget={most}" if name == RAW else f"calibrated:budget={most}{table}"
        try:
            policies[name] = _one_policy(typed, artefacts)
        except PolicyError as error:
            if edges or calibration is not None:
                raise
            without = f"No calibrated probabilities: {error}"
    return policies, without


def _one_policy(typed: str, artefacts: TraceArtefacts) -> NamedPolicy:
    policies = parse_policies([typed], artefacts)
    if len(policies) != 1:
        raise UsageError(f"expected one policy, whose rounds to look at; {typed} makes {len(policies)}")
    return policies[0]
