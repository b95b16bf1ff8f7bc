"""How fast is the replay, beside a plain-Python heap that builds each tree and walks it?

The heap follows the same rule with the same ties, on the same candidates in memory, as lists of floats; building and
walking are timed, decoding Parquet is timed beside. Every ratio is of one run; the slow side is timed on some of the
texts and counted by the round. The synthetic trace has flat heads: many candidates of like probability, the worst
case for both.
"""

import argparse
import heapq
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from simlab.draft import Prompt
from simlab.grid import to_grid
from simlab.policies.best_first import DDTree
from simlab.policies.engine import replay_policies
from simlab.policy import AnyPolicy
from simlab.recorded import DraftRows, RecordedSequence
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
    texts: list[RecordedSequence]
    num_slow: int

    @property
    def num_positions(self) -> int:
        return sum(len(one.text) - 1 for one in self.texts)


def real(num_slow: int) -> Case:
    trace = open_trace(packaged_trace())
    start = time.perf_counter()
    texts = list(trace.recorded(trace.draft_name()))
    seconds = time.perf_counter() - start
    num = sum(len(one.text) - 1 for one in texts)
    print(f"reading and decoding the packaged trace: {seconds:.2f} s, {num / seconds:,.0f} positions/s")
    return Case("packaged trace", texts, num_slow)


def flat(num_texts: int, num_slow: int, depth: int = 15, kept: int = 96) -> Case:
    """Texts of 200 tokens whose candidates all have about the same probability; one in four is right."""
    generator = np.random.default_rng(0)
    texts = []
    for number in range(num_texts):
        text = generator.integers(1000, size=201, dtype=np.int32)
        values = to_grid(-np.sort(-(-5.0 + 0.05 * generator.normal(size=(200, depth, kept))), axis=-1))
        ids = np.tile(np.arange(1000, 1000 + kept, dtype=np.int32), (200, depth, 1))
        ranks = np.where(generator.random((200, depth)) < 0.25, generator.integers(4, size=(200, depth)), -1)
        for t in range(200):
            for d in range(min(depth, 200 - t)):
                if ranks[t, d] >= 0:
                    ids[t, d, ranks[t, d]] = text[t + 1 + d]
        counts = np.full((200, depth), kept, np.int32)
        rows = DraftRows(ids.ravel(), values.ravel(), counts, ranks.astype(np.int32))
        prompt = Prompt(str(number), "flat", 0, 0, np.arange(8, dtype=np.int32))
        texts.append(RecordedSequence(number, prompt, text, "length", rows))
    return Case("flat heads", texts, num_slow)


def fast(case: Case, policies: Sequence[AnyPolicy], threads: int) -> tuple[float, list[int]]:
    """Seconds, and the rounds of each policy; the best of three, after one that compiles."""
    best, rounds = float("inf"), [0]
    for turn in range(4):
        start = time.perf_counter()
        with ThreadPoolExecutor(threads) as pool:
            found = list(pool.map(lambda one: replay_policies(policies, one), case.texts))
        seconds = time.perf_counter() - start
        best = min(best, seconds) if turn else best
        rounds = [sum(columns[place].num_rounds for columns in found) for place in range(len(policies))]
    return best, rounds


def slow(case: Case, budget: int) -> tuple[float, int]:
    """Seconds and rounds of the heap on the first few texts."""
    some = [(tables_of(one), one.text.tolist()) for one in case.texts[: case.num_slow]]
    start = time.perf_counter()
    found = [walk(tables, text, budget)[0] for tables, text in some]
    return time.perf_counter() - start, sum(found)


def compare(case: Case, name: str, policies: Sequence[AnyPolicy], budget: int) -> None:
    """One line: the heap at one budget, simlab at all of the policies."""
    slow_s, slow_rounds = slow(case, budget)
    per_round = slow_s / slow_rounds
    for threads in (1, 2):
        fast_s, rounds = fast(case, policies, threads)
        ratio = per_round * rounds[-1] / fast_s
        print(
            f"{case.name}, {name}, {threads} thread{'s' if threads > 1 else ''}: {ratio:,.0f} x "
            f"(heap {1e6 * per_round:,.0f} us a round; simlab {fast_s:.3f} s for {sum(rounds):,} rounds of "
            f"{len(policies)} budgets)"
        )


def select_times(case: Case, repeats: Callable[[], range]) -> None:
    """Microseconds of one `select`, as the runner calls it."""
    from simlab.replay import draft_source

    one = case.texts[0]
    policy = DDTree(64)
    drafts = [draft_source(policy.needs, one)(t) for t in range(len(one.text) - 1)]
    policy.select(drafts[0])
    start = time.perf_counter()
    for _ in repeats():
        for draft in drafts:
            policy.select(draft)
    print(f"select of ddtree:budget=64: {1e6 * (time.perf_counter() - start) / len(drafts) / len(repeats()):.1f} us")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--texts", type=int, default=50, help="of the synthetic trace")
    given = parser.parse_args()
    for case in (real(6), flat(given.texts, 3)):
        compare(case, "ddtree:budget=64", [DDTree(64)], 64)
        compare(case, "ddtree:budget=1..512, the heap at 512", [DDTree(n) for n in range(1, 513)], 512)
    select_times(case, lambda: range(3))


if __name__ == "__main__":
    main()
