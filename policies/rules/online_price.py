"""A price of time that a policy learns as it goes."""

from dataclasses import KW_ONLY, dataclass

import numpy as np

from simlab.arrays import Doubles, Ints, Longs, Shorts
from simlab.columns import TextRounds
from simlab.cost import CostTable
from simlab.jit import kernel
from simlab.policies.costs.curves import ALL_STAGES, RoundCosts, costs_at, round_costs
from simlab.policies.orders.node_order import OrderLayer, num_accepted
from simlab.policies.rules.budgets import FULL_SCAN, ReadsPaths, best_surplus, expected_tokens
from simlab.policy import Outcome

RateMemory = tuple[float, float]
"""Running means of committed tokens and of modelled seconds of a round; (0, 0) before the first."""


@dataclass(frozen=True, slots=True, eq=False)
class OnlinePrice(ReadsPaths):
    """The size at which expected tokens, less seconds at the text's own rate so far, are the most.

    The rate is the ratio of two running means, of committed tokens and of modelled seconds. Before the first round it
    is the best ratio of that round.

    Attributes:
        most: never more.
        cost: what a round costs.
        memory: how much of the running means is kept from one round to the next, from 0 to below 1.
        stages: those that count.
        look_ahead: as in `BestRatio`.
    """

    most: int
    cost: CostTable
    memory: float
    stages: tuple[str, ...] = ALL_STAGES
    _: KW_ONLY
    look_ahead: int = FULL_SCAN

    def start(self) -> RateMemory:
        """The memory before the first round, in which nothing is known."""
        return 0.0, 0.0

    def update(self, memory: RateMemory, outcome: Outcome) -> RateMemory:
        """What is known after a round."""
        tokens = remember(memory[0], float(outcome.num_committed), self.memory)
        return tokens, remember(memory[1], outcome.modelled_s, self.memory)

    def size(self, layer: OrderLayer, context: int, memory: RateMemory) -> int:
        """How many nodes enter at one root."""
        assert layer.scores is not None
        costs = round_costs(self.cost, self.stages, self.most)
        buffers = np.empty(self.most + 1), np.empty(self.most + 1)
        return _size(layer.scores[0], context, costs, self.look_ahead, *memory, *buffers)

    def seconds(self, context: int, num_drafted: int) -> float:
        """What a round costs."""
        seconds = np.empty(self.most + 1)
        costs_at(round_costs(self.cost, self.stages, self.most), context, seconds)
        return float(seconds[num_drafted])

    def walk(self, layer: OrderLayer, contexts: Longs, firsts: Longs) -> TextRounds:
        """The rounds on some texts, as `size` and `update` would have them; each text begins with nothing known.

        Args:
            layer: with scores.
            contexts: int64 ``[R]``, tokens before each root.
            firsts: int64 ``[S + 1]``, the first root of each text, and R.
        """
        assert layer.scores is not None
        costs = round_costs(self.cost, self.stages, self.most)
        settings = self.most, self.look_ahead, self.memory
        visited, sizes, ends = _walk(layer.insertions, layer.scores, contexts, costs, *settings, firsts)
        return TextRounds(visited[0], sizes[visited[0]].astype(np.int64), visited[1], ends)


@kernel
def remember(mean: float, value: float, memory: float) -> float:
    """A running mean after one more value; the first value is the mean."""
    return value if mean == 0.0 else memory * mean + (1.0 - memory) * value


@kernel
def _size(
    scores: Doubles,
    context: int,
    costs: RoundCosts,
    look_ahead: int,
    mean_tokens: float,
    mean_seconds: float,
    tokens: Doubles,
    seconds: Doubles,
) -> int:
    available = expected_tokens(scores, tokens)
    costs_at(costs, context, seconds)
    rate = 0.0
    if mean_seconds > 0.0:
        rate = mean_tokens / mean_seconds
    else:
        for n in range(available + 1):
            rate = max(rate, tokens[n] / seconds[n])
    return best_surplus(tokens, seconds, available, look_ahead, rate)


@kernel
def _walk(
    insertions: Shorts,
    scores: Doubles,
    contexts: Longs,
    costs: RoundCosts,
    most: int,
    look_ahead: int,
    memory: float,
    firsts: Longs,
) -> tuple[Longs, Ints, Longs]:
    num_roots = insertions.shape[0]
    visited, sizes, ends = np.empty((2, num_roots), np.int64), np.zeros(num_roots, np.int32), np.empty_like(firsts[1:])
    tokens, seconds = np.empty(most + 1, np.float64), np.empty(most + 1, np.float64)
    number = 0
    for text in range(firsts.size - 1):
        mean_tokens, mean_seconds, root, last = 0.0, 0.0, firsts[text], firsts[text + 1]
        while root < last:
            context, means = int(contexts[root]), (mean_tokens, mean_seconds)
            n = _size(scores[root], context, costs, look_ahead, means[0], means[1], tokens, seconds)
            accepted = num_accepted(insertions, root, n)
            sizes[root], visited[0, number], visited[1, number] = n, root, accepted
            number += 1
            mean_tokens = remember(mean_tokens, float(min(accepted + 1, last - root)), memory)
            mean_seconds = remember(mean_seconds, seconds[n], memory)
            root += accepted + 1
        ends[text] = number
    return visited[:, :number].copy(), sizes, ends
