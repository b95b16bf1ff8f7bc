"""How fast is the replay, beside a plain-Python heap that builds each tree and walks it?

The heap follows the same rule with the same ties, on the same candidates in memory, as lists of floats; building and
walking are timed, decoding Parquet is timed beside. Every ratio is of one run; the slow side is timed on some of the
texts and counted by the round. The synthetic trace has flat heads: many candidates of like probability, the worst
case for both.
"""

import heapq
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from in_turn import Seconds, asked_for, compared, peak_gb

from simlab.draft import Prompt
from simlab.grid import to_grid
from simlab.policies.composition import Composition
from simlab.policies.edges.correction import NUM_CLASSES
from simlab.policies.edges.models import Calibrated
from simlab.policies.engine.replay import Replay
from simlab.policies.named.ddtree import DDTree
from simlab.policies.orders.best_first import BestFirst
from simlab.policies.rules.budgets import FixedBudget
from simlab.policy import AnyPolicy
from simlab.recorded import DraftRows, RecordedSequence, RecordedTexts, texts_of
from simlab.sequence_replay import ROUNDS, draft_source
from simlab.studies.replay.run import ROOTS_AT_ONCE
from simlab.traces.reader import open_trace, packaged_trace

Table = list[list[tuple[int, float]]]


def build(table: Table, budget: int) -> list[tuple[int, ...]]:
    """The paths of a best-first tree, as tuples of ranks."""
    heap: list[tuple[float, tuple[int, ...], float]] = []
    if table and table[0]:
        heap.append((-table[0][0][1], (0,), 0.0))
    taken: list[tuple[int, ...]] = []
    while heap and len(taken) < budget:
        cost, path, above = heapq.heappop(heap)
        taken.append(path)
        row, rank = table[len(path) - 1], path[-1] + 1
        if rank < len(row):
            heapq.heappush(heap, (above - row[rank][1], (*path[:-1], rank), above))
        if len(path) < len(table) and table[len(path)]:
            heapq.heappush(heap, (cost - table[len(path)][0][1], (*path, 0), cost))
    return taken


def walk(tables: Sequence[Table], text: list[int], budget: int) -> tuple[int, int]:
    """Rounds and accepted tokens of one text."""
    position, num_rounds, num_accepted, last = 0, 0, 0, len(text) - 1
    while position < last:
        table = tables[position]
        tree = {tuple(table[depth][rank][0] for depth, rank in enumerate(path)) for path in build(table, budget)}
        accepted = 0
        while position + accepted < last and tuple(text[position + 1 : position + 2 + accepted]) in tree:
            accepted += 1
        num_rounds += 1
        num_accepted += accepted
        position += accepted + 1
    return num_rounds, num_accepted


def tables_of(recorded: RecordedSequence) -> list[Table]:
    """The candidates as lists."""
    assert recorded.rows is not None
    return [
        [list(zip(*(values.tolist() for values in row.at(depth)), strict=True)) for depth in range(1, row.depth + 1)]
        for row in recorded.rows.rows()
    ]


@dataclass(frozen=True)
class Case:
    """Texts in memory; the first few are also walked by the heap."""

    name: str
    batches: list[RecordedTexts]
    num_slow: int

    @property
    def texts(self) -> list[RecordedSequence]:
        return [sequence for texts in self.batches for sequence in texts.sequences]

    @property
    def num_positions(self) -> int:
        return sum(len(text.text) - 1 for text in self.texts)


def flat(num_texts: int, num_slow: int, depth: int = 15, kept: int = 96) -> Case:
    """Texts of 200 tokens whose candidates all have about the same probability; one in four is right."""
    generator = np.random.default_rng(0)
    texts = []
    for number in range(num_texts):
        text = generator.integers(1000, size=201, dtype=np.int32)
        values = to_grid(-np.sort(-(-5.0 + 0.05 * generator.normal(size=(200, depth, kept))), axis=-1))
        ids = np.tile(np.arange(1000, 1000 + kept, dtype=np.int32), (200, depth, 1))
        ranks = np.where(generator.random((200, depth)) < 0.25, generator.integers(4, size=(200, depth)), -1)
        ranks[np.add.outer(np.arange(200), np.arange(depth)) >= 200] = -1
        roots, depths = np.nonzero(ranks >= 0)
        ids[roots, depths, ranks[roots, depths]] = text[roots + 1 + depths]
        counts = np.full((200, depth), kept, np.int32)
        rows = DraftRows(ids.ravel(), values.ravel(), counts, ranks.astype(np.int32))
        prompt = Prompt(str(number), "flat", 0, 0, np.arange(8, dtype=np.int32))
        texts.append(RecordedSequence(number, prompt, text, "length", rows))
    return Case("flat heads", [texts_of(texts[at : at + 8]) for at in range(0, num_texts, 8)], num_slow)


def fast(case: Case, policies: Sequence[AnyPolicy], threads: int) -> Callable[[], float]:
    """A replay of all policies; it gives back its seconds for each round of the last one."""
    replay = Replay([(policy, None) for policy in policies])

    def run() -> float:
        with ThreadPoolExecutor(threads) as pool:
            start = time.perf_counter()
            sums = list(pool.map(replay.sums, case.batches))
            seconds = time.perf_counter() - start
        return seconds / sum(int(each.counts[-1, :, ROUNDS].sum()) for each in sums)

    return run


def slow(case: Case, budget: int) -> Callable[[], float]:
    """The heap on the first few texts; it gives back its seconds for each round."""
    some = [(tables_of(recorded), recorded.text.tolist()) for recorded in case.texts[: case.num_slow]]

    def run() -> float:
        start = time.perf_counter()
        num_rounds = sum(walk(tables, text, budget)[0] for tables, text in some)
        return (time.perf_counter() - start) / num_rounds

    return run


def copying(case: Case, budget: int) -> Callable[[], float]:
    """What reading takes of the rows that rounds start at, as fast as one thread of this machine copies memory.

    Of all rows, reading the log-probabilities, the counts and the true ranks is the least; seconds for each round.
    """
    here, num_bytes, num_rounds = np.ones(1 << 26, np.uint8), 0, 0
    there = np.empty_like(here)
    for texts in case.batches:
        starts, roots = Replay([(DDTree(budget), None)]).rounds(texts)[0].roots, texts.roots
        kept = int((roots.starts[starts + 1] - roots.starts[starts]).sum())
        num_bytes += 4 * kept + 8 * roots.counts.shape[1] * len(starts)
        num_rounds += len(starts)
    return lambda: Seconds.of(lambda: np.copyto(there, here)).wall * num_bytes / here.nbytes / num_rounds


def many_scores(case: Case, num_maps: int, num_positions: int) -> None:
    """A thousand configurations: distinct calibrations, ten budgets each, on the packaged texts again and again."""
    generator = np.random.default_rng(0)
    budgets = (4, 6, 8, 12, 16, 24, 32, 40, 48, 64)
    policies: list[AnyPolicy] = []
    for number in range(num_maps):
        shape = (case.texts[0].rows.counts.shape[1], 2, NUM_CLASSES)  # type: ignore[union-attr]
        edge_map = np.stack([generator.uniform(0.7, 1.3, shape), 0.2 * generator.normal(size=shape)], -1)
        order = BestFirst(Calibrated(edge_map, str(number)))
        policies += [Composition(order, FixedBudget(budget)) for budget in budgets]
    times = -(-num_positions // case.num_positions)
    replay = Replay([(policy, None) for policy in policies])
    replay.sums(case.batches[0])
    with ThreadPoolExecutor(2) as pool:
        seconds = Seconds.of(lambda: list(pool.map(replay.sums, case.batches * times))).wall
    print(
        f"{len(policies):,} configurations ({num_maps} calibrations x {len(budgets)} budgets) over "
        f"{times * case.num_positions:,} positions ({case.name}, {times} times): {seconds:.1f} s on two threads"
    )


def select_times(case: Case) -> None:
    """Microseconds of one `select`, as the runner calls it."""
    sequence, policy = case.texts[0], DDTree(64)
    drafts = [draft_source(policy.needs, sequence)(t) for t in range(len(sequence.text) - 1)]
    policy.select(drafts[0])
    seconds = Seconds.of(lambda: [policy.select(draft) for draft in drafts * 3]).wall
    print(f"select of ddtree:budget=64: {1e6 * seconds / len(drafts) / 3:.1f} us")


def main() -> None:
    asked = asked_for(__doc__, texts=50, maps=100, positions=100_000, runs=5)
    trace, batches = open_trace(packaged_trace()), list[RecordedTexts]()
    seconds = Seconds.of(
        lambda: batches.extend(trace.recorded_texts(trace.draft_name(), most_roots=ROOTS_AT_ONCE))
    ).wall
    packaged = Case("packaged trace", batches, 6)
    print(f"reading and decoding it: {seconds:.2f} s, {packaged.num_positions / seconds:,.0f} positions/s")
    for case in (packaged, flat(asked.texts, 3)):
        for name, budgets in (("budget=64", range(64, 65)), ("budget=1..512", range(1, 513))):
            policies = [DDTree(budget) for budget in budgets]
            works = {f"{name}, {threads} thread(s)": fast(case, policies, threads) for threads in (1, 2)}
            works |= {f"the heap at {budgets[-1]}": slow(case, budgets[-1])}
            works |= {"reading the rows alone": copying(case, 64)} if len(budgets) == 1 else {}
            print(case.name)
            compared(works, asked.runs, unit="us a round")
    select_times(packaged)
    many_scores(packaged, asked.maps, asked.positions)
    print(f"the most memory that was used, compilers included: {peak_gb():.2f} GB")


if __name__ == "__main__":
    main()
