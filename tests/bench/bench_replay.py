"""How fast is the replay, beside a plain-Python heap that builds each tree and walks it?

The heap follows the same rule with the same ties, on the same candidates in memory, as lists of floats; building and
walking are timed, decoding Parquet is timed beside. Every ratio is of one run; the slow side is timed on some of the
texts and counted by the round. The synthetic trace has flat heads: many candidates of like probability, the worst
case for both.
"""

import argparse
import heapq
import resource
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

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
from simlab.studies.replay.run import ROOTS_AT_ONCE
from simlab.totals import ROUNDS
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


def real(num_slow: int) -> Case:
    trace = open_trace(packaged_trace())
    start = time.perf_counter()
    batches = list(trace.recorded_texts(trace.draft_name(), most_roots=ROOTS_AT_ONCE))
    seconds = time.perf_counter() - start
    case = Case("packaged trace", batches, num_slow)
    num = case.num_positions
    print(f"reading and decoding the packaged trace: {seconds:.2f} s, {num / seconds:,.0f} positions/s")
    return case


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
        for t in range(200):
            for d in range(min(depth, 200 - t)):
                if ranks[t, d] >= 0:
                    ids[t, d, ranks[t, d]] = text[t + 1 + d]
        counts = np.full((200, depth), kept, np.int32)
        rows = DraftRows(ids.ravel(), values.ravel(), counts, ranks.astype(np.int32))
        prompt = Prompt(str(number), "flat", 0, 0, np.arange(8, dtype=np.int32))
        texts.append(RecordedSequence(number, prompt, text, "length", rows))
    return Case("flat heads", [texts_of(texts[at : at + 8]) for at in range(0, num_texts, 8)], num_slow)


def fast(case: Case, policies: Sequence[AnyPolicy], threads: int) -> tuple[float, list[int]]:
    """Seconds, and the rounds of each policy; the best of ten, after one that compiles."""
    best, rounds = float("inf"), [0]
    replay = Replay([(policy, None) for policy in policies])
    with ThreadPoolExecutor(threads) as pool:
        for turn in range(11):
            start = time.perf_counter()
            found = list(pool.map(replay.sums, case.batches))
            seconds = time.perf_counter() - start
            best = min(best, seconds) if turn else best
            rounds = np.sum([sums.counts[:, :, ROUNDS].sum(axis=1) for sums in found], axis=0).tolist()
    return best, rounds


def slow(case: Case, budget: int) -> tuple[float, int]:
    """Seconds and rounds of the heap on the first few texts."""
    some = [(tables_of(one), one.text.tolist()) for one in case.texts[: case.num_slow]]
    start = time.perf_counter()
    found = [walk(tables, text, budget)[0] for tables, text in some]
    return time.perf_counter() - start, sum(found)


def compare(case: Case, name: str, policies: Sequence[AnyPolicy], budget: int) -> None:
    """Two lines: the heap at one budget, simlab at all of the policies, on one thread and on two."""
    slow_s, slow_rounds = slow(case, budget)
    per_round = slow_s / slow_rounds
    for threads in (1, 2):
        fast_s, rounds = fast(case, policies, threads)
        ratio = per_round * rounds[-1] / fast_s
        print(
            f"{case.name}, {name}, {threads} thread{'s' if threads > 1 else ''}: {ratio:,.0f} x "
            f"(heap {1e6 * per_round:,.0f} us a round; simlab {1e3 * fast_s:.2f} ms for {sum(rounds):,} rounds of "
            f"{len(policies)} budgets)"
        )


def copying_gb_per_s() -> float:
    """How fast one thread of this machine copies memory, the best of five; bytes read."""
    here = np.ones(1 << 26, np.uint8)
    there, best = np.empty_like(here), float("inf")
    for _ in range(5):
        start = time.perf_counter()
        np.copyto(there, here)
        best = min(best, time.perf_counter() - start)
    return here.nbytes / best / 1e9


def distance_to_the_limit(case: Case, budget: int) -> None:
    """Of all rows that rounds start at, reading the log-probabilities, the counts and the true ranks is the least."""
    num_bytes = 0
    for texts in case.batches:
        found = Replay([(DDTree(budget), None)]).rounds(texts)[0]
        roots = texts.roots
        kept = int((roots.starts[found.roots + 1] - roots.starts[found.roots]).sum())
        num_bytes += 4 * kept + 8 * roots.counts.shape[1] * len(found.roots)
    seconds, _ = fast(case, [DDTree(budget)], 1)
    speed = copying_gb_per_s()
    print(
        f"{case.name}, ddtree:budget={budget}: the rows hold {num_bytes / 1e6:.1f} MB; at {speed:.1f} GB/s, as memory "
        f"is copied here, reading them takes {1e-6 * num_bytes / speed:.2f} ms; one thread takes "
        f"{1e9 * seconds * speed / num_bytes:.1f} times as long"
    )


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
    start = time.perf_counter()
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(replay.sums, case.batches * times))
    print(
        f"{len(policies):,} configurations ({num_maps} calibrations x {len(budgets)} budgets) over "
        f"{times * case.num_positions:,} positions ({case.name}, {times} times): "
        f"{time.perf_counter() - start:.1f} s on two threads"
    )


def select_times(case: Case, repeats: Callable[[], range]) -> None:
    """Microseconds of one `select`, as the runner calls it."""
    from simlab.sequence_replay import draft_source

    sequence = case.texts[0]
    policy = DDTree(64)
    drafts = [draft_source(policy.needs, sequence)(t) for t in range(len(sequence.text) - 1)]
    policy.select(drafts[0])
    start = time.perf_counter()
    for _ in repeats():
        for draft in drafts:
            policy.select(draft)
    print(f"select of ddtree:budget=64: {1e6 * (time.perf_counter() - start) / len(drafts) / len(repeats()):.1f} us")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--texts", type=int, default=50, help="of the synthetic trace")
    parser.add_argument("--maps", type=int, default=100, help="calibrations; with ten budgets each")
    parser.add_argument("--positions", type=int, default=100_000, help="on which they are tried")
    given = parser.parse_args()
    packaged = real(6)
    for case in (packaged, flat(given.texts, 3)):
        compare(case, "ddtree:budget=64", [DDTree(64)], 64)
        compare(case, "ddtree:budget=1..512, the heap at 512", [DDTree(n) for n in range(1, 513)], 512)
        distance_to_the_limit(case, 64)
    select_times(packaged, lambda: range(3))
    many_scores(packaged, given.maps, given.positions)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(f"the most memory that was used, compilers included: {peak:.2f} GB")


if __name__ == "__main__":
    main()
