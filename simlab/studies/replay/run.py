"""Replays of many policies on a trace: threads, progress, and going on after a kill."""

import os
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

from tqdm import tqdm

from simlab.policies.composition import order_key
from simlab.policies.parsing.parse import NamedPolicy
from simlab.recorded import RecordedTexts
from simlab.sequence_replay import check_needs
from simlab.studies.inputs.priced_policies import PricedPolicies
from simlab.studies.inputs.trace import first_prompts
from simlab.studies.replay.rounds import rows_of_texts
from simlab.studies.replay.rows import ReadyRows, ReplayRow, bound_rows, policy_row, results_of, simlab_version
from simlab.traces.reader import Trace
from simlab.traces.results.rounds import RoundRows, joined_rounds
from simlab.traces.results.rounds_file import RoundsFile
from simlab.traces.results.rows import Results, joined_results, rows_in_order
from simlab.traces.results.store import ResultStore
from simlab.workers.parts import Part

ROWS_AT_ONCE = 4096
"""As many result rows of a text are made at a time, so that memory stays small."""

ROOTS_AT_ONCE = 1024
"""Texts of as many positions are replayed at a time: enough for a kernel to be worth its call, and few in memory."""

KEEP_EVERY_S, KEEP_EVERY_ROWS = 10.0, 50_000
"""Finished rows are written after so many seconds or rows."""

Value = TypeVar("Value")
Work = TypeVar("Work")


@dataclass(frozen=True, slots=True)
class ReplayOptions:
    """How a replay is run; its rows are the same under any options.

    Attributes:
        threads: None: as many as there are cores.
        progress: whether a bar is shown; None: on a terminal.
        store: where finished rows are kept, and earlier ones found; None: nowhere.
        rounds: where rows of single rounds go; None: nowhere.
        best_budgets: whether the best budgets in hindsight stand among the rows, where there are prices.
        part: of the prompts; None: all.
    """

    threads: int | None = None
    progress: bool | None = None
    store: ResultStore | None = None
    rounds: RoundsFile | None = None
    best_budgets: bool = True
    part: Part | None = None


@dataclass(frozen=True, slots=True)
class _Task:
    """A result row to be made of a text, and whether the rounds of its policy are wanted with it."""

    row: ReplayRow
    with_rounds: bool


@dataclass(frozen=True, slots=True)
class _Unit:
    """Some texts under some policies or bounds, and those of the policies whose rounds are wanted."""

    texts: RecordedTexts
    ready: ReadyRows
    in_rounds: tuple[NamedPolicy, ...]


def replay_trace(
    trace: Trace, draft: str, asked: Sequence[PricedPolicies], limit: int | None, options: ReplayOptions | None = None
) -> Results:
    """Result rows, for each sequence and each machine one per policy and those of the bounds at the end.

    Raises:
        MissingChannelError: the trace does not hold what a policy reads; nothing was replayed.
        CostError: a policy drafted more tokens than have a price.
        TraceError: the store holds rows of a policy from other channels that would stay beside the new ones.
    """
    options = ReplayOptions() if options is None else options
    kept = trace.manifest.draft_sets[draft]
    for one in (one for each in asked for one in each.policies):
        check_needs(one.policy, trace.holds(draft))
    rows: list[ReplayRow] = []
    for each in asked:
        rows += [policy_row(one, each.prices) for one in each.policies]
        rows += bound_rows(each, kept.exact_budget, kept.depth, options.best_budgets)
    wanted = first_prompts(trace, limit, options.part)
    channel_ids = {row.policy_id: row.channel_ids(trace) for row in rows}
    if options.store is not None:
        options.store.check_alone([(row.prices.cost_id, row.policy_id) for row in rows], wanted)
        options.store.check_channels(_which(trace, draft), channel_ids, wanted)
    earlier = joined_results([] if options.store is None else [options.store.done(_which(trace, draft), channel_ids)])
    missing = _missing(earlier, _rounds_done(trace, draft, earlier, channel_ids, wanted, options), rows, wanted)
    new = _replayed(trace, draft, missing, options)
    order = [(row.prices.cost_id, row.policy_id, row.identity["policy"]) for row in rows]
    # A row whose rounds alone were missing is there twice, and the same.
    found = joined_results([earlier, *new]).unique(["sequence", "cost_id", "policy_id"], keep="first")
    return rows_in_order(found, order, wanted)


def _which(trace: Trace, draft: str) -> dict[str, str]:
    """What earlier rows must be of to stand for new ones."""
    return {"text_id": trace.text_id, "draft_id": trace.draft_ids[draft], "simlab_version": simlab_version()}


def _rounds_done(
    trace: Trace,
    draft: str,
    earlier: Results,
    channel_ids: Mapping[str, str],
    wanted: Sequence[int],
    options: ReplayOptions,
) -> dict[int, set[str]] | None:
    """The policies whose rounds of a sequence are there, or that had none; None: no rounds are wanted."""
    if options.rounds is None:
        return None
    done: dict[int, set[str]] = {}
    if options.store is not None:
        which = _which(trace, draft)
        found = options.rounds.go_on(options.store.partners(which, channel_ids, wanted))
        of_these = found.filter(text_id=which["text_id"], draft_id=which["draft_id"])
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
    first = {row.policy_id: place for place, row in reversed(list(enumerate(rows))) if row.policy is not None}
    in_rounds = set() if rounds_done is None else set(first.values())
    tasks = [(_Task(row, False), _Task(row, place in in_rounds)) for place, row in enumerate(rows)]

    def left(index: int) -> Iterator[_Task]:
        rows_there, rounds_there = done.get(index, set()), (rounds_done or {}).get(index, set())
        for row, (without, whole) in zip(rows, tasks, strict=True):
            task = without if row.policy_id in rounds_there else whole
            if task.with_rounds or (row.prices.cost_id, row.policy_id) not in rows_there:
                yield task

    missing = {index: list(left(index)) for index in wanted}
    return {index: some for index, some in missing.items() if some}


def _replayed(trace: Trace, draft: str, missing: dict[int, list[_Task]], options: ReplayOptions) -> list[Results]:
    """The missing rows; they are kept in the store as they come."""
    lengths = {record.index: len(record.text) for record in trace.sequences()}
    shown = sys.stderr.isatty() if options.progress is None else options.progress
    total = sum(lengths[index] * len(some) for index, some in missing.items())
    keeper = _Keeper(options.store, options.rounds)

    def units() -> Iterator[_Unit]:
        for some, indices in _alike(missing):
            ready = [(ReadyRows([task.row for task in group]), _policies_in_rounds(group)) for group in _groups(some)]
            channels = dict.fromkeys(name for task in some for name in task.row.channels_read)
            for texts in trace.recorded_texts(draft, indices, ROOTS_AT_ONCE, tuple(channels)):
                yield from (_Unit(texts, *group) for group in ready)

    def work(unit: _Unit) -> tuple[_Unit, Results, RoundRows | None]:
        return unit, *_unit_rows(trace, draft, unit)

    found = []
    with tqdm(total=total, desc="replay", unit="token", unit_scale=True, delay=2, disable=not shown) as bar:
        for unit, results, rounds in in_order(units(), work, options.threads or num_cores()):
            found.append(results)
            keeper.keep(results, rounds)
            bar.update(sum(len(one.text) for one in unit.texts.sequences) * len(unit.ready.rows))
    keeper.write()
    return found


def _alike(missing: dict[int, list[_Task]]) -> list[tuple[list[_Task], list[int]]]:
    """Sequences of which the same is missing, together."""
    found: dict[tuple[tuple[str | None, str, bool], ...], tuple[list[_Task], list[int]]] = {}
    for index, some in missing.items():
        key = tuple((task.row.prices.cost_id, task.row.policy_id, task.with_rounds) for task in some)
        found.setdefault(key, (some, []))[1].append(index)
    return list(found.values())


def _groups(tasks: Sequence[_Task]) -> list[tuple[_Task, ...]]:
    """Rows of policies of one order of nodes near each other, so many at once."""
    orders: dict[str, int] = {}
    near = sorted(tasks, key=lambda task: orders.setdefault(_order_key(task.row), len(orders)))
    return [tuple(near[at : at + ROWS_AT_ONCE]) for at in range(0, len(near), ROWS_AT_ONCE)]


def _order_key(row: ReplayRow) -> str:

    return "" if row.policy is None else order_key(row.policy.policy)


def _policies_in_rounds(tasks: Sequence[_Task]) -> tuple[NamedPolicy, ...]:
    return tuple(task.row.policy for task in tasks if task.with_rounds and task.row.policy is not None)


def _unit_rows(trace: Trace, draft: str, unit: _Unit) -> tuple[Results, RoundRows | None]:
    """Result rows of some texts, and the rounds that are wanted."""
    results = results_of(unit.ready.rows, unit.ready.sums(unit.texts), unit.texts, trace, draft)
    if not unit.in_rounds:
        return results, None
    return results, rows_of_texts(unit.in_rounds, unit.texts, trace, draft)


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


def in_order(units: Iterator[Work], work: Callable[[Work], Value], threads: int) -> Iterator[Value]:
    """What work makes of each unit, in their order; as few units as keep the threads busy are held at a time."""
    with ThreadPoolExecutor(threads) as pool:
        waiting: deque[Future[Value]] = deque()
        try:
            for unit in units:
                waiting.append(pool.submit(work, unit))
                if len(waiting) > 2 * threads:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def num_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
