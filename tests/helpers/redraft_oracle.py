"""D²SD's tree in plain Python, from chain and branches; it shares no code with what it checks."""

import math
from collections.abc import Sequence

import lattice_oracle

from simlab.grid import path_weight

Row = list[tuple[int, float]]
"""Tokens and log-probabilities of a row, the best first."""


def likely(chain: Row, count: int, whole: bool) -> list[int]:
    """The most probable lengths at which the chain breaks, and the whole chain where it is wanted."""
    sums = [math.fsum(log_prob for _, log_prob in chain[:length]) for length in range(len(chain) + 1)]
    reached = [float(path_weight(value)) for value in sums]
    chances = [here - behind for here, behind in zip(reached, [*reached[1:], 0.0], strict=True)]
    inner = sorted(range(len(chain)), key=lambda length: (-chances[length], length))[:count]
    if whole:
        index = sum(chances[length] >= chances[-1] for length in inner)
        inner.insert(index, len(chain))
    return inner


def branch_tokens(rows: list[Row], excluded: int | None) -> list[tuple[int, int, float]]:
    """Token, rank and log-probability of the first candidates of a branch, the excluded token left out of its first."""
    found = []
    for index, row in enumerate(rows):
        rank = 1 if index == 0 and excluded is not None and row[0][0] == excluded else 0
        if rank == len(row):
            break
        found.append((row[rank][0], rank, row[rank][1]))
    return found


def published(
    chain: Row, branches: dict[int, list[Row]], count: int, whole: bool, exclude: bool, most: int
) -> list[lattice_oracle.Node]:
    """The chain, then branch by branch what is not there yet."""
    nodes: dict[tuple[int, ...], lattice_oracle.Node] = {(): (0, (), ())}

    def put(above: tuple[int, ...], token: int, rank: int, log_prob: float) -> None:
        cost, ranks, tokens = nodes[above]
        if (*above, token) not in nodes:
            nodes[(*above, token)] = (cost + lattice_oracle.steps(log_prob), (*ranks, rank), (*tokens, token))

    tokens = [token for token, _ in chain]
    for depth, (token, log_prob) in enumerate(chain):
        put(tuple(tokens[:depth]), token, 0, log_prob)
    for length in likely(chain, count, whole):
        path = tuple(tokens[:length])
        excluded = tokens[length] if exclude and length < len(chain) else None
        for token, rank, log_prob in branch_tokens(branches.get(length, []), excluded):
            put(path, token, rank, log_prob)
            path = (*path, token)
    return list(nodes.values())[1 : most + 1]


def below_branches(
    chain: Row, branches: dict[int, list[Row]], count: int, whole: bool, width: int
) -> lattice_oracle.Below:
    """What stands below a path: along the chain its own token and a redraft's others, behind these the redraft's."""
    tokens, read = tuple(token for token, _ in chain), set(likely(chain, count, whole))

    def below(path: lattice_oracle.Tokens) -> lattice_oracle.Offered:
        shared = 0
        while shared < min(len(path), len(tokens)) and path[shared] == tokens[shared]:
            shared += 1
        rows = branches.get(shared, []) if shared in read and chain else []
        if shared < len(path) or shared == len(tokens):
            at = len(path) - shared
            return [(token, lattice_oracle.steps(q)) for token, q in rows[at][:width]] if at < len(rows) else []
        token, log_prob = chain[shared]
        offered = [(token, lattice_oracle.steps(log_prob))]
        row = rows[0][:width] if rows else []
        left = 1 - math.exp(log_prob)
        others = 1 - sum(math.exp(q) for one, q in row if one == token)
        for one, q in row:
            if one != token:
                log = math.log(left) - math.log(others) + q if left > 0 and others > 0 else q - 255.0
                offered.append((one, round(-max(min(log, 0.0), -255.0) * 65536)))
        return sorted(offered, key=lambda one: one[1])

    return below


def accepted(chain: Row, branches: dict[int, list[Row]], lengths: Sequence[int], text: Sequence[int]) -> int:
    """The release's walk: each redraft is a sequence of its own, and the longest true beginning of any counts."""
    tokens = [token for token, _ in chain]
    sequences = [tokens]
    sequences += [tokens[:length] + [row[0][0] for row in branches.get(length, [])] for length in lengths]
    best = 0
    for sequence in sequences:
        same = 0
        while same < min(len(sequence), len(text)) and sequence[same] == text[same]:
            same += 1
        best = max(best, same)
    return best
