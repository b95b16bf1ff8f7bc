"""Replays of many policies on a trace: workers, progress, and going on after a kill."""

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TypeAlias

import numpy as np
from tqdm import tqdm

from simlab.arrays import Longs
from simlab.columns import RoundColumns
from simlab.ids import VERSION
from simlab.policies.composition import order_key
from simlab.policies.engine.replay import Replay
from simlab.policies.named.chain import most_drafted
from simlab.policies.orders.lattice_sources import source_of, true_reaches
from simlab.policies.parsing.parse import NamedPolicy
from simlab.policy import AnyPolicy, Needs, routes_of
from simlab.recorded import RecordedSequence, RecordedTexts, texts_of
from simlab.sequence_replay import check_needs
from simlab.studies.inputs.artefacts import PoliciesOnMachine
from simlab.studies.inputs.trace import TraceJob, first_prompts, trace_handle
from simlab.studies.replay.rows import (
    ReadyRows,
    ReplayRow,
    bound_rows,
    channel_ids_read,
    policy_row,
    results_of,
)
from simlab.traces.reader import Trace
from simlab.traces.results.files import ResultStore
from simlab.traces.results.rounds_file import RoundRows, RoundsFile, joined_rounds, round_rows
from simlab.traces.results.rows import Results, joined_results, rows_in_order
from simlab.workers.parts import Part
from simlab.workers.threads import Threads, Workers, ignore_progress

# ``--rounds``: why each round ended where it did.


NOT_KEPT, NOT_IN_TREE, BLOCK_END, TEXT_END = range(4)
"""Places in `simlab.traces.results.rounds_file.ENDINGS`."""


def endings(needs: Needs, rounds: RoundColumns, recorded: RecordedSequence) -> Longs:
    """Why each round of a policy accepted no more, int64 ``[R]``.

    Args:
        needs: what the policy reads; a candidate that it does not read counts as not kept.
        rounds: its rounds.
        recorded: the text.
    """
    if needs.scored:
        return _endings_on_channels(needs, rounds, recorded)
    rows = recorded.rows if needs.draft else None
    if rows is None or rows.counts.shape[1] == 0:
        return np.where(rounds.clipped, TEXT_END, BLOCK_END).astype(np.int64)
    depth = rows.counts.shape[1]
    missed = np.minimum(rounds.num_accepted, depth - 1)
    num_kept = rows.counts[rounds.positions, missed]
    read = num_kept if needs.top_k is None else np.minimum(num_kept, needs.top_k)
    ranks = rows.true_ranks[rounds.positions, missed]
    why = np.where((ranks >= 0) & (ranks < read), NOT_IN_TREE, NOT_KEPT)
    why = np.where(rounds.num_accepted >= depth, BLOCK_END, why)
    return np.where(rounds.clipped, TEXT_END, why).astype(np.int64)


def _endings_on_channels(needs: Needs, rounds: RoundColumns, recorded: RecordedSequence) -> Longs:
    """`endings` of trees on the lists of channels: a token is kept where a list on its true path holds it."""
    texts = texts_of([recorded])
    sources = [source_of(need) for need in needs.scored]
    reaches = np.max([true_reaches(source, texts) for source in sources], axis=0)[rounds.positions]
    deepest = max(source.at_roots(texts).num_depths() for source in sources)
    why = np.where(rounds.num_accepted < reaches, NOT_IN_TREE, NOT_KEPT)
    why = np.where(rounds.num_accepted >= deepest, BLOCK_END, why)
    return np.where(rounds.clipped, TEXT_END, why).astype(np.int64)


def _endings_of(policy: AnyPolicy, rounds: RoundColumns, recorded: RecordedSequence) -> Longs:
    """The `endings` of a policy's rounds; those of a router are those of the route that served each."""
    if rounds.routes is None:
        return endings(policy.needs, rounds, recorded)
    why = np.empty(rounds.num_rounds, np.int64)
    for index, route in enumerate(routes_of(policy)):
        why[rounds.routes == index] = endings(route.needs, rounds.of_route(index), recorded)
    return why


def rows_of_rounds(
    policies: Sequence[NamedPolicy],
    rounds: Sequence[RoundColumns],
    recorded: RecordedSequence,
    trace: Mapping[str, str],
    channel_ids: Sequence[str],
) -> RoundRows:
    """The rounds of some policies on one text.

    Args:
        policies: which had them.
        rounds: the rounds of each.
        recorded: the text.
        trace: the columns ``text_id`` and ``draft_id``.
        channel_ids: the column of that name, of each policy.
    """
    numbers = {
        name: np.concatenate([getattr(columns, name) for columns in rounds])
        for name in ("num_drafted", "num_accepted", "num_committed", "clipped")
    }
    positions = np.concatenate([columns.positions for columns in rounds])
    numbers |= {"position": positions, "context": positions + len(recorded.prompt.token_ids)}
    numbers["miss_depth"] = numbers["num_accepted"] + 1
    return round_rows(
        [
            {"policy": policy.label, "policy_id": policy.policy_id, "channel_ids": ids}
            for policy, ids in zip(policies, channel_ids, strict=True)
        ],
        np.array([columns.num_rounds for columns in rounds], np.int64),
        numbers,
        np.concatenate(
            [_endings_of(policy.policy, own, recorded) for policy, own in zip(policies, rounds, strict=True)]
        ),
        {"sequence": recorded.index, **trace},
    )


def rows_of_texts(policies: Sequence[NamedPolicy], texts: RecordedTexts, trace: Trace, draft: str) -> RoundRows:
    """The rows of some policies on some texts of a trace, text after text."""
    ids = {"text_id": trace.text_id, "draft_id": trace.draft_ids[draft]}
    channel_ids = [channel_ids_read([policy.policy], trace) for policy in policies]
    rounds = [
        text_rounds.columns(texts)
        for text_rounds in Replay([(policy.policy, None) for policy in policies]).rounds(texts)
    ]
    return joined_rounds(
        [
            rows_of_rounds(policies, [own[index] for own in rounds], recorded, ids, channel_ids)
            for index, recorded in enumerate(texts.sequences)
        ]
    )


ROWS_AT_ONCE = 4096
"""As many result rows of a text are made at a time, so that memory stays small."""

ROOTS_AT_ONCE = 1024
"""Texts of as many positions are replayed at a time: enough for a kernel to be worth its call, and few in memory."""

ROOTS_OF_A_WORKER = 2048
"""The same in another process: fewer tables travel, and more no longer fit into the caches of cores that all work."""

ROOTS_A_UNIT = 4096
"""Another process is given texts of one shard of as many positions."""

KEEP_EVERY_S, KEEP_EVERY_ROWS = 10.0, 250_000
"""Finished rows are written after so many seconds or rows."""


@dataclass(frozen=True, slots=True)
class ReplayRun:
    """How a replay is run; its rows are the same under any options.

    Attributes:
        workers: what replays: threads of this process, or Ray.
        progress: whether a bar is shown; None: on a terminal.
        store: where finished rows are kept, and earlier ones found; None: nowhere.
        rounds: where rows of single rounds go; None: nowhere.
        best_budgets: whether the best budgets in hindsight stand among the rows, where there are prices.
        bounds: whether any bound does; a bound may draft more tokens than have a price.
        part: of the prompts; None: all.
    """

    workers: Workers = Threads()
    progress: bool | None = None
    store: ResultStore | None = None
    rounds: RoundsFile | None = None
    best_budgets: bool = True
    bounds: bool = True
    part: Part | None = None


_Task: TypeAlias = tuple[ReplayRow, bool]
"""A result row to be made of a text, and whether the rounds of its policy are wanted with it."""

_Unit: TypeAlias = tuple[int, tuple[int, ...], int | None]
"""What a worker is given: a set of tasks, sequences of which just these are missing, and of the groups of rows one;
None: all."""

_Part: TypeAlias = tuple[RecordedTexts, ReadyRows, tuple[NamedPolicy, ...]]
"""Some texts under some policies or bounds, and those of the policies whose rounds are wanted."""


def replay_trace(
    trace: Trace, draft: str, asked: Sequence[PoliciesOnMachine], limit: int | None, options: ReplayRun | None = None
) -> Results:
    """Result rows, for each sequence and each machine one per policy and those of the bounds at the end.

    Raises:
        MissingChannelError: the trace does not hold what a policy reads; nothing was replayed.
        CostError: a policy drafted more tokens than have a price.
        TraceError: the store holds rows of a policy from other channels that would stay beside the new ones.
    """
    options = ReplayRun() if options is None else options
    draft_set = trace.manifest.draft_sets[draft]
    for policy in (policy for machine in asked for policy in machine.policies):
        check_needs(policy.policy, trace.holds(draft))
    rows: list[ReplayRow] = []
    for machine in asked:
        rows += [policy_row(policy, machine.prices) for policy in machine.policies]
        rows += (
            []
            if not options.bounds
            else bound_rows(machine, draft_set.exact_budget, draft_set.depth, options.best_budgets)
        )
    wanted = first_prompts(trace, limit, options.part)
    channel_ids = {row.policy_id: row.channel_ids(trace) for row in rows}
    if options.store is not None:
        options.store.check_alone([(row.prices.cost_id, row.policy_id) for row in rows], wanted)
        options.store.check_channels(_which(trace, draft), channel_ids, wanted)
    earlier = joined_results([] if options.store is None else [options.store.done(_which(trace, draft), channel_ids)])
    missing = _missing(earlier, _rounds_done(trace, draft, earlier, channel_ids, wanted, options), rows, wanted)
    new = _replayed(trace, draft, missing, options)
    order = [(row.prices.cost_id, row.policy_id, row.identity["policy"]) for row in rows]
    results = joined_results([earlier, *new])
    if earlier.height and options.rounds is not None:
        # A row whose rounds alone were missing is there twice, and the same.
        results = results.unique(["sequence", "cost_id", "policy_id"], keep="first")
    return rows_in_order(results, order, wanted)


OwnBlocks = Mapping[int, tuple[Trace, str]]
"""Recordings of other blocks, by the tokens that they draft; see `simlab.studies.inputs.trace.own_blocks`."""


def chain_length(policy: NamedPolicy, depth: int) -> int:
    """Tokens that a chain drafts where the recording drafts so many; 0 of another policy."""
    return min(most_drafted(policy.policy.budget, depth), depth) if policy.name == "chain" else 0


def replayed_on_own_blocks(
    trace: Trace,
    draft: str,
    machines: Sequence[PoliciesOnMachine],
    blocks: OwnBlocks,
    limit: int | None,
    run: ReplayRun,
) -> Results:
    """Result rows of all policies, of chains on the recording of their own block where there is one."""
    depth = trace.manifest.draft_sets[draft].depth
    recordings = {length: recording for length, recording in blocks.items() if length != depth}
    groups: dict[int, list[PoliciesOnMachine]] = {}
    for asked in machines:
        by_recording: dict[int, list[NamedPolicy]] = {0: []}
        for policy in asked.policies:
            length = chain_length(policy, depth)
            by_recording.setdefault(length if length in recordings else 0, []).append(policy)
        for length, policies in by_recording.items():
            if policies:
                groups.setdefault(length, []).append(PoliciesOnMachine(asked.prices, tuple(policies)))
    results = [
        replay_trace(*recordings.get(length, (trace, draft)), asked, limit, run) for length, asked in groups.items()
    ]
    return joined_results(results)


def _which(trace: Trace, draft: str) -> dict[str, str]:
    """What earlier rows must be of to stand for new ones."""
    return {"text_id": trace.text_id, "draft_id": trace.draft_ids[draft], "simlab_version": VERSION}


def _rounds_done(
    trace: Trace,
    draft: str,
    earlier: Results,
    channel_ids: Mapping[str, str],
    wanted: Sequence[int],
    options: ReplayRun,
) -> dict[int, set[str]] | None:
    """The policies whose rounds of a sequence are there, or that had none; None: no rounds are wanted."""
    if options.rounds is None:
        return None
    done: dict[int, set[str]] = {}
    if options.store is not None:
        ids = _which(trace, draft)
        rounds = options.rounds.go_on(options.store.partners(ids, channel_ids, wanted))
        of_these = rounds.filter(text_id=ids["text_id"], draft_id=ids["draft_id"])
        for part in (of_these, earlier.filter(rounds=0)):
            for index, policy_id in part.select("sequence", "policy_id").iter_rows():
                done.setdefault(index, set()).add(policy_id)
    return done


def _missing(
    earlier: Results, rounds_done: dict[int, set[str]] | None, rows: Sequence[ReplayRow], wanted: Sequence[int]
) -> dict[int, list[_Task]]:
    """What is still to be done of each sequence; the rounds of a policy come with the first of its rows."""
    done: dict[int, set[tuple[str | None, str]]] = {}
    for index, cost_id, policy_id in earlier.select("sequence", "cost_id", "policy_id").iter_rows():
        done.setdefault(index, set()).add((cost_id, policy_id))
    first = {row.policy_id: index for index, row in reversed(list(enumerate(rows))) if row.policy is not None}
    in_rounds = set() if rounds_done is None else set(first.values())
    everything = [(row, index in in_rounds) for index, row in enumerate(rows)]

    def left(index: int) -> Iterator[_Task]:
        rows_there, rounds_there = done.get(index, set()), (rounds_done or {}).get(index, set())
        for row, with_rounds in everything:
            is_lacking = with_rounds and row.policy_id not in rounds_there
            if is_lacking or (row.prices.cost_id, row.policy_id) not in rows_there:
                yield row, is_lacking

    # Where nothing is there, as in most replays, all sequences share one list.
    untouched = {index for index in wanted if index not in done and index not in (rounds_done or {})}
    missing = {index: everything if index in untouched else list(left(index)) for index in wanted}
    return {index: of_text for index, of_text in missing.items() if of_text}


def _replayed(trace: Trace, draft: str, missing: dict[int, list[_Task]], options: ReplayRun) -> list[Results]:
    """The missing rows; they are kept in the store as they come."""
    lengths = {record.index: len(record.text) for record in trace.sequences()}
    shown = sys.stderr.isatty() if options.progress is None else options.progress
    total = sum(lengths[index] * len(group) for index, group in missing.items())
    keeper = _Keeper(options.store, options.rounds)
    groups = _alike(missing)
    all_results = []
    tasks = tuple(_groups(group) for group, _ in groups)
    if options.workers.shares_memory:
        roots = ROOTS_AT_ONCE
        units: Iterator[_Unit] = iter([(number, tuple(indices), None) for number, (_, indices) in enumerate(groups)])
    else:
        roots, units = ROOTS_OF_A_WORKER, _pieces(trace, groups, tasks)
    job = _ReplayJob(trace_handle(trace, options.workers), draft, tasks, roots)
    with tqdm(total=total, desc="replay", unit="token", unit_scale=True, delay=2, disable=not shown) as bar:
        for results, rounds, num_tokens in options.workers.results(job, units, ignore_progress):
            all_results.append(results)
            keeper.keep(results, rounds)
            bar.update(num_tokens)
    keeper.write()
    return all_results


def _pieces(
    trace: Trace, groups: list[tuple[list[_Task], list[int]]], tasks: Sequence[Sequence[object]]
) -> Iterator[_Unit]:
    """Units for other processes: what lies in one shard, under some policies."""
    for index, (_, indices) in enumerate(groups):
        for run in trace.runs(frozenset(indices), ROOTS_A_UNIT):
            for group in range(len(tasks[index])):
                yield index, run, group


@dataclass
class _ReplayJob(TraceJob):
    """A replay of many policies; a unit are sequences under one group of rows, or under all.

    Attributes:
        tasks: groups of rows that are made together; of each set of sequences of which the same is missing.
        roots: texts of as many positions are replayed at a time.
    """

    tasks: tuple[list[tuple[_Task, ...]], ...]
    roots: int

    def make_ready(self) -> None:
        """Rows are made ready when a unit first has them, and kept."""
        self._ready = cache(self._made_ready)

    def parts(self, unit: _Unit) -> Iterator[_Part]:
        """The texts of a unit, some at a time, under each group of rows."""
        task_set, sequences, group = unit
        wanted = self.tasks[task_set]
        numbers = range(len(wanted)) if group is None else [group]
        all_ready = [self._ready(task_set, number) for number in numbers]
        rows = [row for number in numbers for row, _ in wanted[number]]
        channels = tuple(dict.fromkeys(name for row in rows for name in row.channels_read))
        for texts in self.trace.recorded_texts(self.draft, sequences, self.roots, channels):
            yield from ((texts, *ready) for ready in all_ready)

    def work(self, part: _Part) -> tuple[Results, RoundRows | None, int]:
        """Result rows of some texts, the rounds that are wanted, and how many tokens times rows were replayed."""
        texts, ready, in_rounds = part
        results = results_of(ready.rows, ready.sums(texts), texts, self.trace, self.draft)
        rounds = rows_of_texts(in_rounds, texts, self.trace, self.draft) if in_rounds else None
        return results, rounds, sum(len(sequence.text) for sequence in texts.sequences) * len(ready.rows)

    def _made_ready(self, index: int, number: int) -> tuple[ReadyRows, tuple[NamedPolicy, ...]]:
        group = self.tasks[index][number]
        in_rounds = (row.policy for row, with_rounds in group if with_rounds)
        return ReadyRows([row for row, _ in group]), tuple(policy for policy in in_rounds if policy is not None)


def _alike(missing: dict[int, list[_Task]]) -> list[tuple[list[_Task], list[int]]]:
    """Sequences of which the same is missing, together; where it is one list, it is the same at a look."""
    by_key: dict[tuple[tuple[str | None, str, bool], ...], tuple[list[_Task], list[int]]] = {}
    known: dict[int, tuple[tuple[str | None, str, bool], ...]] = {}
    for index, tasks in missing.items():
        key = known.get(id(tasks))
        if key is None:
            key = tuple((row.prices.cost_id, row.policy_id, with_rounds) for row, with_rounds in tasks)
            known[id(tasks)] = key
        by_key.setdefault(key, (tasks, []))[1].append(index)
    return list(by_key.values())


def _groups(tasks: Sequence[_Task]) -> list[tuple[_Task, ...]]:
    """Rows of policies of one order of nodes near each other, so many at once."""
    orders: dict[str, int] = {}

    def number(task: _Task) -> int:
        policy = task[0].policy
        return orders.setdefault("" if policy is None else order_key(policy.policy), len(orders))

    near = sorted(tasks, key=number)
    return [tuple(near[at : at + ROWS_AT_ONCE]) for at in range(0, len(near), ROWS_AT_ONCE)]


class _Keeper:
    """Writes finished rows from time to time."""

    def __init__(self, store: ResultStore | None, rounds: RoundsFile | None) -> None:
        self._store, self._rounds = store, rounds
        self._results: list[Results] = []
        self._rows: list[RoundRows] = []
        self._num, self._since = 0, time.monotonic()

    def keep(self, results: Results, rounds: RoundRows | None) -> None:
        """Remember rows, and write all that are remembered when it is time."""
        if self._store is not None:
            self._results.append(results)
        if rounds is not None:
            self._rows.append(rounds)
        self._num += results.height + (0 if rounds is None else rounds.height)
        if self._num >= KEEP_EVERY_ROWS or time.monotonic() - self._since > KEEP_EVERY_S:
            self.write()

    def write(self) -> None:
        """Write all that are remembered."""
        if self._store is not None and self._results:
            self._store.add(joined_results(self._results))
        if self._rounds is not None and self._rows:
            self._rounds.add(joined_rounds(self._rows))
        self._results, self._rows, self._num, self._since = [], [], 0, time.monotonic()
