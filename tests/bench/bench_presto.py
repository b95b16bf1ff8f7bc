"""How fast are 3-gram-corrected trees, beside a plain-Python heap that builds each tree and walks it?

The heap follows the same rule with the same ties, and its rounds are compared. It looks 3-gram probabilities up in
dictionaries, keeps each one it worked out, and keeps the scored children of a context for the root's other paths;
candidates wait under their score without the 3-gram, so that it scores no more of them than it must. `make bench` runs
these beside the ones of `bench_replay`.
"""

import argparse
import heapq
import math
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from bench_replay import Case, Table, fast, flat, real, tables_of

from simlab.policies.composition import Composition
from simlab.policies.edges.models import NGramCorrected
from simlab.policies.edges.ngram import NGramCounts, counts_from_rows
from simlab.policies.engine.replay import Replay, replay_policies
from simlab.policies.orders.best_first import BestFirst
from simlab.policies.rules.budgets import FixedBudget
from simlab.recorded import RecordedSequence
from simlab.sequence_replay import draft_source
from simlab.traces.artefacts.ngram import NGramFile, find_packaged_ngram
from simlab.traces.reader import open_trace, packaged_trace

TOP_K = 64
Context = tuple[int, ...]


@dataclass
class PlainLogs:
    """The 3-gram of a file as dictionaries; every log-probability is worked out once.

    Attributes:
        counts: of each context, how often each token followed it.
        seen: of each context, how often it was seen and how many different tokens followed.
        logs: what was asked for before.
    """

    vocab_size: int
    counts: dict[Context, dict[int, int]] = field(default_factory=dict)
    seen: dict[Context, tuple[int, int]] = field(default_factory=dict)
    logs: dict[tuple[int, int, int], float] = field(default_factory=dict)

    def log(self, first: int, second: int, token: int) -> float:
        key = (first, second, token)
        if key not in self.logs:
            context = tuple(one for one in (first, second) if one >= 0)
            self.logs[key] = math.log(max(self.probability(context, token), 1e-6))
        return self.logs[key]

    def probability(self, context: Context, token: int) -> float:
        shorter = self.probability(context[1:], token) if context else 1.0 / self.vocab_size
        if context not in self.seen:
            return shorter
        num, types = self.seen[context]
        return (self.counts[context].get(token, 0) + types * shorter) / (num + types)


def plain_logs(file: NGramFile) -> PlainLogs:
    found = PlainLogs(file.vocab_size)
    columns = (file.firsts, file.seconds, file.thirds, file.counts)
    for first, second, third, count in zip(*(column.tolist() for column in columns), strict=True):
        context = tuple(one for one in (first, second) if one >= 0)
        num, types = found.seen.get(context, (0, 0))
        followed = found.counts.setdefault(context, {})
        if third >= 0:
            followed[third] = count
        found.seen[context] = (num + count, types + 1) if third >= 0 else (num, types + count)
    return found


def build(
    table: Table, logs: PlainLogs, weight: float, before: int, root: int, budget: int
) -> dict[tuple[int, ...], tuple[int, ...]]:
    """The tokens of the paths of a tree, and their ranks. Costs are grid steps, so that equal scores are equal."""
    scored: dict[tuple[int, int, int, int], int] = {}
    bounds = [[round(-65536 * q) for _, q in row[:TOP_K]] for row in table]
    # A bound goes before a score that it equals: it may stand for that score and smaller ranks.
    heap: list[tuple[int, int, tuple[int, ...], tuple[int, ...], int]] = []
    taken: dict[tuple[int, ...], tuple[int, ...]] = {}
    if table and bounds[0]:
        heap.append((bounds[0][0], 0, (0,), (), 0))
    while heap and len(taken) < budget:
        cost, is_score, ranks, above, above_cost = heapq.heappop(heap)
        depth, rank = len(above), ranks[-1]
        row, bound = table[depth], bounds[depth]
        token, q = row[rank]
        if is_score:
            tokens = (*above, token)
            taken[tokens] = ranks
            if depth + 1 < len(table) and bounds[depth + 1]:
                heapq.heappush(heap, (cost + bounds[depth + 1][0], 0, (*ranks, 0), tokens, cost))
            continue
        first, second = (before, root) if depth == 0 else (root, above[0]) if depth == 1 else above[-2:]
        key = (depth, first, second, rank)
        step = scored.get(key)
        if step is None:
            step = scored[key] = round(min(max(-(q + weight * logs.log(first, second, token)), 0.0), 255.0) * 65536)
        entry = (above_cost + step, 1, ranks, above, above_cost)
        if rank + 1 < len(bound):
            heapq.heappush(heap, entry)
            heapq.heappush(heap, (above_cost + bound[rank + 1], 0, (*ranks[:-1], rank + 1), above, above_cost))
        else:
            heapq.heappush(heap, entry)
    return taken


def walk(tables: Sequence[Table], one: RecordedSequence, logs: PlainLogs, weight: float, budget: int) -> int:
    """Rounds of one text."""
    text, position, num_rounds = one.text.tolist(), 0, 0
    tokens, start = [*one.prompt.token_ids.tolist(), *text], len(one.prompt.token_ids)
    while position < len(text) - 1:
        before = tokens[start + position - 1] if start + position > 0 else -1
        tree = build(tables[position], logs, weight, before, text[position], budget)
        accepted = 0
        while position + accepted < len(text) - 1 and tuple(text[position + 1 : position + 2 + accepted]) in tree:
            accepted += 1
        num_rounds += 1
        position += accepted + 1
    return num_rounds


def policy(counts: NGramCounts, weight: float, budget: int, text_share: float = 0.0) -> Composition:
    edge = NGramCorrected(weight, counts, "packaged", text_share=text_share, top_k=TOP_K)
    return Composition(BestFirst(edge), FixedBudget(budget))


def compare_presto(case: Case, file: NGramFile, counts: NGramCounts, budget: int, weight: float = 0.2) -> None:
    """One line for one and for two threads: the heap and simlab at one budget."""
    some = [(tables_of(one), one) for one in case.texts[: case.num_slow]]
    logs = plain_logs(file)
    start = time.perf_counter()
    slow_rounds = [walk(tables, one, logs, weight, budget) for tables, one in some]
    per_round = (time.perf_counter() - start) / sum(slow_rounds)
    mine = policy(counts, weight, budget)
    assert slow_rounds == [replay_policies([mine], one)[0].num_rounds for _, one in some]
    for threads in (1, 2):
        fast_s, rounds = fast(case, [mine], threads)
        print(
            f"{case.name}, presto:ngram_weight={weight},budget={budget}, {threads} thread{'s' if threads > 1 else ''}: "
            f"{per_round * rounds[0] / fast_s:,.0f} x (heap {1e6 * per_round:,.0f} us a round; simlab "
            f"{1e3 * fast_s:.1f} ms for {rounds[0]:,} rounds, {1e6 * fast_s / case.num_positions:.1f} us a position)"
        )


def many_weights(case: Case, counts: NGramCounts, threads: int = 2) -> None:
    """100 weights, each with 10 budgets, on all texts of a case; scaled to 100,000 positions."""
    policies = [policy(counts, 0.01 * n, budget) for n in range(1, 101) for budget in range(16, 65, 5)][:1000]
    replay = Replay([(one, None) for one in policies])
    start = time.perf_counter()
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(replay.sums, case.batches))
    seconds = time.perf_counter() - start
    print(
        f"{case.name}, 100 n-gram weights x 10 budgets up to 61, {threads} threads: {seconds:.1f} s for "
        f"{case.num_positions:,} positions, {seconds * 100_000 / case.num_positions:.0f} s for 100,000"
    )


def presto_select_times(case: Case, counts: NGramCounts) -> None:
    """Microseconds of one `select` at a budget of 64, as the runner calls it."""
    one = case.texts[0]
    for share in (0.0, 0.5, 1.0):
        mine = policy(counts, 0.2, 64, share)
        drafts = [draft_source(mine.needs, one)(t) for t in range(len(one.text) - 1)]
        mine.select(drafts[0])
        best = math.inf
        for _ in range(5):
            start = time.perf_counter()
            for draft in drafts:
                mine.select(draft)
            best = min(best, time.perf_counter() - start)
        print(f"select of presto:budget=64, text_share={share}: {1e6 * best / len(drafts):.1f} us")


def presto_lines(num_texts: int) -> None:
    """Every line of this file."""
    file = find_packaged_ngram(open_trace(packaged_trace()).manifest.tokenizer_digest)
    assert file is not None
    counts = counts_from_rows(file.firsts, file.seconds, file.thirds, file.counts, file.vocab_size)
    recorded = real(6)
    for budget in (16, 64, 512):
        for case in (recorded, flat(num_texts, 3)):
            compare_presto(case, file, counts, budget)
    many_weights(recorded, counts)
    presto_select_times(recorded, counts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--texts", type=int, default=50, help="of the synthetic trace")
    presto_lines(parser.parse_args().texts)


if __name__ == "__main__":
    main()
