"""Go or no-go for a serving engineer: chain, tree or plain decoding at each batch size, by a trace and its prices."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import ClassVar

from simlab.analysis.advise.verdicts import (
    BatchAdvice,
    advice_sentences,
    advice_table,
    batch_advice,
    notes_text,
)
from simlab.analysis.table.price_draws import BatchPrices
from simlab.analysis.table.summaries import BASELINE, summarise
from simlab.errors import CostError, TraceError, UsageError
from simlab.options import (
    batch_sizes,
    costs_option,
    dev_trace_option,
    draft_set_option,
    limit_option,
    option,
    paths,
    policies_option,
    progress_option,
    study,
    threads_option,
    trace_option,
)
from simlab.policies.named.chain import most_drafted
from simlab.policies.parsing.parse import NamedPolicy, parse_policies
from simlab.policy import GivenPolicies, given_policies
from simlab.studies.inputs.artefacts import PricedPolicies, TraceArtefacts
from simlab.studies.inputs.prices import Prices, measured_prices, not_chosen_note, prices_of_batch
from simlab.studies.inputs.trace import TraceSource, first_prompts, opened
from simlab.studies.replay.run import ReplayRun, replay_trace
from simlab.studies.result import StudyResult
from simlab.traces.reader import Trace
from simlab.traces.results.rows import HINDSIGHT, Results, results_at
from simlab.workers.threads import Threads

BATCHES = (1, 2, 4, 8, 16, 32, 64)
_BUDGETS = (2, 4, 8, 16, 32, 64, 128)


@dataclass(frozen=True, eq=False, repr=False)
class Advice(StudyResult):
    """What to do at each batch size.

    Attributes:
        trace: the recording that verdicts are of.
        chosen_on: the recording that settings were chosen on.
        prompts: texts' prompts that were replayed.
        batches: in ascending order.
        notes: batch sizes and policies that were left out, a sentence each.
    """

    trace: Trace
    chosen_on: Trace
    prompts: int
    batches: tuple[BatchAdvice, ...]
    notes: tuple[str, ...]

    PICTURES: ClassVar[str] = "simlab.studies.plot:advice_pictures"

    def to_json(self) -> dict[str, object]:
        """The value that ``simlab advise --json`` prints."""
        return {
            "trace": self.trace.place,
            "chosen_on": self.chosen_on.place,
            "prompts": self.prompts,
            "advice": advice_sentences(self.batches),
            "notes": [*self._notes()],
            "rows": [batch.row() for batch in self.batches],
        }

    def text(self) -> str:
        """The page that ``simlab advise`` prints."""
        heading = f"{self.trace.place}, {self.prompts} prompts; speeds are predicted by replay."
        parts = [heading, advice_table(self.batches), notes_text(advice_sentences(self.batches))]
        return "\n\n".join([*parts, notes_text(self._notes())])

    def _notes(self) -> list[str]:
        same = self.chosen_on is self.trace
        where = "the very prompts that they are judged on, which favours them" if same else self.chosen_on.place
        modelled = [str(batch.of.batch) for batch in self.batches if batch.of.what_if]
        notes = [
            f"Chain lengths and tree sizes were chosen on {where}"
            + ("; --dev-trace DEV_TRACE chooses on other prompts." if same else "."),
        ]
        notes.append(
            "Intervals are over prompts, paired; the three verdicts of a batch size are adjusted together (Holm). No "
            "winner: prompts cannot tell, or, marked (prices), the noise of the latency profile is as large. Every "
            "text of a batch drafts as many tokens. Serving engines draft chains with these drafters; a tree is what "
            "they could do."
        )
        if modelled:
            notes.append(
                f"Modelled, not measured: the prices of batch sizes {', '.join(modelled)} are those of one text in "
                "wider passes, which is kind to large batches. Measure them with `simlab profile --batch N`, or import "
                "an engine's table with `simlab import --batch N`."
            )
        return [
            *notes,
            *(f"Prices of {batch.of.batch}: {batch.of.heading}." for batch in self.batches if not batch.of.what_if),
            *self.notes,
        ]


@dataclass(frozen=True)
class AdviseOptions:
    """On which recording and machine, and for which batch sizes, advice is wanted."""

    DETAILS: ClassVar = """\
At each batch size: the fastest chain and the fastest tree, each over plain decoding with its 95 % interval
over prompts, and whether the tree is a winner, a loser, or neither; the batch size from which each stops paying; and
what a drafted token may cost, or how many tokens a round must commit, for the tree to pay.
Give a cost file of each batch size: `simlab profile --batch N` measures one, `simlab import --batch N` makes one
of an engine's table. Batch sizes without a file are modelled from that of one text, and marked.
Settings are chosen on the trace that is judged, unless --dev-trace names another.

  simlab advise --batch 1,2,4,8
  simlab advise --trace runs/mine --dev-trace runs/dev --cost one.json --cost eight.json --batch 1,8
  simlab advise -p chain:length=1..7 -p ddtree:budget=8/16/32 --json"""

    trace: TraceSource | None = trace_option()
    policies: GivenPolicies = policies_option(
        "candidates (default: chains of every length, and ddtree of several sizes); may be repeated"
    )
    _: KW_ONLY
    dev_trace: TraceSource | None = dev_trace_option(
        "a trace of other prompts that settings are chosen on (default: --trace)"
    )
    cost: str | Path | Sequence[str | Path] = costs_option("latency profile of one batch size; may be repeated")
    draft_set: str | None = draft_set_option()
    batch: Sequence[int] = option(BATCHES, "texts at a time", "N,N,...", read=batch_sizes)
    limit: int | None = limit_option()
    threads: int | None = threads_option()
    progress: bool | None = progress_option()


@study(AdviseOptions)
def advise(options: AdviseOptions) -> Advice:
    """Say at each batch size whether chain, tree or plain decoding is fastest, and how sure that is.

    Raises:
        SimlabError: trace, prices or policies do not fit each other.
    """
    judged = opened(options.trace)
    chosen_on = judged if options.dev_trace is None else opened(options.dev_trace)
    notes: list[str] = []
    run = ReplayRun(Threads(options.threads), options.progress, best_budgets=False)
    name = judged.draft_name(options.draft_set)
    machines = _machines(judged, name, options, options.limit, notes)
    wanted = set(first_prompts(judged, options.limit))
    prompts = {
        (sequence.prompt.dataset, sequence.prompt.prompt_id)
        for sequence in judged.sequences()
        if sequence.index in wanted
    }
    if not prompts:
        raise TraceError(f"{judged.place} holds no sequences, so there is nothing to advise on")
    rows = _rows(judged, name, machines, options.limit, run)
    choosing = rows
    if chosen_on is not judged:
        dev = chosen_on.draft_name(options.draft_set)
        others = _machines(chosen_on, dev, options, None, [])
        choosing = _rows(chosen_on, dev, others, None, run)
    found = [
        batch_advice(of, results_at(rows, of.cost_id), _timed(results_at(choosing, of.cost_id), policies, notes))
        for of, policies in machines
    ]
    return Advice(judged, chosen_on, len(prompts), tuple(found), tuple(dict.fromkeys(notes)))


_Machine = tuple[BatchPrices, PricedPolicies]


def _rows(trace: Trace, draft: str, machines: Sequence[_Machine], limit: int | None, options: ReplayRun) -> Results:
    """Result rows of all policies, without those of the bounds."""
    rows = replay_trace(trace, draft, [policies for _, policies in machines], limit, options)
    return rows.filter(rows["name"] != HINDSIGHT)


def _timed(rows: Results, asked: PricedPolicies, notes: list[str]) -> Results:
    """The rows of policies that may be chosen; others, whose size nobody timed, are added to ``notes``."""
    prices, named = asked.prices, {one.label: one.policy for one in asked.policies}
    assert prices.cost is not None
    gaps = {
        one.policy: gap
        for one in summarise(rows)
        if one.policy in named and (gap := prices.gap_of(named[one.policy], one.totals.nodes_per_round)) is not None
    }
    if gaps:
        listed = [f"{label} ({low} to {high})" for label, (low, high) in gaps.items()]
        notes.append(not_chosen_note(listed, prices.cost))
    return rows.filter(~rows["policy"].is_in(list(gaps)))


def _machines(trace: Trace, draft: str, options: AdviseOptions, limit: int | None, notes: list[str]) -> list[_Machine]:
    """Prices and policies of each batch size; what is left out is added to ``notes``."""
    costs = paths(options.cost)
    measured = _measured(trace, draft, costs, limit)
    unused = [str(one) for one in sorted(measured) if one not in options.batch] if costs else []
    if unused and unused != ["1"]:  # that of one text is what others are worked out from
        notes.append(f"Cost files of batch sizes {', '.join(unused)} were given and not asked for with --batch.")
    found = []
    for batch in sorted(set(options.batch)):
        try:
            prices = measured[batch] if batch in measured else _worked_out(batch, measured)
        except CostError as error:
            notes.append(f"Batch {batch} is left out: {error}")
            continue
        assert prices.cost is not None
        # Notes of an imported file say what its seconds leave out, which verdicts over plain decoding depend on.
        said = prices.file.notes if batch in measured and prices.file is not None else ()
        notes += [f"Batch {batch}: {one}." for one in said if "not given" in one]
        of = BatchPrices(batch, prices.cost.cost_id, prices.heading, batch not in measured)
        found.append((of, PricedPolicies(prices, tuple(_policies(trace, draft, options.policies, prices, notes)))))
    if not found:
        raise CostError(notes[-1])
    return found


def _measured(trace: Trace, draft: str, costs: Sequence[Path], limit: int | None) -> dict[int, Prices]:
    found = measured_prices(costs, trace, draft, limit)
    for prices in found.values():
        if prices.cost is None:
            raise CostError(f"advice needs a latency profile. {prices.why_none}")
    return found


def _worked_out(batch: int, measured: dict[int, Prices]) -> Prices:
    if 1 not in measured:
        raise CostError(
            f"there is no latency profile of {batch} texts at a time, and none of one text to work it out from; give "
            "either with --cost"
        )
    return prices_of_batch(measured[1], batch)


def _policies(trace: Trace, draft: str, typed: GivenPolicies, prices: Prices, notes: list[str]) -> list[NamedPolicy]:
    """Plain decoding, and those policies whose rounds all have a price."""
    kept = trace.manifest.draft_sets[draft]
    cost = prices.cost
    assert cost is not None
    longest = min(kept.depth, cost.most_drafted)
    largest = min(kept.exact_budget, cost.most_drafted)
    budgets = [str(budget) for budget in _BUDGETS if budget <= largest]
    default = [
        *([f"chain:length=1..{longest}"] if longest else []),
        *(["ddtree:budget=" + "/".join(budgets)] * bool(budgets)),
    ]
    wanted = given_policies(typed) or tuple(default)
    asked = parse_policies(wanted, TraceArtefacts(prices, trace, draft)) if wanted else []
    policies = {one.policy_id: one for one in asked if one.name != BASELINE}
    fitting = [
        policy for policy in policies.values() if most_drafted(policy.policy.budget, kept.depth) <= cost.most_drafted
    ]
    if typed and not policies:
        raise UsageError("autoregressive decoding is what policies are held against; name another with -p")
    beyond = [policy.label for policy in policies.values() if policy not in fitting]
    if beyond:
        notes.append(
            f"Batch {prices.batch}: {', '.join(beyond)} are left out, since the latency profile ends at "
            f"{cost.most_drafted} drafted tokens of each text."
        )
    return [*parse_policies([BASELINE]), *fitting]
