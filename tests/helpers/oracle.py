"""Slow and obviously right versions; they share no code with what they check.

Rows are lists of (token, log_prob) pairs, one list a depth, most probable first.
"""

import heapq
import itertools
from fractions import Fraction

Row = list[tuple[int, float]]
Path = tuple[int, ...]  # ranks


def score(rows: list[Row], path: Path) -> Fraction:
    """The exact log-probability of a path."""
    return sum((Fraction(rows[depth][rank][1]) for depth, rank in enumerate(path)), Fraction(0))


def all_paths(rows: list[Row]) -> list[Path]:
    """Every path there is."""
    return [
        path
        for depth in range(1, len(rows) + 1)
        for path in itertools.product(*(range(len(row)) for row in rows[:depth]))
    ]


def best_paths_by_listing(rows: list[Row], budget: int) -> list[Path]:
    """Every path is listed, then sorted: higher score, then smaller ranks, a prefix first."""
    return sorted(all_paths(rows), key=lambda path: (-score(rows, path), path))[:budget]


def best_paths_by_heap(rows: list[Row], budget: int) -> list[Path]:
    """The same for larger cases: a heap of (score, ranks) tuples."""
    heap: list[tuple[Fraction, Path]] = [(-score(rows, (0,)), (0,))] if rows and rows[0] else []
    taken: list[Path] = []
    while heap and len(taken) < budget:
        _, path = heapq.heappop(heap)
        taken.append(path)
        near = [(*path[:-1], path[-1] + 1), (*path, 0)]
        for other in near:
            if len(other) <= len(rows) and other[-1] < len(rows[len(other) - 1]):
                heapq.heappush(heap, (-score(rows, other), other))
    return taken


def prefix_closed_sets(rows: list[Row], size: int) -> set[frozenset[Path]]:
    """Every tree of ``size`` drafted tokens."""
    paths = all_paths(rows)
    trees = {frozenset[Path]()}
    for _ in range(size):
        trees = {
            tree | {path}
            for tree in trees
            for path in paths
            if path not in tree and (path[:-1] in tree or len(path) == 1)
        }
    return trees


def slow_walk(trees: list[set[tuple[int, ...]]], text: list[int]) -> list[tuple[int, int, int]]:
    """Rounds as (position, accepted, committed), with a tree of token paths for each root.

    The text is read token by token; a round goes on while what it read so far is in its tree.
    """
    found, position = [], 0
    while position < len(text) - 1:
        tree, end = trees[position], position + 1
        while end < len(text) and tuple(text[position + 1 : end + 1]) in tree:
            end += 1
        accepted = end - position - 1
        if end < len(text):
            end += 1  # the bonus token
        found.append((position, accepted, end - position - 1))
        position = end - 1
    return found


def fewest_rounds(true_ranks: list[list[int]], counts: list[list[int]], num_tokens: int, budget: int) -> int:
    """The fewest rounds that trees of true tokens can have, by trying every length at every root."""
    fewest = {num_tokens - 1: 0}
    for position in range(num_tokens - 2, -1, -1):
        known = 0
        while (
            known < min(len(true_ranks[position]), budget)
            and 0 <= true_ranks[position][known] < counts[position][known]
        ):
            known += 1
        ends = [min(position + accepted + 1, num_tokens - 1) for accepted in range(known + 1)]
        fewest[position] = 1 + min(fewest[end] for end in ends)
    return fewest[0]


def seconds_at(grid: dict[tuple[int, int], float], num_drafted: int, context: int) -> Fraction:
    """Exact bilinear seconds between measured cells (drafted tokens, context); below the first context its own."""
    counts, contexts = sorted({n for n, _ in grid}), sorted({c for _, c in grid})
    context = max(context, contexts[0])
    near_counts = (max(n for n in counts if n <= num_drafted), min(n for n in counts if n >= num_drafted))
    near_contexts = (max(c for c in contexts if c <= context), min(c for c in contexts if c >= context))
    total = Fraction(0)
    for n, n_share in shares(near_counts, num_drafted):
        for c, c_share in shares(near_contexts, context):
            total += n_share * c_share * Fraction(grid[n, c])
    return total


def shares(near: tuple[int, int], wanted: int) -> list[tuple[int, Fraction]]:
    """How much each of two neighbours counts at a place between them."""
    low, high = near
    if low == high:
        return [(low, Fraction(1))]
    share = Fraction(wanted - low, high - low)
    return [(low, 1 - share), (high, share)]
