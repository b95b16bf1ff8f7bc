"""Replays of many policies on a trace: threads, progress, and going on after a kill."""

import os
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

from tqdm import tqdm

from simlab.policies.composition import order_key
from simlab.recorded import RecordedTexts
from simlab.sequence_replay import check_needs
from simlab.studies.inputs.priced_policies import PricedPolicies
from simlab.studies.inputs.trace import first_prompts
from simlab.studies.replay.rounds import rows_of_texts
from simlab.studies.replay.rows import ReadyRows, ReplayRow, bound_rows, policy_row, results_of, simlab_version
from simlab.traces.reader import Trace
from simlab.traces.results.rounds import RoundRows, RoundsFile, joined_rounds
from simlab.traces.results.rows import Results, joined_results, rows_in_order
from simlab.traces.results.store import ResultStore

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
    """

    threads: int | None = None
    progress: bool | None = None
    store: ResultStore | None = None
    rounds: RoundsFile | None = None
    best_budgets: bool = True


@dataclass(frozen=True, slots=True)
class _Unit:
    """Some texts under some policies or bounds."""

    texts: RecordedTexts
    ready: ReadyRows


def replay_trace(
    trace: Trace, draft: str, asked: Sequence[PricedPolicies], limit: int | None, options: ReplayOptions | None = None
) -> Results:
    """Result rows, for each sequence and each machine one per policy and those of the bounds at the end.

    Raises:
        MissingChannelError: the trace does not hold what a policy reads; nothing was replayed.
        CostError: a policy drafted more tokens than have a price.
    """
    options = ReplayOptions() if options is None else options
    kept = trace.manifest.draft_sets[draft]
    for one in (one for each in asked for one in each.policies):
        check_needs(one.policy, kept.exact_budget, kept.min_width)
    rows: list[ReplayRow] = []
    for each in asked:
        rows += [policy_row(one, each.prices) for one in each.policies]
        rows += bound_rows(each, kept.exact_budget, kept.depth, options.best_budgets)
    wanted = first_prompts(trace, limit)
    earlier = [] if options.store is None else [options.store.done(_which(trace, draft))]
    missing = _missing(earlier, rows, wanted)
    new = _replayed(trace, draft, rows, missing, options)
    order = [(row.prices.cost_id, row.policy_id, row.identity["policy"]) for row in rows]
    return rows_in_order(joined_results([*earlier, *new]), order, wanted)


def _which(trace: Trace, draft: str) -> dict[str, str]:
    """What earlier rows must be of to stand for new ones."""
    return {"text_id": trace.text_id, "draft_id": trace.draft_ids[draft], "simlab_version": simlab_version()}


def _missing(
    earlier: Sequence[Results], rows: Sequence[ReplayRow], wanted: Sequence[int]
) -> dict[int, list[ReplayRow]]:
    """What is still to be done of each sequence."""
    done: dict[int, set[tuple[str | None, str]]] = {}
    for part in earlier:
        for index, cost_id, policy_id in part.select("sequence", "cost_id", "policy_id").iter_rows():
            done.setdefault(index, set()).add((cost_id, policy_id))
    left = {
        index: [row for row in rows if (row.prices.cost_id, row.policy_id) not in done[index]]
        if index in done
        else list(rows)
        for index in wanted
    }
    return {index: some for index, some in left.items() if some}


def _replayed(
    trace: Trace, draft: str, rows: Sequence[ReplayRow], missing: dict[int, list[ReplayRow]], options: ReplayOptions
) -> list[Results]:
    """The missing rows; they are kept in the store as they come."""
    lengths = {record.index: len(record.text) for record in trace.sequences()}
    shown = sys.stderr.isatty() if options.progress is None else options.progress
    total = sum(lengths[index] * len(some) for index, some in missing.items())
    keeper = _Keeper(options.store, options.rounds)

    def units() -> Iterator[_Unit]:
        for some, indices in _alike(missing):
            ready = [ReadyRows(group) for group in _groups(some)]
            for texts in trace.recorded_texts(draft, indices, ROOTS_AT_ONCE):
                yield from (_Unit(texts, group) for group in ready)

    def work(unit: _Unit) -> tuple[_Unit, Results, RoundRows | None]:
        return unit, *_unit_rows(trace, draft, unit, options.rounds is not None)

    found = []
    with tqdm(total=total, desc="replay", unit="token", unit_scale=True, delay=2, disable=not shown) as bar:
        for unit, results, rounds in in_order(units(), work, options.threads or num_cores()):
            found.append(results)
            keeper.keep(results, rounds)
            bar.update(sum(len(one.text) for one in unit.texts.sequences) * len(unit.ready.rows))
    keeper.write()
    return found


def _alike(missing: dict[int, list[ReplayRow]]) -> list[tuple[list[ReplayRow], list[int]]]:
    """Sequences of which the same is missing, together."""
    found: dict[tuple[tuple[str | None, str], ...], tuple[list[ReplayRow], list[int]]] = {}
    for index, some in missing.items():
        key = tuple((row.prices.cost_id, row.policy_id) for row in some)
        found.setdefault(key, (some, []))[1].append(index)
    return list(found.values())


def _groups(rows: Sequence[ReplayRow]) -> list[tuple[ReplayRow, ...]]:
    """Rows of policies of one order of nodes near each other, so many at once."""
    orders: dict[str, int] = {}
    near = sorted(rows, key=lambda row: orders.setdefault(_order_key(row), len(orders)))
    return [tuple(near[at : at + ROWS_AT_ONCE]) for at in range(0, len(near), ROWS_AT_ONCE)]


def _order_key(row: ReplayRow) -> str:

    return "" if row.policy is None else order_key(row.policy.policy)


def _unit_rows(trace: Trace, draft: str, unit: _Unit, with_rounds: bool) -> tuple[Results, RoundRows | None]:
    """Result rows of some texts, and their rounds if they are wanted."""
    rows = unit.ready.rows
    results = results_of(rows, unit.ready.sums(unit.texts), unit.texts, trace, draft)
    policies = {row.policy_id: row.policy for row in rows if row.policy is not None}
    if not (with_rounds and policies):
        return results, None
    return results, rows_of_texts(list(policies.values()), unit.texts, trace.text_id, trace.draft_ids[draft])


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
