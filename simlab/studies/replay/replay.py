"""The replay of policies on a recorded trace, and the table of what they did."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from os.path import realpath
from pathlib import Path
from typing import ClassVar, TypeAlias

import numpy as np

from simlab.analysis.table.summaries import summarise
from simlab.analysis.table.text import sentences_html, summaries_html, within_width
from simlab.channels.needs import channels_read
from simlab.errors import TraceError, UsageError, as_usage_error
from simlab.ids import VERSION
from simlab.options import (
    by_option,
    costs_option,
    draft_set_option,
    limit_option,
    one_batch_option,
    option,
    out_option,
    paths,
    policies_option,
    progress_option,
    study,
    threads_option,
    trace_option,
)
from simlab.policies.engine.replay import Replay
from simlab.policies.parsing.parse import NamedPolicy
from simlab.policies.routing.routed_policy import RoutedPolicy
from simlab.policy import GivenPolicies
from simlab.studies.inputs.artefacts import PoliciesOnMachine, in_sample_note, priced_recording
from simlab.studies.inputs.prices import Prices, notes_on
from simlab.studies.inputs.trace import TraceSource, first_prompts
from simlab.studies.replay.batch import batch_note, replay_batches
from simlab.studies.replay.run import ReplayRun, replay_trace
from simlab.studies.replay.text import heading, json_value, tables_text
from simlab.studies.result import StudyResult
from simlab.traces.format.lock import exclusive_lock
from simlab.traces.reader import Trace
from simlab.traces.results.files import NotedPart, ResultStore
from simlab.traces.results.rounds_file import RoundsFile
from simlab.traces.results.rows import Results, results_at
from simlab.workers.on_ray import ray_options, workers_on
from simlab.workers.parts import Part, parse_part, ray_option, shard_option, workers_option

# A replay of one part of the prompts: what it cannot be combined with, and what its file says of the whole.


def own_part(shard: str | Part | None) -> Part | None:
    """The part that was asked for; None: everything, as the only part there is means too."""
    with as_usage_error():
        part = parse_part(shard) if isinstance(shard, str) else shard
    return None if part is None or part.is_whole else part


def check_can_be_split(part: Part | None, batch: int | None, out: str | Path | None) -> None:
    """Refuse a part where there is none."""
    if part is None:
        return
    if batch is not None:
        raise UsageError("--batch replays all texts together, so it takes no --shard")
    if out is None:
        raise UsageError("--shard makes one part of a result file; name it with --out FILE")


def replayed_part(part: Part, trace: Trace, draft: str, limit: int | None) -> NotedPart:
    """What the file of a part says of the replay that it is a part of."""
    of = {
        "text_id": trace.text_id,
        "draft_id": trace.draft_ids[draft],
        "simlab_version": VERSION,
        "sequences": len(first_prompts(trace, limit)),
    }
    return NotedPart(part, of)


# How often routers took each of their routes.


ROOTS_AT_ONCE = 4096
"""Texts of as many positions are looked at together."""

RouteShares: TypeAlias = Mapping[str, Mapping[str, float]]
"""By the label of a router, and by a route as it is typed: the share of the router's rounds that it served."""


def route_shares(trace: Trace, draft: str, policies: Iterable[NamedPolicy], sequences: Sequence[int]) -> RouteShares:
    """How often each router among some policies took each route; no entry for any other policy.

    Routers are replayed once more for it: result rows do not say who served a round.

    Args:
        trace: the recording.
        draft: the draft set.
        policies: any.
        sequences: the texts.
    """
    routers = {policy.label: policy.policy for policy in policies if isinstance(policy.policy, RoutedPolicy)}
    if not routers:
        return {}
    replay = Replay([(policy, None) for policy in routers.values()])
    counts = [np.zeros(len(policy.routes), np.int64) for policy in routers.values()]
    channels = channels_read(routers.values())
    for texts in trace.recorded_texts(draft, sequences, ROOTS_AT_ONCE, channels):
        for index, rounds in enumerate(replay.rounds(texts)):
            if rounds.routes is not None:
                counts[index] += np.bincount(rounds.routes, minlength=len(counts[index]))
    return {
        label: dict(zip(policy.route_labels, (total / max(total.sum(), 1)).tolist(), strict=True))
        for (label, policy), total in zip(routers.items(), counts, strict=True)
    }


def routes_text(shares: RouteShares) -> str:
    """A line for each router."""
    lines = [
        f"{label}: {', '.join(f'{100 * share:.0f} % {route}' for route, share in routes.items())}"
        for label, routes in shares.items()
    ]
    return "\n".join(["Rounds by route:", *(f"  {line}" for line in lines)])


WITHOUT_CHOICE = ("ddtree:budget=16/64",)
"""What is replayed where no policy is named, besides autoregressive decoding, the chain and the bounds."""


@dataclass(frozen=True, eq=False, repr=False)
class ReplayTable(StudyResult):
    """What policies did on a trace, with intervals over prompts.

    Attributes:
        trace: the recording.
        draft: the draft set.
        machines: policies and prices, one of each machine.
        rows: result rows, one per policy, sequence and machine; as ``simlab replay --out`` writes them.
        by: what the tables are cut by: ``dataset``, ``context`` or ``turn``; None: one table of all.
        batch: texts at a time; None: each alone.
        routes: of each router, the share of its rounds that each route served.
        part: which part of the prompts; None: all of them.
    """

    trace: Trace
    draft: str
    machines: tuple[PoliciesOnMachine, ...]
    rows: Results
    by: str | None = None
    batch: int | None = None
    routes: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    part: Part | None = None

    PICTURES: ClassVar[str] = "simlab.studies.plot:replay_pictures"

    @property
    def exported(self) -> Results:
        """The result rows, which `simlab.export` makes a table of."""
        return self.rows

    @property
    def prices(self) -> tuple[Prices, ...]:
        """The latency profile of each machine."""
        return tuple(machine.prices for machine in self.machines)

    @property
    def in_sample(self) -> tuple[str, ...]:
        """Labels of policies that were fitted on the very texts."""
        return tuple(dict.fromkeys(label for machine in self.machines for label in machine.in_sample))

    @property
    def unpriced_notes(self) -> tuple[str, ...]:
        """Why policies have no seconds where others have, in a few sentences for each machine."""
        return tuple(dict.fromkeys(filter(None, (machine.unpriced_note() for machine in self.machines))))

    def to_json(self) -> dict[str, object]:
        """The value that ``simlab replay --json`` prints; its notes are of prompts, prices and policies left out."""
        value = json_value(self.trace, self.draft, self.rows, self.by, *self.prices, in_sample=self.in_sample)
        value |= {} if self.part is None else {"part": str(self.part)}
        value |= {"route_shares": {label: dict(shares) for label, shares in self.routes.items()}} if self.routes else {}
        left_out = [machine.left_out for machine in self.machines if machine.left_out]
        return value | {
            "notes": [*notes_on(self.trace, self.prices), *dict.fromkeys(left_out)],
            "unpriced": {label: why for machine in self.machines for label, why in machine.unpriced.items()},
        }

    def text(self) -> str:
        """The tables as ``simlab replay`` prints them."""
        first = heading(self.trace, self.draft, self.rows, *self.prices)
        parts = [within_width(first)]
        parts += [] if self.part is None else [self.part.note]
        parts += [tables_text(self.rows, self.prices, self.by)] if self.rows.height else []
        parts += [] if self.batch is None else [batch_note(self.batch)]
        parts += [routes_text(self.routes)] if self.routes else []
        parts += [in_sample_note(self.in_sample)] if self.in_sample else []
        return "\n\n".join([*parts, *map(within_width, self.unpriced_notes)])

    def _repr_html_(self) -> str:
        parts = [sentences_html(heading(self.trace, self.draft, self.rows, *self.prices))]
        for price in self.prices:
            rows = results_at(self.rows, price.cost_id)
            slices = [] if self.by is None else summarise(rows, self.by)
            parts += [sentences_html(price.heading)] if len(self.machines) > 1 else []
            parts.append(
                summaries_html(summarise(rows), slices, self.by or "", price.no_latency_reason, price.speedup_note)
            )
        parts += [sentences_html(in_sample_note(self.in_sample))] if self.in_sample else []
        return "\n".join([*parts, *map(sentences_html, self.unpriced_notes)])


@dataclass(frozen=True)
class ReplayOptions:
    """Which policies are replayed on which recording, and what is written."""

    DETAILS: ClassVar = """\
Without --trace it takes the small packaged trace; for a policy that reads what this one lacks, the packaged trace
smollm2-135m-every-channel, 8 short texts that show that the policy runs and say little about it.
The table always has autoregressive decoding, the chain and two oracle upper bounds (rows `hindsight:...`), which know
the target's text and are no policies; without -p it has ddtree:budget=16/64 too.
Speeds are estimated from a latency profile: that of --cost FILE, else the packaged one for the trace's models, if
there is one. `simlab profile` measures a profile on this machine.
Policies that weigh tokens against latency read the same profile, unless they name another: cost=FILE.
Several --cost give a table for each, and all rows in one result file. --what-if adds to each of them a hypothetical
profile, not measured: "verify*0.5" scales a stage (draft, select, verify, commit, plain); plain, a token of
autoregressive decoding, is scaled with verify unless it is named. tile=64 gives a pass the latency of one that fills
whole tiles of 64 tokens, batch=8 lets 8 texts share a pass, convex takes the closest convex curve; a comma joins
changes.
--batch N replays texts as a server does that decodes N at a time, round after round together; with it
-p joint:budget=B shares B drafted tokens out over the whole batch, and joint-throughput:budget=B chooses by latency
how many, up to B. The latencies of N texts are worked out from those of one text as with --what-if, unless a file of
`simlab profile --batch N` is given.

  simlab replay -p ddtree:budget=16/32/64
  simlab replay --trace runs/mine -p chain:length=1..7 --by dataset --out results.parquet
  simlab replay --trace runs/mine -p ddtree:budget=1..512 -p caddtree --cost a.json --cost b.json
    --out results.parquet --resume
  simlab replay -p ddtree:budget=16..256 --what-if "verify*0.5" --what-if verify*0.5,tile=64
  simlab replay --batch 4 -p ddtree:budget=8/16 -p joint:budget=32/64
  simlab replay --trace runs/mine -p ddtree:budget=1..512 --shard 0/4 --out part0.parquet"""

    RESUME: ClassVar = "finished rows are kept: add --resume to continue {out}"

    trace: TraceSource | None = trace_option()
    policies: GivenPolicies = policies_option()
    _: KW_ONLY
    cost: str | Path | Sequence[str | Path] = costs_option()
    what_if: Sequence[str] = option(
        (),
        'a hypothetical profile beside the one it changes: "verify*0.5,tile=64"; may be repeated',
        "CHANGES",
        repeats=True,
    )
    draft_set: str | None = draft_set_option()
    batch: int | None = one_batch_option()
    by: str | None = by_option()
    limit: int | None = limit_option()
    threads: int | None = threads_option()
    ray: str | None = ray_option()
    workers: int | None = workers_option()
    progress: bool | None = progress_option()
    out: str | Path | None = out_option(
        "write the result rows, one per policy, sequence and cost file", "Result rows", "results.parquet", "files"
    )
    resume: bool = option(
        False, "continue with --out, and with --rounds: what is finished is kept and not made again", group="files"
    )
    rounds: str | Path | None = out_option(
        "write a row for each round of each policy, and why it ended", "Rows of rounds", "rounds.parquet", "files"
    )
    shard: str | Part | None = shard_option(
        "replay one part of the prompts into --out, on each machine another: 0/4 to 3/4", "files"
    )


@study(ReplayOptions)
def replay(options: ReplayOptions) -> ReplayTable:
    """Replay policies on a recorded trace, exactly.

    Autoregressive decoding, the chain and the oracle upper bounds are always in the table. The rows are the same on
    every machine.

    Raises:
        SimlabError: a policy cannot be made, or trace, latency profile and options do not fit each other; nothing was
        replayed.
    """
    if options.resume and options.out is None:
        raise UsageError("--resume continues a result file; name it with --out FILE")
    if options.batch is not None and (options.resume or options.rounds is not None):
        raise UsageError("--batch replays all texts together; it takes neither --resume nor --rounds")
    part = own_part(options.shard)
    check_can_be_split(part, options.batch, options.out)
    result_file, rounds_file = (None if path is None else Path(path) for path in (options.out, options.rounds))
    if result_file is not None and rounds_file is not None and realpath(result_file) == realpath(rounds_file):
        raise UsageError(f"--out and --rounds both name {result_file}; give two files")
    with exclusive_lock(result_file), exclusive_lock(rounds_file, "--rounds"):
        recording, draft, machines = priced_recording(
            options.trace,
            options.draft_set,
            options.policies or WITHOUT_CHOICE,
            paths(options.cost),
            options.limit,
            options.what_if,
            options.batch,
            by_default=not options.policies,
        )
        if not recording.sequences():
            raise TraceError(f"{recording.location} holds no sequences, so there is nothing to replay")
        noted = None if part is None else replayed_part(part, recording, draft, options.limit)
        store = None if result_file is None else ResultStore(result_file, options.resume, noted)
        file_of_rounds = None if rounds_file is None else RoundsFile(rounds_file, options.resume, noted)
        with workers_on(ray_options(options.ray, options.workers), options.threads) as workers:
            run = ReplayRun(workers, options.progress, store, file_of_rounds, part=part)
            if options.batch is None:
                rows = replay_trace(recording, draft, machines, options.limit, run)
            else:
                rows = replay_batches(recording, draft, machines, options.limit, options.batch, run)
        if store is not None:
            store.finish(rows, recording.sequence_counts)
        if file_of_rounds is not None:
            file_of_rounds.finish(rows)
        every = {policy.label: policy for machine in machines for policy in machine.policies}
        routes = route_shares(recording, draft, every.values(), rows["sequence"].unique().sort().to_list())
    return ReplayTable(recording, draft, tuple(machines), rows, options.by, options.batch, routes, part)
