"""Are edge probabilities right, where is the true path in a policy's order of nodes, and what does that bring?"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar

from simlab.analysis.scoring.reliability import write_reliability
from simlab.analysis.scoring.score import Prompt, Scoring, ScoringLimits, by_prompts, score_trace
from simlab.analysis.scoring.text import calibration_verdict, scoring_notes, scoring_text
from simlab.analysis.table.estimates import Row, flat
from simlab.analysis.table.text import within_width
from simlab.channels.needs import channels_read
from simlab.cost import CostTable
from simlab.errors import MissingChannelError, TraceError, UsageError
from simlab.ids import VERSION
from simlab.options import (
    by_option,
    cost_option,
    draft_set_option,
    limit_option,
    option,
    out_option,
    path_or_none,
    policies_option,
    progress_option,
    study,
    trace_option,
)
from simlab.policies.parsing.parse import NamedPolicy, parse_policies
from simlab.policy import GivenPolicies
from simlab.recorded import RecordedTexts
from simlab.sequence_replay import check_needs
from simlab.studies.inputs.artefacts import (
    PoliciesOnMachine,
    TraceArtefacts,
    default_policies,
    in_sample_note,
    largest_budget,
)
from simlab.studies.inputs.prices import Prices, notes_on, prices_for_trace
from simlab.studies.inputs.progress import progress_bar
from simlab.studies.inputs.trace import (
    TraceJob,
    TraceSource,
    first_prompts,
    opened,
    prompt_of,
    trace_handle,
    whole_prompts,
)
from simlab.studies.replay.run import ROOTS_AT_ONCE
from simlab.studies.result import StudyResult
from simlab.traces.reader import Trace
from simlab.workers.on_ray import ray_options, workers_on
from simlab.workers.parts import ray_option, workers_option
from simlab.workers.threads import Workers

WITHOUT_CHOICE = (
    "ddtree:budget=16/64",
    "calibrated:budget=16/64",
    "presto:budget=16/64",
    "presto:renormalised=true,budget=16/64",
    "sequoia:budget=16/64",
)

MOST_NODES, CAPS, WIDTH = 512, (16, 64, 512), 64
"""Nodes of an order and node counts that are told; candidates of which an edge model is asked."""


@dataclass(frozen=True)
class ScoringInputs:
    """What a scoring looks at.

    Attributes:
        trace: where the texts are.
        draft: the draft set.
        wanted: the sequences.
        prompts: dataset and name of each prompt, each once.
        num_roots: positions that are scored.
        policies: to be scored.
        prices: of one machine; there may be none.
        limits: how far one looks.
        in_sample: labels of policies that were fitted on the very texts.
        without: sentences that say why a policy of the default set is left out.
    """

    trace: Trace
    draft: str
    wanted: Sequence[int]
    prompts: Sequence[Prompt]
    num_roots: int
    policies: Sequence[NamedPolicy]
    prices: Prices
    limits: ScoringLimits
    in_sample: tuple[str, ...]
    without: tuple[str, ...]

    def job(self, workers: Workers) -> "_ScoringJob":
        """What these workers do with the sequences of whole prompts."""
        return _ScoringJob(
            trace_handle(self.trace, workers),
            self.draft,
            tuple(self.policies),
            self.limits,
            self.prices.cost,
            tuple(self.on_machine.unpriced),
        )

    @property
    def on_machine(self) -> PoliciesOnMachine:
        """The policies with their prices."""
        return PoliciesOnMachine(self.prices, tuple(self.policies))


@dataclass(frozen=True, eq=False, repr=False)
class ScoringTable(StudyResult):
    """What came out, with intervals over prompts.

    Attributes:
        inputs: what was scored.
        parts: the scoring of all prompts, behind those of each dataset where they are wanted; with the dataset's name.
        details: whether the text has all tables.
    """

    ROWS: ClassVar[str] = "policies"
    PICTURES: ClassVar[str] = "simlab.studies.plot:scoring_pictures"

    inputs: ScoringInputs
    parts: tuple[tuple[str | None, Scoring], ...]
    details: bool = False

    def to_json(self) -> dict[str, object]:
        """The value of ``simlab study scoring --json``; the slice of a row is the dataset, or null for all."""
        inputs = self.inputs
        lists: dict[str, list[Row]] = {}
        for name, part in self.parts:
            for key, rows in part.rows().items():
                lists.setdefault(key, []).extend({"slice": name, **row} for row in rows)
        return {
            "text_id": inputs.trace.text_id,
            "draft_ids": {inputs.draft: inputs.trace.draft_ids[inputs.draft]},
            "cost": inputs.prices.cost_id,
            "prompts": len(inputs.prompts),
            "roots": inputs.num_roots,
            "nodes": inputs.limits.most,
            "width": inputs.limits.width,
            "in_sample": list(inputs.in_sample),
            "notes": [*notes_on(inputs.trace, [inputs.prices]), *inputs.without],
            "unpriced": inputs.on_machine.unpriced,
            **lists,
        }

    def text(self) -> str:
        """The tables as ``simlab study scoring`` prints them."""
        inputs, prices, parts = self.inputs, self.inputs.prices, self.parts
        width = inputs.limits.width
        heading = (
            f"trace    {inputs.trace.label} (text {inputs.trace.text_id})",
            *([f"         {inputs.trace.left_out}"] if inputs.trace.left_out else []),
            f"latency  {prices.heading if prices.cost is not None else prices.no_latency_reason}",
            f"scored   {len(inputs.prompts)} prompts, {inputs.num_roots:,} roots, {width} candidates a depth",
        )
        verdict = calibration_verdict(parts[-1][1].edges)
        lines = [
            *([verdict] if verdict else []),
            within_width("\n".join(heading)),
            *(
                scoring_text(part, "all" if name is None and len(parts) > 1 else name or "", self.details)
                for name, part in parts
            ),
            scoring_notes(self.details),
            *map(within_width, prices.caveats),
            *map(within_width, inputs.without),
            *filter(None, [within_width(inputs.on_machine.unpriced_note())]),
            *([in_sample_note(inputs.in_sample)] if inputs.in_sample else []),
        ]
        return "\n\n".join(lines)

    def write(self, path: Path) -> None:
        """Write a Parquet file with a row for each bin of each reliability curve."""
        inputs = self.inputs
        bins = [
            {"slice": name, **flat(figures)}
            for name, part in self.parts
            for figures in part.reliability(lambda _where: True)
        ]
        ids = {"text_id": inputs.trace.text_id, "draft_id": inputs.trace.draft_ids[inputs.draft]}
        write_reliability(path, bins, {**ids, "simlab_version": VERSION})


@dataclass(frozen=True)
class ScoringOptions:
    """Which policies are scored, on which recording."""

    DETAILS: ClassVar = """\
Four questions at every root of a recorded trace, each with 95 % intervals over prompts: is a candidate right
as often as an edge model says (calibration, by depth and rank, on the greedy path and off it); how far down a
policy's order of nodes lies the target's path; what share of the gap from the chain to the oracle upper bound does a
policy close; and what are its nodes spent on. docs/explanation/findings.md defines every figure, and has the results
on the packaged trace.
Each edge model and each order of nodes is scored once, whatever the budgets of the policies that have it.
Without -p these are the drafter's marginals, calibrated, corrected by a 3-gram, the same renormalised, and one fixed
tree, as far as tables for the models come with simlab. --out keeps all reliability curves; --json has those of
all candidates and of first ones.

  simlab study scoring
  simlab study scoring --trace runs/mine -p ddtree:budget=16/64 -p presto:ngram_weight=0.1/0.2/0.4,budget=64
  simlab study scoring --by dataset --json --out reliability.parquet"""

    trace: TraceSource | None = trace_option()
    policies: GivenPolicies = policies_option()
    _: KW_ONLY
    cost: str | Path | None = cost_option()
    draft_set: str | None = draft_set_option()
    nodes: int | None = option(
        None,
        "how many nodes of an order are examined (default: 512, or as many as the trace is exact for)",
        "N",
    )
    by: str | None = by_option("tables for each dataset, and those of all", ("dataset",))
    details: bool = option(False, "all tables: by depth and rank, and what drafted tokens are spent on")
    limit: int | None = limit_option()
    ray: str | None = ray_option()
    workers: int | None = workers_option()
    progress: bool | None = progress_option()
    out: str | Path | None = out_option(
        "write a Parquet: a row for each bin of each reliability curve", "Reliability curves", "reliability.parquet"
    )


@study(ScoringOptions)
def scoring(options: ScoringOptions) -> ScoringTable:
    """Score edge models and orders of nodes at every root of a recorded trace.

    Raises:
        SimlabError: something is not there, or does not fit the rest.
    """
    on_ray = ray_options(options.ray, options.workers)
    inputs = _inputs(options)
    with (
        workers_on(on_ray) as workers,
        progress_bar(options.progress, "scoring", "root", inputs.num_roots, unit_scale=True) as bar,
    ):

        def report(_what: str, num_roots: int) -> None:
            bar.update(num_roots)

        units = whole_prompts(inputs.trace, inputs.wanted)
        whole = Scoring.joined(list(workers.results(inputs.job(workers), units, report)))
    made = ScoringTable(inputs, (*(whole.by_dataset() if options.by else ()), (None, whole)), options.details)
    if options.out is not None:
        made.write(Path(options.out))
    return made


@dataclass
class _ScoringJob(TraceJob):
    """A scoring; a unit are the sequences of whole prompts, and a part of it their texts.

    Attributes:
        policies: to be scored.
        limits: how far one looks.
        cost: what rounds cost; None: nothing is priced.
        unpriced: labels of policies whose channels have no price.
    """

    policies: tuple[NamedPolicy, ...]
    limits: ScoringLimits
    cost: CostTable | None
    unpriced: tuple[str, ...]

    def parts(self, unit: tuple[int, ...]) -> Iterator[tuple[RecordedTexts, ...]]:
        """The texts of a few prompts each, all of theirs."""
        channels = channels_read(policy.policy for policy in self.policies)
        texts = self.trace.recorded_texts(self.draft, unit, ROOTS_AT_ONCE, channels)
        return by_prompts(texts, Counter(prompt_of(self.trace.texts[index]) for index in unit))

    def work(self, part: tuple[RecordedTexts, ...]) -> Scoring:
        """Score policies on these texts."""
        return score_trace(self.policies, part, self.limits, self.cost, self.unpriced, partial(self.report, "roots"))


def _inputs(options: ScoringOptions) -> ScoringInputs:
    trace = opened(options.trace, [] if options.cost is None else [Path(options.cost)])
    draft = trace.draft_name(options.draft_set)
    draft_set = trace.manifest.draft_sets[draft]
    prices = prices_for_trace(path_or_none(options.cost), trace, draft, options.limit)
    artefacts = TraceArtefacts(prices, trace, draft)
    typed, held = options.policies, trace.holds(draft)
    policies, without = (
        (parse_policies(typed, artefacts), ()) if typed else default_policies(WITHOUT_CHOICE, artefacts, held)
    )
    reach = draft_set.exact_budget if prices.cost is None else min(draft_set.exact_budget, prices.cost.most_drafted)
    most = _most(options.nodes, draft_set.exact_budget) if options.nodes is not None else min(MOST_NODES, reach)
    for policy in policies:
        if not policy.policy.needs.draft:
            raise UsageError(f"{policy.label} drafts nothing, so there is nothing to score; leave it out")
        check_needs(policy.policy, held)
    wanted = first_prompts(trace, options.limit)
    records = [record for record in trace.sequences() if record.index in set(wanted)]
    num_roots = sum(len(record.text) - 1 for record in records)
    if num_roots == 0:
        raise TraceError(f"{trace.location} holds no rounds, so there is nothing to score")
    caps = tuple(sorted({most, *(cap for cap in CAPS if cap < most)}))
    return ScoringInputs(
        trace=trace,
        draft=draft,
        wanted=wanted,
        prompts=list(dict.fromkeys(map(prompt_of, records))),
        num_roots=num_roots,
        policies=policies,
        prices=prices.reaching(largest_budget(policies, draft_set.depth), by_default=not options.policies),
        limits=ScoringLimits(most, caps, min(WIDTH, draft_set.min_width)),
        in_sample=artefacts.in_sample(policies),
        without=without,
    )


def _most(nodes: int, exact_budget: int) -> int:
    if nodes > exact_budget:
        raise MissingChannelError(
            f"--nodes {nodes} is beyond the {exact_budget} nodes for which the trace is exact; choose fewer, or record "
            "again with `simlab record --exact-budget`"
        )
    return nodes
