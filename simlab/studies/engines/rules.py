"""Rules of serving engines on a trace: their speed against hindsight, what stale confidences cost, what is believed."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np

from simlab.analysis.engine_rules import (
    CALIBRATION_NOTES,
    SCHEDULE_NOTES,
    Row,
    ScheduleSums,
    calibration_text,
    calibrations,
    hindsight,
    prompts_of,
    schedules_text,
    watched,
)
from simlab.analysis.table.text import within_width
from simlab.arrays import Doubles
from simlab.cost import STAGES, CostTable
from simlab.errors import CostError, TraceError
from simlab.options import (
    batch_sizes,
    cost_option,
    draft_set_option,
    limit_option,
    option,
    path_or_none,
    progress_option,
    study,
    trace_option,
)
from simlab.policies.composition import Composition, check_batch
from simlab.policies.engine.lock_step import TreeChoice, rounds_of_policy, serve, with_filler_requests
from simlab.policies.parsing.parse import parse_policies
from simlab.policy import AnyPolicy
from simlab.recorded import RecordedTexts, texts_of
from simlab.studies.inputs.artefacts import TraceArtefacts
from simlab.studies.inputs.prices import Prices, notes_on, prices_for_trace, prices_of_batch
from simlab.studies.inputs.progress import progress_bar
from simlab.studies.inputs.trace import TraceSource, draft_set_named, first_prompts, opened
from simlab.studies.result import StudyResult
from simlab.traces.reader import Trace

BATCHES = (1, 4, 16)
LARGEST_TREES = 64
"""Drafted tokens of joint-throughput's trees, of all texts together, or whole blocks where these are more."""

HINDSIGHT, JOINT = "hindsight", "joint-throughput, trees"
SHIPPED, ALL_LABELS = "vllm-adaptive", "vllm-adaptive, all labels"
SCHEDULES: Mapping[str, str] = {
    "chain": "chain",
    "vllm-adaptive, stale=0": "vllm-adaptive:staleness=0",
    "vllm-adaptive, stale=2": "vllm-adaptive:staleness=2",
    "vllm-adaptive, drafter's own": "vllm-adaptive:estimator=drafter",
    "sglang-dspark": "sglang-dspark",
    "sglang-dspark, stale=0": "sglang-dspark:staleness=0",
    "sglang-dspark, stale=1": "sglang-dspark:staleness=1",
    "sglang-dspark, probe=1": "sglang-dspark:probe=1",
}
"""Policies by what tables call them, beside those that are watched."""

NUM_SCHEDULES = len(SCHEDULES) + 4


@dataclass(frozen=True, eq=False, repr=False)
class EngineRules(StudyResult):
    """What rules of engines come to.

    Attributes:
        trace: the recording.
        draft: the draft set.
        prices: by batch size, what they are of.
        schedules: a row for each schedule at each batch size.
        calibration: a row for each estimator, position and batch size.
        notes: on prompts and batch sizes that were left out, and on prices, a sentence each.
    """

    trace: Trace
    draft: str
    prices: Mapping[int, str]
    schedules: Sequence[Row]
    calibration: Sequence[Row]
    notes: Sequence[str] = ()

    def to_json(self) -> dict[str, object]:
        """The value of ``simlab study engine-rules --json``."""
        return {
            "text_id": self.trace.text_id,
            "draft_ids": {self.draft: self.trace.draft_ids[self.draft]},
            "prices": [{"batch": batch, "of": prices} for batch, prices in self.prices.items()],
            "rows": list(self.schedules),
            "calibration": list(self.calibration),
            "notes": list(self.notes),
        }

    def text(self) -> str:
        """The tables as ``simlab study engine-rules`` prints them."""
        lines = [f"trace    {self.trace.label} (text {self.trace.text_id})"]
        for batch, prices in self.prices.items():
            lines += ["", within_width(f"{batch} at a time: {prices}"), "", schedules_text(self.schedules, batch)]
            lines += ["", calibration_text(self.calibration, batch)]
        lines += [""] * bool(self.notes) + [within_width(note) for note in self.notes]
        return "\n".join([*lines, "", SCHEDULE_NOTES, CALIBRATION_NOTES])


@dataclass(frozen=True)
class EngineRulesOptions:
    """On which recording the rules of engines are replayed, at which batch sizes."""

    DETAILS: ClassVar = """\
vLLM's adaptive verification and SGLang's DSpark planner cut the chains of all requests where tokens of the
whole pass bring the most per second. Both are replayed as their released code has them (`simlab policies` says what
differs), at each --batch: how fast is each, what is missing to a schedule that knows what the target accepts, and to
trees under joint-throughput? What do stale confidences cost? Is what vLLM learns calibrated, position by position, and
what does it miss because it never sees the tokens that it cut?
Without --trace it takes the small packaged trace, without --cost the packaged latency profile; for more texts at a time
than the profile is of, latencies are hypothetical, as --what-if batch=N of `simlab replay` reckons them.

  simlab study engine-rules
  simlab study engine-rules --trace runs/mine --cost runs/cost.json --batch 1,8 --json"""

    trace: TraceSource | None = trace_option()
    _: KW_ONLY
    cost: str | Path | None = cost_option()
    draft_set: str | None = draft_set_option()
    batch: Sequence[int] = option(BATCHES, "texts at a time", "N,N,...", read=batch_sizes)
    limit: int | None = limit_option()
    progress: bool | None = progress_option()


@study(EngineRulesOptions)
def engine_rules(options: EngineRulesOptions) -> EngineRules:
    """Replay the rules of vLLM and SGLang, hindsight and simlab's joint rule on one trace."""
    recording = opened(options.trace, [] if options.cost is None else [Path(options.cost)])
    name = draft_set_named(recording, options.draft_set)
    texts = texts_of(list(recording.recorded(name, first_prompts(recording, options.limit))))
    if not len(texts.roots.token_indices):
        raise TraceError(f"{recording.location} holds no rounds, so there is nothing to replay")
    measured = prices_for_trace(path_or_none(options.cost), recording, name, options.limit)
    if measured.cost is None:
        raise CostError(
            "rules of engines weigh tokens against latency, and there is no latency profile. "
            f"{measured.no_latency_reason}"
        )
    headings: dict[int, str] = {}
    schedules, calibration = list[Row](), list[Row]()
    batches, left_out = _reached(options.batch, measured, recording.manifest.draft_sets[name].depth)
    with progress_bar(options.progress, "engine-rules", "schedule", len(batches) * NUM_SCHEDULES) as bar:
        for batch in batches:
            prices = prices_of_batch(measured, batch)
            headings[batch] = prices.heading
            rows, believed = _served(texts, batch, prices, TraceArtefacts(prices, recording, name), bar.update)
            schedules += rows
            calibration += believed
    notes = [*notes_on(recording, [measured]), *filter(None, [left_out])]
    return EngineRules(recording, name, headings, schedules, calibration, notes)


def _reached(batches: Sequence[int], prices: Prices, depth: int) -> tuple[list[int], str]:
    """The batch sizes whose whole blocks have a price, and a sentence on others that nobody asked for by name."""
    assert prices.cost is not None
    most = (prices.cost.most_drafted + 1) * prices.batch
    beyond = [batch for batch in batches if batch * (depth + 1) > most]
    if not beyond or tuple(batches) != BATCHES or len(beyond) == len(batches):
        return list(batches), ""
    return [batch for batch in batches if batch not in beyond], (
        f"Left out: batches of {', '.join(map(str, beyond))}, since {prices.cost.label} ends at a pass of {most:,} "
        f"tokens; {prices.cost.how_to_reach()}."
    )


def _served(
    texts: RecordedTexts, batch: int, prices: Prices, artefacts: TraceArtefacts, advance: Callable[[], object]
) -> tuple[list[Row], list[Row]]:
    """The rows of all schedules at one batch size, and what was believed in the rounds of those that are watched."""
    cost, rows = prices.cost, texts.rows
    assert cost is not None
    assert rows is not None
    prompts = prompts_of(texts)
    num = int(prompts.max()) + 1

    def policy_of(typed: str) -> AnyPolicy:
        (named,) = parse_policies([typed], artefacts)
        check_batch(named.policy, batch)
        return named.policy

    def sums(label: str, choose: TreeChoice, charged: CostTable) -> ScheduleSums:
        served = serve(texts, batch, choose, with_filler_requests(len(texts.sequences)))
        seconds = served.seconds(texts, replace(charged, draws=()), STAGES).sum(axis=1)
        of_round = prompts[np.searchsorted(texts.roots.firsts, served.roots, side="right") - 1]
        tokens = np.bincount(prompts, [len(sequence.text) - 1 for sequence in texts.sequences], num).astype(np.int64)
        rounds = np.bincount(of_round, minlength=num).astype(np.int64)
        drafted = np.bincount(of_round, served.num_drafted, num).astype(np.int64)
        advance()
        waited: Doubles = np.bincount(prompts, seconds, num).astype(np.float64)
        return ScheduleSums(label, tokens, rounds, drafted, waited)

    def replayed(label: str, typed: str) -> ScheduleSums:
        policy = policy_of(typed)
        return sums(label, rounds_of_policy(policy, texts), cost.charged(policy))

    rule = policy_of("vllm-adaptive")
    assert isinstance(rule, Composition)
    (shipped, seen), (all_labels, all_seen) = (watched(rule, texts, knows_all) for knows_all in (False, True))
    of_shipped, of_told = sums(SHIPPED, shipped, cost), sums(ALL_LABELS, all_labels, cost)
    best = sums(HINDSIGHT, hindsight(texts, cost), cost)
    trees = int(min(max(LARGEST_TREES, batch * rows.counts.shape[1]), batch * cost.most_drafted))
    joint = replayed(JOINT, f"joint-throughput:budget={trees}")
    chain, *others = (replayed(label, typed) for label, typed in SCHEDULES.items())
    believed = [
        *calibrations("drafter's own", seen, texts, own=False),
        *calibrations(SHIPPED, seen, texts, own=True),
        *calibrations(ALL_LABELS, all_seen, texts, own=True),
    ]
    every = [best, joint, chain, of_shipped, of_told, *others]
    return [schedule.row(batch, best, joint) for schedule in every], [{"batch": batch, **row} for row in believed]
