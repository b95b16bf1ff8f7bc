"""The replay of policies on a recorded trace, and the table of what they did."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from simlab.analysis.table.html import sentences_html, summaries_html
from simlab.analysis.table.summaries import summarise
from simlab.analysis.table.text import within_width
from simlab.errors import TraceError, UsageError
from simlab.studies.inputs.artefacts import in_sample_note
from simlab.studies.inputs.priced_policies import PricedPolicies, priced_policies
from simlab.studies.inputs.prices import Prices
from simlab.studies.inputs.trace import TraceSource, draft_set_named, opened
from simlab.studies.replay.batch import batch_note, replay_batches
from simlab.studies.replay.part import check_can_be_split, own_part, part_note, replayed_part
from simlab.studies.replay.routes import route_shares, routes_text
from simlab.studies.replay.run import ReplayOptions, replay_trace
from simlab.studies.replay.text import heading, json_value, tables_text
from simlab.studies.result import StudyResult
from simlab.traces.format.alone import writing_alone
from simlab.traces.reader import Trace
from simlab.traces.results.rounds_file import RoundsFile
from simlab.traces.results.rows import Results, results_at
from simlab.traces.results.store import ResultStore
from simlab.workers.on_ray import ray_options, workers_on
from simlab.workers.parts import Part

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
    machines: tuple[PricedPolicies, ...]
    rows: Results
    by: str | None = None
    batch: int | None = None
    routes: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    part: Part | None = None

    @property
    def prices(self) -> tuple[Prices, ...]:
        """The latency profile of each machine."""
        return tuple(one.prices for one in self.machines)

    @property
    def in_sample(self) -> tuple[str, ...]:
        """Labels of policies that were fitted on the very texts."""
        return tuple(dict.fromkeys(label for one in self.machines for label in one.in_sample))

    @property
    def unpriced_notes(self) -> tuple[str, ...]:
        """Why policies have no seconds where others have, in a few sentences for each machine."""
        return tuple(dict.fromkeys(filter(None, (one.unpriced_note() for one in self.machines))))

    def to_json(self) -> dict[str, object]:
        """The value that ``simlab replay --json`` prints."""
        found = json_value(self.trace, self.draft, self.rows, self.by, *self.prices, in_sample=self.in_sample)
        found |= {} if self.part is None else {"part": str(self.part)}
        found |= {"route_shares": {label: dict(shares) for label, shares in self.routes.items()}} if self.routes else {}
        return found | {"unpriced": {label: why for one in self.machines for label, why in one.unpriced.items()}}

    def text(self) -> str:
        """The tables as ``simlab replay`` prints them."""
        first = heading(self.trace, self.draft, self.rows, *self.prices)
        parts = [within_width(first)]
        parts += [] if self.part is None else [part_note(self.part)]
        parts += [tables_text(self.rows, self.prices, self.by)] if self.rows.height else []
        parts += [] if self.batch is None else [batch_note(self.batch)]
        parts += [routes_text(self.routes)] if self.routes else []
        parts += [in_sample_note(self.in_sample)] if self.in_sample else []
        return "\n\n".join([*parts, *map(within_width, self.unpriced_notes)])

    def _repr_html_(self) -> str:
        parts = [sentences_html(heading(self.trace, self.draft, self.rows, *self.prices))]
        for one in self.prices:
            rows = results_at(self.rows, one.cost_id)
            slices = [] if self.by is None else summarise(rows, self.by)
            parts += [sentences_html(one.heading)] if len(self.machines) > 1 else []
            parts.append(summaries_html(summarise(rows), slices, self.by or "", one.why_none, one.speedup_note))
        parts += [sentences_html(in_sample_note(self.in_sample))] if self.in_sample else []
        return "\n".join([*parts, *map(sentences_html, self.unpriced_notes)])


def replay(
    trace: TraceSource | None = None,
    policies: Sequence[str] = WITHOUT_CHOICE,
    *,
    cost: str | Path | Sequence[str | Path] = (),
    what_if: Sequence[str] = (),
    draft: str | None = None,
    batch: int | None = None,
    by: str | None = None,
    limit: int | None = None,
    threads: int | None = None,
    ray: str | None = None,
    workers: int | None = None,
    progress: bool | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    rounds: str | Path | None = None,
    shard: str | Part | None = None,
) -> ReplayTable:
    """Replay policies on a recorded trace, exactly.

    Autoregressive decoding, the chain and the oracle upper bounds are always in the table. The rows are the same on
    every machine.

    Args:
        trace: a trace, or where one is; None: the sample that comes with simlab.
        policies: as they are typed behind ``-p``, grids included: ``"ddtree:budget=8/16/64"``.
        cost: cost files, or names of shipped ones; without one, those that come with simlab for the trace's models.
        what_if: changes of the latency profile, each a hypothetical machine, not measured: ``"verify*0.5,tile=64"``.
        draft: the draft set; None: the only one.
        batch: texts that are served at a time; None: each alone.
        by: cut the tables by ``dataset``, ``context`` or ``turn``.
        limit: the first so many prompts only.
        threads: of the CPU; None: all cores.
        ray: ``local``, or the address of a Ray cluster, whose workers replay in place of threads.
        workers: of Ray; None: as many as it has room for.
        progress: whether a bar is shown; None: on a terminal.
        out: a Parquet file for the result rows, which are written as they come.
        resume: go on with ``out``, and with ``rounds`` where it is given: what is there is not made again.
        rounds: a Parquet file with a row for each round.
        shard: ``"1/4"``: the second of four parts of the prompts, for `simlab.merge`; None: all prompts.

    Raises:
        SimlabError: a policy cannot be made, or trace, latency profile and options do not fit each other; nothing was
        replayed.
    """
    if resume and out is None:
        raise UsageError("--resume goes on with a result file; name it with --out FILE")
    if batch is not None and (resume or rounds is not None):
        raise UsageError("--batch replays all texts together; it takes neither --resume nor --rounds")
    part = own_part(shard)
    check_can_be_split(part, batch, out)
    result_file, rounds_file = (None if path is None else Path(path) for path in (out, rounds))
    if result_file is not None and rounds_file is not None and result_file.resolve() == rounds_file.resolve():
        raise UsageError(f"--out and --rounds both name {result_file}; give two files")
    with writing_alone(result_file), writing_alone(rounds_file, "--rounds"):
        recording = opened(trace)
        draft = draft_set_named(recording, draft)
        costs = [Path(cost)] if isinstance(cost, str | Path) else [Path(one) for one in cost]
        machines = priced_policies(policies or WITHOUT_CHOICE, costs, recording, draft, limit, what_if, batch)
        if not recording.sequences():
            raise TraceError(f"{recording.place} holds no sequences, so there is nothing to replay")
        noted = None if part is None else replayed_part(part, recording, draft, limit)
        store = None if result_file is None else ResultStore(result_file, resume, noted)
        file_of_rounds = None if rounds_file is None else RoundsFile(rounds_file, resume, noted)
        with workers_on(ray_options(ray, workers), threads) as what:
            options = ReplayOptions(what, progress, store, file_of_rounds, part=part)
            if batch is None:
                rows = replay_trace(recording, draft, machines, limit, options)
            else:
                rows = replay_batches(recording, draft, machines, limit, batch, options)
        if store is not None:
            store.finish(rows, recording.sequence_counts)
        if file_of_rounds is not None:
            file_of_rounds.finish(rows)
        every = {one.label: one for machine in machines for one in machine.policies}
        routes = route_shares(recording, draft, every.values(), rows["sequence"].unique().sort().to_list())
    return ReplayTable(recording, draft, tuple(machines), rows, by, batch, routes, part)
