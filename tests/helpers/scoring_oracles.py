"""Plain Python for what ``simlab study scoring`` counts: one dictionary per question, and no arrays."""

import math
from collections import defaultdict
from collections.abc import Callable
from itertools import pairwise

from simlab.policies.orders.node_order import OrderedNodes
from simlab.recorded import RecordedSequence

Row = list[tuple[int, float]]
"""Tokens and log-probabilities by rank."""

Path = tuple[int, ...]
"""Tokens from below the root."""

Scores = Callable[[list[Row], Path, tuple[int, ...]], dict[int, float]]
"""From rows, the path to a node, and the tokens up to the root, to log-probabilities by rank."""


def rows_at(recorded: RecordedSequence, t: int) -> list[Row]:
    rows = recorded.rows
    assert rows is not None
    marginals = list(rows.rows())[t]
    ends = marginals.offsets.tolist()
    pairs = list(zip(marginals.ids.tolist(), marginals.log_probs.tolist(), strict=True))
    return [pairs[start:end] for start, end in pairwise(ends)]


def rank_class(rank: int) -> int:
    return 0 if rank == 0 else 1 if rank == 1 else 2 if rank < 4 else 3 if rank < 8 else 4


def edge_sums(
    recorded: RecordedSequence, scores: Scores, width: int, goes_on: bool
) -> tuple[dict[tuple[int, int], int], dict[tuple[int, int, int], list[float]]]:
    """Nodes by place and depth; sums over candidates by place, depth and class of rank."""
    nodes: dict[tuple[int, int], int] = defaultdict(int)
    cells: dict[tuple[int, int, int], list[float]] = defaultdict(lambda: [0.0] * 5)
    text, prompt = recorded.text.tolist(), recorded.prompt.token_ids.tolist()
    for t in range(len(text) - 1):
        rows, index = [row[:width] for row in rows_at(recorded, t)], 0
        for depth, true_token in enumerate(text[t + 1 : t + 1 + len(rows)]):
            nodes[index, depth] += 1
            path = tuple(text[t + 1 : t + 1 + depth])
            found = scores(rows, path, (*prompt, *text[: t + 1]))
            for rank, log_prob in found.items():
                hit, prob = rows[depth][rank][0] == true_token, math.exp(log_prob)
                loss = -log_prob if hit else -math.log1p(-min(prob, 1 - 1e-9))
                cell = cells[index, depth, rank_class(rank)]
                for column, value in enumerate((1.0, prob, float(hit), loss, (prob - hit) ** 2)):
                    cell[column] += value
            ranks = [rank for rank in found if rows[depth][rank][0] == true_token]
            if not ranks and not goes_on:
                break
            if not ranks:
                index = 2
            elif ranks[0] > 0:
                index = max(index, 1)
    return nodes, cells


def paths_of(nodes: OrderedNodes) -> list[Path]:
    """The path of each node but the root, in order."""
    paths: list[Path] = [()]
    for token, parent in zip(nodes.tokens[1:].tolist(), nodes.parents[1:].tolist(), strict=True):
        paths.append((*paths[parent], token))
    return paths[1:]


def area(paths: list[Path], follows: Path) -> float | None:
    """How often a true path is before one that is not, pair by pair."""
    is_true = [path == follows[: len(path)] for path in paths]
    pairs = [
        one < other for one in range(len(paths)) for other in range(len(paths)) if is_true[one] and not is_true[other]
    ]
    return sum(pairs) / len(pairs) if pairs else None


def spent(paths: list[Path], follows: Path) -> tuple[int, int, int]:
    """Accepted nodes, wrong ones below a true parent, and those below a wrong one."""
    accepted = sum(path == follows[: len(path)] for path in paths)
    true_parent = sum(path[:-1] == follows[: len(path) - 1] for path in paths)
    return accepted, true_parent - accepted, len(paths) - true_parent
