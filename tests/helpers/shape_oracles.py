"""Shapes in plain Python, each as its source tells it; they share no code with what they check.

A path is a tuple of ranks. Rows are those of `oracle`; a list of paths is in the order in which nodes enter.
"""

import heapq
import itertools
import math
from collections.abc import Mapping
from fractions import Fraction

from oracle import Path, Row, score

from simlab.grid import path_weight


def chain(rows: list[Row]) -> list[Path]:
    """The first candidates, as far as there are any."""
    length = next((depth for depth, row in enumerate(rows) if not row), len(rows))
    return [(0,) * depth for depth in range(1, length + 1)]


def expand_parent(rows: list[Row], caps: list[int], budget: int) -> list[Path]:
    """Pop the best node, append all its children, push them; the root is in the heap first."""
    heap: list[tuple[Fraction, Path]] = [(Fraction(0), ())]
    found: list[Path] = []
    while heap and len(found) < budget:
        _, path = heapq.heappop(heap)
        if len(path) == len(rows):
            continue
        depth = len(path)
        for rank in range(min(caps[depth], len(rows[depth]), budget - len(found))):
            child = (*path, rank)
            found.append(child)
            heapq.heappush(heap, (-score(rows, child), child))
    return found


def gap_caps(rows: list[Row], width: int, slope: float, middle: float) -> list[int]:
    """round(width * sigmoid(-slope * (gap - middle))), at least 1."""
    caps = []
    for row in rows:
        if len(row) < 2 or width < 2:
            caps.append(1)
            continue
        gap = row[0][1] - row[1][1]
        caps.append(max(1, round(width / (1 + math.exp(min(slope * (gap - middle), 700.0))))))
    return caps


def beam(scores: Mapping[Path, Fraction], width: int, deepest: int, budget: int) -> list[Path]:
    """Level after level, the best of the beam's children are the next beam; the best of all children seen are the tree.

    Args:
        scores: of every path there is.
        width: of the beam.
        deepest: levels.
        budget: nodes of the tree.
    """
    beam_now: list[Path] = [()]
    pool: list[Path] = []
    for level in range(1, deepest + 1):
        children = [path for path in scores if len(path) == level and path[:-1] in beam_now]
        pool += children
        beam_now = sorted(children, key=lambda path: (-scores[path], path))[:width]
    return sorted(pool, key=lambda path: (-scores[path], path))[:budget]


def all_scores(rows: list[Row]) -> dict[Path, Fraction]:
    """The scores of every path there is."""
    reachable = rows[: len(chain(rows))]
    return {
        path: score(rows, path)
        for depth in range(1, len(reachable) + 1)
        for path in itertools.product(*(range(len(row)) for row in reachable[:depth]))
    }


def branched(rows: list[Row], urgent: list[Fraction], num_branches: int, below: int) -> list[Path]:
    """The chain; second candidates by urgency, larger path score, smaller ranks, each with first candidates below."""
    spine = chain(rows)
    seconds = [(0,) * depth + (1,) for depth in range(len(spine)) if len(rows[depth]) > 1]
    seconds.sort(key=lambda path: (-urgent[len(path) - 1], -score(rows, path), path))
    found = list(spine)
    for second in seconds[:num_branches]:
        found += [second + (0,) * more for more in range(min(below, len(spine) - len(second)) + 1)]
    return found


def entropy_widths(entropies: list[float], budget: int, power: float, base: int, most: int) -> list[int]:
    """base + floor(share of the rest of the budget), the share of a depth being that of its entropy to a power."""
    weights = [Fraction(entropy**power) for entropy in entropies]
    if sum(weights) == 0:
        weights = [Fraction(1)] * len(entropies)
    rest_budget = max(0, budget - base * len(entropies))
    return [min(base + math.floor(rest_budget * weight / sum(weights)), most) for weight in weights]


def covering_widths(rows: list[Row], coverage: float, most: int) -> list[int]:
    """As few first candidates as have that probability together; all of them where they have less."""
    widths = []
    for row in rows:
        probs = [Fraction(float(path_weight(value))) for _, value in row]
        enough = [k for k in range(1, len(row) + 1) if sum(probs[:k]) >= Fraction(coverage)]
        widths.append(min([*enough, len(row)]))
    return [min(width, most) for width in widths]


def likely_widths(rows: list[Row], least_prob: float, most: int) -> list[int]:
    """How many have at least that probability, and at least one."""
    least = round(math.log(least_prob) * 65536) / 65536 if least_prob > 0 else -math.inf
    return [min(max(1, sum(value >= least for _, value in row)), most) for row in rows]


def binned_widths(entropies: list[float], borders: list[float], widths: list[int], most: int) -> list[int]:
    """The width of the bin in which a depth's entropy lies."""
    return [min(widths[sum(entropy > border for border in borders)], most) for entropy in entropies]


def by_frequency(frequencies: list[list[float]], counts: list[int], budget: int) -> list[Path]:
    """Every tuple of ranks that exists, the largest product of frequencies first; products as sums on the grid."""
    costs = [[round(min(-math.log(max(f, 1e-300)), 255.0) * 65536) for f in row] for row in frequencies]
    widths = [min(len(row), count) for row, count in zip(costs, counts, strict=False)]
    paths = [
        path
        for depth in range(1, len(widths) + 1)
        for path in itertools.product(*(range(width) for width in widths[:depth]))
    ]
    paths.sort(key=lambda path: (sum(costs[depth][rank] for depth, rank in enumerate(path)), path))
    return paths[:budget]
