"""Go or no-go for an engineer: plain decoding, a chain or a tree at each batch size, on a trace and prices."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from simlab.analysis.advise.advice import CHAIN, TREE, BatchAdvice, Chosen, batch_advice, chosen_policies, judged
from simlab.analysis.advise.rows import advice_row
from simlab.analysis.advise.text import advice_text, needs, verdicts
from simlab.analysis.export.batch_choices import BatchPrices
from simlab.analysis.table.text import within_width
from simlab.channels.needs import channels_read
from simlab.cost import CostTable
from simlab.errors import CostError, UsageError
from simlab.policies.parsing.parse import NamedPolicy, parse_policies
from simlab.sequence_replay import check_needs
from simlab.studies.inputs.artefacts import TraceArtefacts
from simlab.studies.inputs.batch_prices import BatchPricing, priced_batches
from simlab.studies.inputs.progress import progress_bar
from simlab.studies.inputs.trace import TraceSource, draft_set_named, first_prompts, opened
from simlab.studies.replay.rows import ReadyRows, policy_row, results_of
from simlab.studies.replay.run import ROOTS_AT_ONCE
from simlab.studies.result import StudyResult
from simlab.traces.reader import Trace
from simlab.traces.results.rows import joined_results

BATCHES = (1, 2, 4, 8, 16, 32, 64)
TREES = ("ddtree:budget=4/8/16/32/64",)
"""Batch sizes and trees that are asked about where nothing is named."""


@dataclass(frozen=True, eq=False, repr=False)
class Advice(StudyResult):
    """What to run at each batch size.

    Attributes:
        trace: that it is reported on.
        draft: the draft set.
        chosen_on: where policies were chosen, in words.
        num_prompts: of the report.
        batches: one for each batch size, ascending.
        remarks: what must be known beside, a sentence each.
    """

    trace: Trace
    draft: str
    chosen_on: str
    num_prompts: int
    batches: tuple[BatchAdvice, ...]
    remarks: tuple[str, ...]

    ROWS = "batches"

    def to_json(self) -> dict[str, object]:
        """The value of ``simlab advise --json``."""
        return {
            "text_id": self.trace.text_id,
            "draft_ids": {self.draft: self.trace.draft_ids[self.draft]},
            "prompts": self.num_prompts,
            "chosen_on": self.chosen_on,
            "verdicts": verdicts(self.batches),
            "batches": [advice_row(one) for one in self.batches],
            "needs": needs(self.batches),
            "remarks": list(self.remarks),
        }

    def text(self) -> str:
        """The page as ``simlab advise`` prints it."""
        kept, manifest = self.trace.manifest.draft_sets[self.draft], self.trace.manifest
        named = {one.prices.heading: None for one in self.batches if not one.prices.what_if}
        heading = [
            f"trace    {self.trace.place} (text {self.trace.text_id}), {self.num_prompts} prompts",
            f"models   {manifest.target.name} with {kept.model.name}, block {kept.block_size}",
            *(f"latency  {one}" for one in named),
            f"chosen   {self.chosen_on}",
        ]
        return "\n\n".join(
            [within_width("\n".join(heading)), advice_text(self.batches), within_width("\n".join(self.remarks))]
        )


def advise(
    trace: TraceSource | None = None,
    *,
    costs: Sequence[str | Path] = (),
    batches: Sequence[int] | None = None,
    policies: Sequence[str] = TREES,
    choose_on: TraceSource | None = None,
    draft: str | None = None,
    limit: int | None = None,
    progress: bool | None = None,
) -> Advice:
    """Which chain or tree is fastest at each batch size, whether it wins, and what would have to change.

    Args:
        trace: a trace, or where one is; None: the sample that comes with simlab.
        costs: cost files, one of each batch size; what is missing is worked out from that of one text.
        batches: batch sizes; None: 1, 2, 4 ... 64, as far as there are prices.
        policies: trees, as they are typed behind ``-p``.
        choose_on: another trace, of the same models, on which chain and tree are chosen.
        draft: the draft set; None: the only one.
        limit: the first so many prompts only.
        progress: whether a bar is shown; None: on a terminal.

    Raises:
        SimlabError: something is not there, or does not fit the rest.
    """
    found = opened(trace)
    name = draft_set_named(found, draft)
    paths = [Path(one) for one in costs]
    everything = _priced(paths, batches, found, name, limit)
    priced = [one for one in everything if _reach(one) > 0]
    if not priced:
        raise CostError("the prices hold no drafted token at these batch sizes; ask for smaller --batches")
    dev = None if choose_on is None else opened(choose_on)
    if dev is not None:
        _check_same_models(found, dev)
    advice = list[BatchAdvice]()
    sides = [found] if dev is None else [dev, found]
    total = len(priced) * sum(len(first_prompts(one, limit)) for one in sides)
    with progress_bar(progress, "advise", "sequence", total) as bar:
        for one in priced:
            named = _policies(policies, one, found, name)
            kinds = {policy.label: CHAIN if policy.name == "chain" else TREE for policy in named[1:]}
            prices = _about(one)
            chosen: Chosen | None = None
            for side in sides:
                some = named if chosen is None else [each for each in named if each.label in _labels(named, chosen)]
                rows = _rows(side, draft_set_named(side, draft), one, some, limit, bar.update)
                chosen = chosen or chosen_policies(rows, kinds, prices)
            assert chosen is not None
            advice.append(batch_advice(rows, chosen, prices))
    kept, wanted = found.manifest.draft_sets[name], first_prompts(found, limit)
    return Advice(
        trace=found,
        draft=name,
        chosen_on="on these very prompts, so what is chosen looks better than it is; --choose-on takes another trace"
        if dev is None
        else f"on {dev.place} (text {dev.text_id})",
        num_prompts=len({(found.texts[at].prompt.dataset, found.texts[at].prompt.prompt_id) for at in wanted}),
        batches=judged(advice),
        remarks=tuple(_notes(everything, kept.block_size)),
    )


def _priced(
    paths: Sequence[Path], batches: Sequence[int] | None, trace: Trace, draft: str, limit: int | None
) -> list[BatchPricing]:
    """Prices of the batch sizes; where none is named, of the usual ones up to the first that these do not reach."""
    if batches is not None:
        return priced_batches(paths, batches, trace, draft, limit)
    found: list[BatchPricing] = []
    for batch in BATCHES:
        try:
            found += priced_batches(paths, [batch], trace, draft, limit)
        except CostError:
            if not found:
                raise
            break
    return found


def _cost(one: BatchPricing) -> CostTable:
    if one.prices.cost is None:
        raise CostError(f"advice needs a latency profile. {one.prices.why_none}")
    return one.prices.cost


def _reach(one: BatchPricing) -> int:
    """The most drafted tokens of each text that have a price."""
    return _cost(one).most_drafted


def _about(one: BatchPricing) -> BatchPrices:
    return BatchPrices(one.batch, _cost(one).cost_id, one.prices.heading, one.what_if)


def _policies(typed: Sequence[str], one: BatchPricing, trace: Trace, draft: str) -> list[NamedPolicy]:
    """Plain decoding, all chains, and the trees that have a price at this batch size."""
    cost, depth = _cost(one), trace.manifest.draft_sets[draft].depth
    chains = parse_policies(["ar", f"chain:length=1..{min(depth, cost.most_drafted)}"])
    trees = parse_policies(typed, TraceArtefacts(one.prices, trace, draft))
    for policy in trees:
        if policy.name in ("ar", "chain"):
            raise UsageError(
                f"plain decoding and every chain are always there; -p names trees: leave {policy.label} out"
            )
        check_needs(policy.policy, trace.holds(draft))
    return [*chains, *(each for each in trees if each.policy.budget <= cost.most_drafted)]


def _labels(named: Sequence[NamedPolicy], chosen: Chosen) -> set[str]:
    return {named[0].label, *chosen.values()}


def _rows(
    trace: Trace,
    draft: str,
    one: BatchPricing,
    named: Sequence[NamedPolicy],
    limit: int | None,
    update: Callable[[int], object],
) -> pl.DataFrame:
    ready = ReadyRows([policy_row(policy, one.prices) for policy in named])
    channels = channels_read(policy.policy for policy in named)
    found = []
    for some in trace.recorded_texts(draft, first_prompts(trace, limit), ROOTS_AT_ONCE, channels):
        found.append(results_of(ready.rows, ready.sums(some), some, trace, draft))
        update(len(some.sequences))
    return joined_results(found)


def _check_same_models(trace: Trace, other: Trace) -> None:
    if not trace.manifest.target.is_same(other.manifest.target):
        raise UsageError(
            f"--choose-on {other.place} is of the target {other.manifest.target.name}, and the trace of "
            f"{trace.manifest.target.name}; give one of the same models"
        )


def _notes(priced: Sequence[BatchPricing], block: int) -> list[str]:
    notes = [
        (
            "Speedups are predicted, over plain decoding at the same batch size, with 95 % intervals over prompts and "
            "by the noise of the prices; * significant among all comparisons here (Holm). Without a winner the "
            "simpler one is run."
        )
    ]
    what_if = [str(one.batch) for one in priced if one.what_if]
    if what_if:
        notes.append(
            f"WHAT IF, not measured: prices at batch {', '.join(what_if)} are those of one text in wider passes; give "
            "a cost file of each batch size with --cost."
        )
    reach = ", ".join(f"{_reach(one):,} at batch {one.batch}" for one in priced)
    notes.append(
        f"Prices end at so many drafted tokens of each text: {reach}; larger trees, and batch sizes with none, "
        "are left out."
    )
    notes.append(
        f"A chain shorter than {block - 1} is the first tokens of the recorded block; an engine that drafts a smaller "
        "block drafts other tokens: `simlab record --block N` records those, `simlab crosscheck` shows it."
    )
    return notes
