"""How many nodes of an order make the tree.

A rule sees path scores in the order of nodes and the number of tokens before the root, nothing that the target says in
this round; so it may look at every size before it chooses one, and the text stays plain decoding's.

Weights of paths are multiples of 2**-40 (`simlab.grid`), so one below 2**-41 counts as 0. Where more nodes cost nothing
more, a ratio rule therefore stops at such a node; a release, whose weights are floating-point numbers, goes on until
the weight is lost in the sum, at about 1e-16 of it.
"""

from dataclasses import KW_ONLY, dataclass, field
from typing import Protocol, runtime_checkable

import numpy as np

from simlab.arrays import Doubles, Ints, Longs
from simlab.cost import CostTable
from simlab.grid import grid_scalar, weight_scalar
from simlab.jit import kernel
from simlab.policies.costs.curves import ALL_STAGES, RoundCosts, costs_at, round_costs
from simlab.policies.costs.roofline import Roofline
from simlab.policies.orders.node_order import OrderLayer

FULL_SCAN = 1 << 30
"""As a look-ahead: every size is tried."""


class BudgetRule(Protocol):
    """How many nodes enter.

    Attributes:
        most: never more.
        needs_scores: whether it reads path scores.
        needs_probabilities: whether exp(score) must be meant as a probability.
        needs_falling: whether scores must fall in the order of nodes.
    """

    @property
    def most(self) -> int: ...

    @property
    def needs_scores(self) -> bool: ...

    @property
    def needs_probabilities(self) -> bool: ...

    @property
    def needs_falling(self) -> bool: ...

    def sizes(self, layer: OrderLayer, contexts: Longs) -> Ints:
        """int32 ``[R]``, how many nodes enter at each root.

        Args:
            layer: of these roots, with scores if they are needed.
            contexts: int64 ``[R]``, tokens before each root.
        """
        ...


class ReadsPaths:
    """A rule that sums path probabilities, in whatever order nodes enter."""

    __slots__ = ()
    needs_scores = True
    needs_probabilities = True
    needs_falling = False


class ReadsFallingPaths(ReadsPaths):
    """A rule that looks for a path probability, and takes the nodes before it."""

    __slots__ = ()
    needs_falling = True


@dataclass(frozen=True, slots=True)
class FixedBudget:
    """So many, or as many as there are."""

    most: int
    needs_scores: bool = field(default=False, init=False)
    needs_probabilities: bool = field(default=False, init=False)
    needs_falling: bool = field(default=False, init=False)

    def sizes(self, layer: OrderLayer, contexts: Longs) -> Ints:
        return np.minimum(layer.num_available, self.most).astype(np.int32)


@dataclass(frozen=True, slots=True)
class SurvivalBudget(ReadsFallingPaths):
    """As long as a path's probability is at least a threshold."""

    most: int
    threshold: float

    def sizes(self, layer: OrderLayer, contexts: Longs) -> Ints:
        lowest = grid_scalar(np.log(self.threshold)) if self.threshold > 0 else -np.inf
        assert layer.scores is not None
        within = (layer.scores[:, 1 : self.most + 1] >= lowest) & (layer.scores[:, 1 : self.most + 1] > -np.inf)
        sizes: Ints = within.sum(axis=1).astype(np.int32)
        return sizes


@dataclass(frozen=True, slots=True)
class BeforeDoubt(ReadsFallingPaths):
    """Nodes before the first whose path is wrong with more than some probability, and at least one.

    Attributes:
        most: never more.
        threshold: probability of an error, from 0 to 1; 1 keeps everything.
    """

    most: int
    threshold: float

    def sizes(self, layer: OrderLayer, contexts: Longs) -> Ints:
        assert layer.scores is not None
        lowest = grid_scalar(np.log1p(-self.threshold)) if self.threshold < 1.0 else -np.inf
        scores = layer.scores[:, 1 : self.most + 1]
        sure = ((scores >= lowest) & (scores > -np.inf)).sum(axis=1)
        sizes: Ints = np.minimum(np.maximum(sure, 1), FixedBudget(self.most).sizes(layer, contexts)).astype(np.int32)
        return sizes


@dataclass(frozen=True, slots=True, eq=False)
class BestRatio(ReadsPaths):
    """The size with the most expected tokens per second, (1 + sum of weights) / seconds.

    Attributes:
        most: never more.
        cost: what a round costs.
        stages: those that count.
        look_ahead: it stops once so many sizes in a row were no better than the best; 1: at the first.
        tile: sizes are tried at which the pass, the root counted, fills whole tiles of so many tokens; 1: all.
        discount: expected tokens count so much, but for the bonus token.
    """

    most: int
    cost: CostTable
    stages: tuple[str, ...] = ALL_STAGES
    _: KW_ONLY
    look_ahead: int = 1
    tile: int = 1
    discount: float = 1.0

    def sizes(self, layer: OrderLayer, contexts: Longs) -> Ints:
        assert layer.scores is not None
        costs = round_costs(self.cost, self.stages, self.most)
        return _best_ratios(layer.scores, contexts, costs, self.most, self.look_ahead, self.tile, self.discount)


@dataclass(frozen=True, slots=True, eq=False)
class FloorAndStep(ReadsPaths):
    """The ratio rule from a floor on, then cut to a whole number of steps; sizes here count the root.

    Attributes:
        most: never more drafted tokens.
        cost: what a round costs.
        stages: those that count.
        floor: so many nodes, or as many as there are, enter whatever they cost.
        step: beyond the floor.
        doubling: instead of steps the sizes are floor, 2 floor, 4 floor, ...
        roofline: what a round costs by a fitted model, in place of ``cost``.
    """

    most: int
    cost: CostTable
    stages: tuple[str, ...] = ALL_STAGES
    _: KW_ONLY
    floor: int
    step: int
    doubling: bool = False
    roofline: Roofline | None = None

    def sizes(self, layer: OrderLayer, contexts: Longs) -> Ints:
        assert layer.scores is not None
        if self.roofline is None:
            costs = round_costs(self.cost, self.stages, self.most)
        else:
            costs = self.roofline.costs(contexts, self.most)
        return _floor_and_step(layer.scores, contexts, costs, self.most, self.floor, self.step, self.doubling)


@dataclass(frozen=True, slots=True, eq=False)
class FixedPrice(ReadsPaths):
    """The size at which expected tokens, less seconds at a fixed price in tokens per second, are the most."""

    most: int
    cost: CostTable
    rate: float
    stages: tuple[str, ...] = ALL_STAGES
    _: KW_ONLY
    look_ahead: int = FULL_SCAN

    def sizes(self, layer: OrderLayer, contexts: Longs) -> Ints:
        assert layer.scores is not None
        costs = round_costs(self.cost, self.stages, self.most)
        return _best_surpluses(layer.scores, contexts, costs, self.most, self.look_ahead, self.rate)


@kernel
def expected_tokens(scores: Doubles, tokens: Doubles) -> int:
    """1 + the sum of the weights of the first nodes, for each number of them; exact.

    Args:
        scores: float64, the root's 0 first; they end with the last node or go on with -inf.
        tokens: float64 ``[n + 1]``, to be filled as far as there are nodes.

    Returns:
        How many nodes there are.
    """
    tokens[0] = 1.0
    number = 0
    while number + 1 < min(tokens.size, scores.size) and scores[number + 1] > -np.inf:
        number += 1
        tokens[number] = tokens[number - 1] + weight_scalar(scores[number])
    return number


@kernel
def _best_ratios(
    scores: Doubles, contexts: Longs, costs: RoundCosts, most: int, look_ahead: int, tile: int, discount: float
) -> Ints:
    sizes = np.empty(scores.shape[0], np.int32)
    tokens, seconds = np.empty(most + 1, np.float64), np.empty(most + 1, np.float64)
    for row in range(scores.shape[0]):
        available = expected_tokens(scores[row], tokens)
        costs_at(costs, contexts[row], seconds)
        best, best_ratio, missed = 0, tokens[0] / seconds[0], 0
        n = next_size(0, tile, available)
        while n > 0 and missed < look_ahead:
            ratio = (1.0 + discount * (tokens[n] - 1.0)) / seconds[n]
            if ratio > best_ratio:
                best, best_ratio, missed = n, ratio, 0
            else:
                missed += 1
            n = next_size(n, tile, available)
        sizes[row] = best
    return sizes


@kernel
def next_size(n: int, tile: int, available: int) -> int:
    """The next size at which the pass fills its tiles, or the last one; 0 behind it."""
    if n == available:
        return 0
    return int(min((n + 1 + tile) // tile * tile - 1, available))


@kernel
def _floor_and_step(
    scores: Doubles, contexts: Longs, costs: RoundCosts, most: int, floor: int, step: int, doubling: bool
) -> Ints:
    sizes = np.empty(scores.shape[0], np.int32)
    tokens, seconds = np.empty(most + 1, np.float64), np.empty(most + 1, np.float64)
    for row in range(scores.shape[0]):
        available = expected_tokens(scores[row], tokens)
        costs_at(costs, contexts[row], seconds)
        n = min(max(floor - 1, 0), available)
        while n < available and tokens[n + 1] / seconds[n + 1] > tokens[n] / seconds[n]:
            n += 1
        sizes[row] = cut_size(n + 1, floor, step, doubling) - 1
    return sizes


@kernel
def cut_size(size: int, floor: int, step: int, doubling: bool) -> int:
    """The largest allowed size, the root counted, that is not above one; below the floor nothing is cut."""
    if size <= floor:
        return size
    if not doubling:
        return floor + (size - floor) // step * step
    cut = floor
    while 2 * cut <= size:
        cut *= 2
    return cut


@kernel
def _best_surpluses(
    scores: Doubles, contexts: Longs, costs: RoundCosts, most: int, look_ahead: int, rate: float
) -> Ints:
    sizes = np.empty(scores.shape[0], np.int32)
    tokens, seconds = np.empty(most + 1, np.float64), np.empty(most + 1, np.float64)
    for row in range(scores.shape[0]):
        available = expected_tokens(scores[row], tokens)
        costs_at(costs, contexts[row], seconds)
        sizes[row] = best_surplus(tokens, seconds, available, look_ahead, rate)
    return sizes


@kernel
def best_surplus(tokens: Doubles, seconds: Doubles, available: int, look_ahead: int, rate: float) -> int:
    """The size with the most expected tokens beyond what its seconds are worth; of several the smallest."""
    best, highest, missed = 0, tokens[0] - rate * seconds[0], 0
    for n in range(1, available + 1):
        surplus = tokens[n] - rate * seconds[n]
        if surplus > highest:
            best, highest, missed = n, surplus, 0
        else:
            missed += 1
            if missed >= look_ahead:
                break
    return best


# Budgets that the texts of a batch share.


@runtime_checkable
class SharedRule(BudgetRule, Protocol):
    """A budget rule that looks at all texts of a batch at once; ``most`` is of all of them together."""

    def shares(self, scores: Doubles, contexts: Longs) -> Ints:
        """int32 ``[S]``, how many nodes of each text enter.

        Args:
            scores: float64 ``[S, n + 1]``, path scores of each text's nodes in their order, which never rise, the
                root's first; -inf behind the last. ``n`` is ``most``, or fewer where no tree can be as large.
            contexts: int64 ``[S]``, tokens before each root.
        """
        ...

    def check_batch(self, batch: int) -> None:
        """Refuse a number of texts at a time for which the rule has no prices.

        Raises:
            PolicyError: it has none.
        """
        ...


@dataclass(frozen=True, slots=True)
class SharedBudget(ReadsFallingPaths):
    """So many over all texts of a batch; for a text alone as `Fixed`."""

    most: int

    def sizes(self, layer: OrderLayer, contexts: Longs) -> Ints:
        return np.minimum(layer.num_available, self.most).astype(np.int32)

    def shares(self, scores: Doubles, contexts: Longs) -> Ints:
        return shared_sizes(scores, self.most)

    def check_batch(self, batch: int) -> None:
        pass


@kernel
def shared_sizes(scores: Doubles, budget: int) -> Ints:
    """How many nodes of each text enter when the best of all texts do.

    Args:
        scores: float64 ``[S, n + 1]``, see `SharedRule.shares`.
        budget: drafted tokens of all texts together.

    Returns:
        int32 ``[S]``.
    """
    sizes = np.zeros(scores.shape[0], np.int32)
    for _ in range(budget):
        text = next_text(scores, sizes)
        if text < 0:
            break
        sizes[text] += 1
    return sizes


@kernel
def next_text(scores: Doubles, sizes: Ints) -> int:
    """The text whose next node is the best of all; of several the first, and -1 where no text has one left.

    Args:
        scores: float64 ``[S, n + 1]``, see `shared_sizes`.
        sizes: int32 ``[S]``, nodes of each text that have entered.
    """
    best, best_score = -1, -np.inf
    for text in range(sizes.size):
        if sizes[text] + 1 < scores.shape[1] and scores[text, sizes[text] + 1] > best_score:
            best, best_score = text, scores[text, sizes[text] + 1]
    return best
