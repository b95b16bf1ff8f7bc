"""Trees whose candidates depend on the path, in plain Python; it shares no code with what it checks.

What is offered below a path of tokens is a list of (token, cost), the best first; costs are grid steps. A node is its
cost, the tuple of its places in these lists, and its path of tokens.
"""

import heapq
import math
from collections.abc import Callable, Sequence
from fractions import Fraction

Tokens = tuple[int, ...]
Offered = list[tuple[int, int]]
Below = Callable[[Tokens], Offered]
Node = tuple[int, tuple[int, ...], Tokens]


def children(below: Below, node: Node) -> list[Node]:
    """All children of a node."""
    cost, ranks, tokens = node
    return [(cost + step, (*ranks, rank), (*tokens, token)) for rank, (token, step) in enumerate(below(tokens))]


def best_first(below: Below, most: int) -> list[Node]:
    """Take the best node that waits and let all its children wait: the smaller cost, then the smaller ranks."""
    waiting = children(below, (0, (), ()))
    heapq.heapify(waiting)
    taken: list[Node] = []
    while waiting and len(taken) < most:
        taken.append(heapq.heappop(waiting))
        for child in children(below, taken[-1]):
            heapq.heappush(waiting, child)
    return taken


def beam(below: Below, most: int, width: int) -> list[Node]:
    """The same where only the first nodes of each depth have children."""
    waiting = children(below, (0, (), ()))
    heapq.heapify(waiting)
    taken: list[Node] = []
    while waiting and len(taken) < most:
        node = heapq.heappop(waiting)
        taken.append(node)
        if sum(len(one[1]) == len(node[1]) for one in taken) <= width:
            for child in children(below, node):
                heapq.heappush(waiting, child)
    return taken


def expand_parent(below: Below, width: int, most: int) -> list[Node]:
    """Pop the best node, append its first children, push them; the root is in the heap first."""
    waiting: list[Node] = [(0, (), ())]
    found: list[Node] = []
    while waiting and len(found) < most:
        for child in children(below, heapq.heappop(waiting))[:width]:
            if len(found) < most:
                found.append(child)
                heapq.heappush(waiting, child)
    return found


def true_places(found: list[Node], text: Sequence[int]) -> list[int]:
    """The places of the true path, from 1, as far as these nodes hold it."""
    paths = [tokens for _, _, tokens in found]
    places = []
    for length in range(1, len(text) + 1):
        if tuple(text[:length]) not in paths:
            break
        places.append(paths.index(tuple(text[:length])) + 1)
    return places


def reach(below: Below, text: Sequence[int]) -> int:
    """How much of a text some path holds, whatever it costs."""
    length = 0
    while length < len(text) and text[length] in [token for token, _ in below(tuple(text[:length]))]:
        length += 1
    return length


def steps(log_prob: float) -> int:
    """Grid steps below 0 of a number on the grid."""
    exact = -65536 * Fraction(float(log_prob))
    assert exact.denominator == 1
    return int(exact)


def below_transitions(
    num_rows: list[int],
    previous: list[int],
    ids: list[list[int]],
    log_probs: list[list[float]],
    most_rows: int,
    top_k: int,
) -> Below:
    """Of a path, the first row of its depth that stands below its last token, among the rows that are read."""
    places = {(1, -1): 0}
    row = 1
    for depth in range(2, len(num_rows) + 1):
        for number in range(num_rows[depth - 1]):
            if number < most_rows:
                places.setdefault((depth, previous[row - 1]), row)
            row += 1

    def below(tokens: Tokens) -> Offered:
        index = places.get((len(tokens) + 1, tokens[-1] if tokens else -1))
        if index is None:
            return []
        return [(token, steps(q)) for token, q in zip(ids[index], log_probs[index], strict=True)][:top_k]

    return below


def below_pool(
    tokens: list[int], parents: list[int], log_probs: list[float], price: float = 0.0, deepest: int = 1 << 30
) -> Below:
    """Of a path, the nodes whose parent it is."""
    paths: dict[int, Tokens] = {0: ()}
    offered: dict[Tokens, Offered] = {}
    for number, (token, parent, log_prob) in enumerate(zip(tokens, parents, log_probs, strict=True), start=1):
        path = paths[number] = (*paths[parent], token)
        if len(path) <= deepest:
            added = depth_steps(price, len(path)) - depth_steps(price, len(path) - 1)
            offered.setdefault(path[:-1], []).append((token, steps(log_prob) + added))
    return lambda path: offered.get(path, [])


def depth_steps(price: float, depth: int) -> int:
    """log(1 + price * depth) in grid steps."""
    return round(math.log(1 + price * depth) * 65536)


def corrected(
    below: Below,
    tail: Tokens,
    probability: Callable[[Tokens, int], float],
    weight: float,
    renormalised: bool,
    adaptive: bool,
) -> Below:
    """The same candidates after a 3-gram: log q + weight * log p given the two tokens before."""

    def now(path: Tokens) -> Offered:
        offered, before = below(path), (*tail, *path)[-2:]
        logs = [cost / -65536 for _, cost in offered]
        rest = 1.0 - sum(map(math.exp, logs))
        own = weight
        if adaptive:
            probs = [*map(math.exp, logs), rest]
            entropy = -sum(p * math.log(p) for p in probs if p > 0)
            own *= min(entropy / math.log(len(offered) + 1), 1.0) if offered else 0.0
        scores = [
            q + own * math.log(max(probability(before, token), 1e-6))
            for (token, _), q in zip(offered, logs, strict=True)
        ]
        if renormalised:
            total = sum(map(math.exp, scores)) + max(rest, 0.0) * 1e-6**own
            scores = [score - math.log(total) for score in scores]
        return [
            (token, round(-max(min(score, 0.0), -255.0) * 65536))
            for (token, _), score in zip(offered, scores, strict=True)
        ]

    return now
