"""A 3-gram and PRESTO's trees, slow and obviously right; they share no code with what they check."""

import heapq
import math
from collections import Counter
from collections.abc import Callable, Sequence
from fractions import Fraction

Context = tuple[int, ...]
Row = list[tuple[int, float]]  # of (token, log_prob), most probable first
Path = tuple[int, ...]  # ranks
Probability = Callable[[Context, int], float]


class PlainNGram:
    """Counts in a dictionary for each context of two, one or no tokens."""

    def __init__(
        self, texts: Sequence[tuple[Sequence[int], Sequence[int]]], vocab_size: int, min_count: int = 1
    ) -> None:
        self.vocab_size = vocab_size
        self.followed: dict[Context, Counter[int]] = {}
        self.left_out: dict[Context, int] = {}
        for before, text in texts:
            tokens = [*before, *text]
            for index in range(len(before), len(tokens)):
                for length in range(3):
                    if length <= index and index - length >= max(len(before) - 2, 0):
                        context = tuple(tokens[index - length : index])
                        self.followed.setdefault(context, Counter())[tokens[index]] += 1
        for context, counts in list(self.followed.items()):
            rare = {token: count for token, count in counts.items() if count < min_count and context}
            for token in rare:
                del counts[token]
            self.left_out[context] = sum(count + 1 for count in rare.values())
            if not counts:
                del self.followed[context]

    def probability(self, context: Context, token: int) -> Fraction:
        """Witten and Bell: what a context saw, and the shorter one for the number of different tokens it saw."""
        shorter = self.probability(context[1:], token) if context else Fraction(1, self.vocab_size)
        if context not in self.followed:
            return shorter
        counts = self.followed[context]
        types = len(counts) + self.left_out[context]
        return (counts[token] + types * shorter) / (counts.total() + types)


def steps_below_zero(log_prob: float) -> int:
    """Grid steps below 0, half to even."""
    return round(-max(min(log_prob, 0.0), -255.0) * 65536)


def share_of_entropy(row: Row) -> float:
    """Entropy of a row and of the rest as one, over the largest that so many can have."""
    probs = [math.exp(value) for _, value in row]
    rest = 1.0 - sum(probs)
    entropy = -sum(p * math.log(p) for p in [*probs, rest] if p > 0)
    return min(entropy / math.log(len(row) + 1), 1.0) if row else 0.0


class PlainPresto:
    """Edge costs of one root: every child of a node is scored, and nothing is put off."""

    def __init__(
        self, rows: list[Row], tail: Context, probability: Probability, weights: list[float], renormalised: bool
    ) -> None:
        self.rows, self.tail, self.probability, self.weights = rows, tail, probability, weights
        self.renormalised = renormalised

    def children(self, path: Path) -> list[int]:
        """What each child of a path adds to its cost."""
        depth = len(path)
        if depth == len(self.rows):
            return []
        tokens = (*self.tail, *(self.rows[d][rank][0] for d, rank in enumerate(path)))[-2:]
        weight, row = self.weights[depth], self.rows[depth]
        scores = [q + weight * math.log(max(self.probability(tokens, token), 1e-6)) for token, q in row]
        if self.renormalised:
            rest = max(1.0 - sum(math.exp(q) for _, q in row), 0.0)
            total = sum(map(math.exp, scores)) + rest * 1e-6**weight
            scores = [score - math.log(total) for score in scores]
        return [steps_below_zero(score) for score in scores]

    def best_paths(self, budget: int) -> list[tuple[int, Path]]:
        """Costs and paths: smaller cost first, then smaller ranks, a prefix first."""
        heap: list[tuple[int, Path]] = [(cost, (rank,)) for rank, cost in enumerate(self.children(()))]
        taken: list[tuple[int, Path]] = []
        heapq.heapify(heap)
        while heap and len(taken) < budget:
            cost, path = heapq.heappop(heap)
            taken.append((cost, path))
            for rank, step in enumerate(self.children(path)):
                heapq.heappush(heap, (cost + step, (*path, rank)))
        return taken
