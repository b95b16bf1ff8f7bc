"""What to draft at each batch size: nothing, a chain or a tree, by a trace and its prices, for a serving engineer."""

from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import ClassVar

import polars as pl

from simlab.analysis.advise import (
    CHAIN,
    TREE,
    BatchAdvice,
    advice_sentences,
    advice_table,
    batch_advice,
    cut_sentence,
    no_tree_sentence,
)
from simlab.analysis.statistics.intervals import FEW_PROMPTS
from simlab.analysis.table.summaries import BASELINE, BatchPrices, summarise
from simlab.analysis.table.text import within_width
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
from simlab.studies.inputs.artefacts import PoliciesOnMachine, TraceArtefacts
from simlab.studies.inputs.prices import Prices, measured_prices, not_chosen_note, prices_of_batch
from simlab.studies.inputs.served import (
    check_engine,
    engine_option,
    length_of,
    lines_to_paste,
    trees_of,
    without_trees,
)
from simlab.studies.inputs.trace import TraceSource, first_prompts, opened, own_blocks
from simlab.studies.replay.run import OwnBlocks, ReplayRun, chain_length, replayed_on_own_blocks
from simlab.studies.result import StudyResult
from simlab.traces.artefacts.cost import gap_around
from simlab.traces.format.manifest_entries import DraftSet
from simlab.traces.reader import Trace
from simlab.traces.results.rows import Results, results_at
from simlab.workers.threads import Threads

BATCHES = (1, 2, 4, 8, 16, 32, 64)
_BUDGETS = (2, 4, 8, 16, 32, 64, 128)
_BASELINE = parse_policies([BASELINE])[0].policy
_NAMED = 3
"""Policies that are named in a note."""


@dataclass(frozen=True, eq=False, repr=False)
class Advice(StudyResult):
    """What to do at each batch size.

    Attributes:
        trace: the recording that verdicts are of.
        draft: its draft set.
        chosen_on: the recording that settings were chosen on.
        prompts: texts' prompts that were replayed.
        batches: in ascending order.
        notes: batch sizes and policies that were left out, a sentence each.
        engine: of `simlab.studies.inputs.served.ENGINES`, whose trees and lines these are; None: none in particular.
    """

    trace: Trace
    draft: str
    chosen_on: Trace
    prompts: int
    batches: tuple[BatchAdvice, ...]
    notes: tuple[str, ...]
    engine: str | None = None

    PICTURES: ClassVar[str] = "simlab.studies.plot:advice_pictures"

    def to_json(self) -> dict[str, object]:
        """The value that ``simlab advise --json`` prints."""
        return {
            "trace": self.trace.location,
            "chosen_on": self.chosen_on.location,
            "prompts": self.prompts,
            "advice": self._sentences(),
            "engines": self.engine_lines(),
            "notes": [*self._first_notes(), *self._notes()],
            "rows": [batch.row() for batch in self.batches],
        }

    def text(self) -> str:
        """The page that ``simlab advise`` prints."""
        heading = f"{self.trace.label}, {self.prompts} prompts; speeds are predicted by replay."
        parts = [
            within_width(" ".join([heading, *self._first_notes()])),
            advice_table(self.batches),
            "\n".join(map(within_width, self._sentences())),
        ]
        # Lines to paste stay whole.
        engines = self.engine_lines()
        engines = [line if line.startswith(("--", "simlab ")) else within_width(line) for line in engines]
        parts += ["\n".join(engines), "\n".join(map(within_width, self._notes()))]
        return "\n\n".join(filter(None, parts))

    @property
    def _kept(self) -> DraftSet:
        return self.trace.manifest.draft_sets[self.draft]

    def engine_lines(self) -> list[str]:
        """What the engine is to draft, with the lines to paste; none of a drafter that no engine here runs."""
        return lines_to_paste(self.engine, self.trace, self.draft, self.batches)

    def _sentences(self) -> list[str]:
        who = without_trees(self.engine, self._kept)
        return [*advice_sentences(self.batches), *filter(None, [who and no_tree_sentence(self.batches, who)])]

    def _first_notes(self) -> list[str]:
        caveats = [caveat for batch in self.batches for caveat in batch.of.caveats]
        return list(dict.fromkeys(filter(None, [self.trace.left_out, self.chosen_on.left_out, *caveats])))

    def _notes(self) -> Iterator[str]:
        yield from self._block_notes()
        if self.chosen_on is self.trace:
            yield (
                "Lengths and sizes were chosen on the very prompts that judge them, which favours drafting; "
                "--dev-trace DEV_TRACE chooses on other prompts."
            )
        else:
            yield f"Lengths and sizes were chosen on {self.chosen_on.location}."
        yield (
            "Gains are tokens/s over the next simpler choice, intervals over prompts, paired; the verdicts of a batch "
            "size are adjusted together (Holm). sure: whether every other choice is significantly slower. All texts in "
            "a batch draft the same number of tokens."
        )
        if self.prompts < FEW_PROMPTS:
            yield f"Fewer than {FEW_PROMPTS} prompts: no verdict is given."
        modelled = [str(batch.of.batch) for batch in self.batches if batch.of.what_if]
        if modelled:
            yield (
                f"Modelled, not measured: batch {', '.join(modelled)}, of one text in wider passes, which favours "
                "large batches. Drafting is taken there only where it also beats autoregressive decoding of one text "
                "alone. Measure with `simlab profile --batch N`, or import an engine's table with `simlab import "
                "--batch N`."
            )
        yield from (
            f"Prices of {batch.of.batch}: {batch.of.heading}." for batch in self.batches if not batch.of.what_if
        )
        yield from self.notes

    def _block_notes(self) -> Iterator[str]:
        cut = [batch for batch in self.batches if batch.is_cut and batch.without_tree == CHAIN]
        if not cut:
            return
        yield cut_sentence(cut[0], self._kept.block_size)
        blocks = sorted({length_of(batch, self._kept) + self._kept.block_size - self._kept.depth for batch in cut})
        yield (
            f"Record what engines draft: `simlab record --text-from TRACE --block N` with N "
            f"{', '.join(map(str, blocks))}, and compare it with --block-trace."
        )


@dataclass(frozen=True)
class AdviseOptions:
    """On which recording and machine, and for which batch sizes, advice is wanted."""

    DETAILS: ClassVar = """\
One line for each batch size: draft nothing, a chain of k tokens, or a tree of so many; its gain over the next simpler
choice with a 95 % interval over prompts; and whether that is sure. A chain is recommended where it is significantly
faster than autoregressive decoding, a tree where it is significantly faster than what is best without it.
Below: where drafting stops paying, what it costs to have no tree, and the settings of vLLM and SGLang to paste.
Give a cost file of each batch size: `simlab profile --batch N` measures one, `simlab import --batch N` makes one
of an engine's table. Batch sizes without a file are modelled from that of one text, and marked.
Settings are chosen on the trace that is judged, unless --dev-trace names another.

  simlab advise --batch 1,2,4,8
  simlab advise --engine tensorrt-edge-llm --batch 1
  simlab advise --trace runs/mine --dev-trace runs/dev --cost one.json --cost eight.json --batch 1,8
  simlab advise -p chain:length=1..7 -p ddtree:budget=8/16/32 --json"""

    trace: TraceSource | None = trace_option()
    policies: GivenPolicies = policies_option(
        "candidates (default: chains of every length, and trees of several sizes: ddtree, or eagle3 where the draft "
        "set is the chain of an EAGLE-3 head); may be repeated"
    )
    _: KW_ONLY
    dev_trace: TraceSource | None = dev_trace_option(
        "a trace of other prompts that settings are chosen on (default: --trace)"
    )
    cost: str | Path | Sequence[str | Path] = costs_option("latency profile of one batch size; may be repeated")
    draft_set: str | None = draft_set_option()
    block_trace: Sequence[TraceSource] = option(
        (),
        "a trace of the same texts that was recorded with another --block; may be repeated. Chains then have the "
        "lengths of recorded blocks alone, as engines draft them",
        "DIR",
        repeats=True,
    )
    batch: Sequence[int] = option(BATCHES, "texts at a time", "N,N,...", read=batch_sizes)
    engine: str | None = engine_option(
        "compare what this engine drafts, and print its lines (default: ddtree, vLLM and SGLang)"
    )
    limit: int | None = limit_option()
    threads: int | None = threads_option()
    progress: bool | None = progress_option()


@study(AdviseOptions)
def advise(options: AdviseOptions) -> Advice:
    """Say at each batch size whether to draft nothing, a chain or a tree, and how sure that is.

    Raises:
        SimlabError: trace, prices or policies do not fit each other.
    """
    costs = paths(options.cost)
    judged = opened(options.trace, costs)
    chosen_on = judged if options.dev_trace is None else opened(options.dev_trace, costs)
    notes: list[str] = []
    name = judged.draft_name(options.draft_set)
    check_engine(options.engine, name, judged.manifest.draft_sets[name], options.policies)
    blocks = own_blocks(judged, name, [opened(source) for source in options.block_trace])
    machines, alone, kinds = _machines(judged, name, options, blocks, options.limit, notes)
    wanted = set(first_prompts(judged, options.limit))
    prompts = {
        (sequence.prompt.dataset, sequence.prompt.prompt_id)
        for sequence in judged.sequences()
        if sequence.index in wanted
    }
    if not prompts:
        raise TraceError(f"{judged.location} holds no sequences, so there is nothing to advise on")
    every = [*machines, *([alone] if alone else [])]
    rows = _rows(judged, name, every, blocks, options.limit, options)
    choosing = rows
    if chosen_on is not judged:
        dev = chosen_on.draft_name(options.draft_set)
        others, _, _ = _machines(chosen_on, dev, options, blocks, None, [])
        choosing = _rows(chosen_on, dev, others, own_blocks(chosen_on, dev, ()), None, options)
    bound = None if alone is None else results_at(rows, alone[0].cost_id).filter(pl.col("name") == BASELINE)
    draft_set = judged.manifest.draft_sets[name]
    chains = [] if draft_set.is_head else [policy for _, asked in machines for policy in asked.policies]
    # Those whose own block nobody recorded.
    cut = {chain.label for chain in chains if chain_length(chain, draft_set.depth) not in (0, draft_set.depth, *blocks)}
    advice = [
        batch_advice(
            of,
            results_at(rows, of.cost_id),
            _timed(results_at(choosing, of.cost_id), policies, notes),
            bound if of.what_if else None,
            cut,
            kinds,
        )
        for of, policies in machines
    ]
    return Advice(judged, name, chosen_on, len(prompts), tuple(advice), tuple(dict.fromkeys(notes)), options.engine)


_Machine = tuple[BatchPrices, PoliciesOnMachine]


def _rows(
    trace: Trace, draft: str, machines: Sequence[_Machine], blocks: OwnBlocks, limit: int | None, options: AdviseOptions
) -> Results:
    run = ReplayRun(Threads(options.threads), options.progress, bounds=False)
    return replayed_on_own_blocks(trace, draft, [asked for _, asked in machines], blocks, limit, run)


def _timed(rows: Results, asked: PoliciesOnMachine, notes: list[str]) -> Results:
    """The rows of policies that may be chosen; others, whose size nobody timed, are added to ``notes``."""
    prices, named = asked.prices, {policy.label: policy.policy for policy in asked.policies}
    assert prices.cost is not None
    gaps = {
        summary.policy: gap
        for summary in summarise(rows)
        if summary.policy in named
        and (gap := prices.gap_of(named[summary.policy], summary.totals.nodes_per_round)) is not None
    }
    if gaps:
        listed = [f"{label} ({low} to {high})" for label, (low, high) in gaps.items()]
        notes.append(not_chosen_note(listed, prices.cost))
    return rows.filter(~rows["policy"].is_in(list(gaps)))


def _machines(
    trace: Trace, draft: str, options: AdviseOptions, blocks: OwnBlocks, limit: int | None, notes: list[str]
) -> tuple[list[_Machine], _Machine | None, tuple[str, ...]]:
    """What is compared at which prices; what is left out is added to ``notes``.

    Returns:
        prices and policies of each batch size; of one text alone where batch sizes are modelled from it; and which of
        chains and trees were asked for at any batch size.
    """
    costs, draft_set = paths(options.cost), trace.manifest.draft_sets[draft]
    measured = _measured(trace, draft, costs, limit)
    unused = [str(batch) for batch in sorted(measured) if batch not in options.batch] if costs else []
    if unused and unused != ["1"]:  # that of one text is what others are worked out from
        notes.append(f"Cost files of batch sizes {', '.join(unused)} were given and not asked for with --batch.")
    machines, left, kinds = [], list[str](), dict[str, None]()
    beyond: dict[int, str] = {}
    for batch in sorted(set(options.batch)):
        try:
            prices = measured[batch] if batch in measured else _worked_out(batch, measured)
        except CostError as error:
            beyond[batch] = str(error).rstrip(".")
            continue
        assert prices.cost is not None
        policies, asked_for = _policies(trace, draft, options, blocks, prices, left)
        kinds |= dict.fromkeys(CHAIN if policy.name == CHAIN else TREE for policy in asked_for)
        if not policies:
            beyond[batch] = "no policy has a price there"
            continue
        if draft_set.is_head and prices.file is not None and not prices.file.is_imported:
            notes.append(
                f"The latency profile has all {draft_set.depth} passes of the head in every round; engines stop at the "
                "chain's length, so shorter chains are faster there."
            )
        of = BatchPrices(batch, prices.cost.cost_id, prices.heading, batch not in measured, prices.caveats)
        machines.append((of, PoliciesOnMachine(prices, (*parse_policies([BASELINE]), *policies))))
    if not machines:
        raise CostError([*left, *beyond.values()][0])
    if beyond:
        several = "Batch size" if len(beyond) == 1 else "Batch sizes"
        left.append(f"{several} left out: {', '.join(map(str, beyond))}; {next(iter(beyond.values()))}.")
    notes += left
    alone = measured.get(1)
    if alone is None or alone.cost is None or not any(of.what_if for of, _ in machines):
        return machines, None, tuple(kinds)
    of = BatchPrices(1, alone.cost.cost_id, alone.heading, what_if=False)
    return machines, (of, PoliciesOnMachine(alone, tuple(parse_policies([BASELINE])))), tuple(kinds)


def _measured(trace: Trace, draft: str, costs: Sequence[Path], limit: int | None) -> dict[int, Prices]:
    by_batch = measured_prices(costs, trace, draft, limit)
    for prices in by_batch.values():
        if prices.cost is None:
            raise CostError(f"advice needs a latency profile. {prices.no_latency_reason}")
        if prices.file is not None and not prices.file.has_plain:
            raise CostError(f"advice is over autoregressive decoding, and {prices.why_unpriced(_BASELINE)}")
    return by_batch


def _worked_out(batch: int, measured: dict[int, Prices]) -> Prices:
    if 1 not in measured:
        raise CostError(
            f"there is no latency profile of {batch} texts at a time, and none of one text to work it out from; give "
            "either with --cost"
        )
    return prices_of_batch(measured[1], batch)


def _policies(
    trace: Trace, draft: str, options: AdviseOptions, blocks: OwnBlocks, prices: Prices, notes: list[str]
) -> tuple[list[NamedPolicy], list[NamedPolicy]]:
    """Those policies whose rounds all have a price, and all that were asked for; what is left out is in ``notes``."""
    draft_set, typed, engine = trace.manifest.draft_sets[draft], options.policies, options.engine
    cost = prices.cost
    assert cost is not None
    default = [
        *_default_chains(draft_set, blocks, cost.most_drafted),
        *trees_of(trace, draft_set, _sizes(prices), engine),
    ]
    asked = given_policies(typed) or default
    parsed = parse_policies(asked, TraceArtefacts(prices, trace, draft)) if asked else []
    policies = {policy.policy_id: policy for policy in parsed if policy.name != BASELINE}
    if typed and not policies:
        raise UsageError("autoregressive decoding is what policies are compared with; name another with -p")
    beyond: list[str] = []
    unpriced: dict[str, list[str]] = {}
    fitting: list[NamedPolicy] = []
    for policy in policies.values():
        most = most_drafted(policy.policy.budget, draft_set.depth)
        if most > cost.most_drafted:
            beyond.append(policy.label)
        elif why := prices.why_unpriced(policy.policy):
            unpriced.setdefault(why, []).append(policy.label)
        elif not typed and prices.gap_of(policy.policy, most) is not None:
            notes.append(_GAPS)
        else:
            fitting.append(policy)
    notes += [f"Left out: {_some(labels)}: {why}" for why, labels in unpriced.items()]
    if beyond:
        notes.append(
            f"Batch {prices.batch}: left out, since the latency profile ends at {cost.most_drafted} drafted tokens of "
            f"each text: {_some(beyond)}."
        )
    return fitting, list(policies.values())


_GAPS = "Not tried: sizes that nobody timed, where those around them lie far apart."


def _some(labels: Sequence[str]) -> str:
    """The first labels of a list."""
    more = f" and {len(labels) - _NAMED:,} more" if len(labels) > _NAMED else ""
    return f"{', '.join(labels[:_NAMED])}{more}"


def _sizes(prices: Prices) -> list[int]:
    """Sizes of trees that are tried; where nobody timed one, the nearest that somebody timed stand in its place."""
    assert prices.cost is not None
    timed = () if prices.file is None else prices.file.node_counts
    near = {size for budget in _BUDGETS for size in gap_around(timed, budget) or (budget,)}
    return [size for size in sorted(near) if size <= prices.cost.most_drafted]


def _default_chains(draft_set: DraftSet, blocks: OwnBlocks, most: int) -> list[str]:
    """Chains of every length, or of the recorded blocks where several were recorded."""
    lengths = sorted({*blocks, draft_set.depth}) if blocks else range(1, draft_set.depth + 1)
    listed = "/".join(str(length) for length in lengths if length <= most)
    return [f"chain:length={listed}"] if listed else []
