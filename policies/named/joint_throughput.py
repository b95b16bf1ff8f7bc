"""A number of drafted tokens for a whole batch, chosen by the throughput that it is expected to bring.

DSpark (2026), arXiv 2607.05147, admits the drafted tokens of all requests in the order of their survival
probabilities, and keeps as many as make expected tokens times passes per second the most. It does so for chains; here
it is done for trees.
"""

from dataclasses import KW_ONLY, dataclass

import numpy as np

from simlab.arrays import Doubles, Ints, Longs
from simlab.cost import CostTable
from simlab.errors import PolicyError
from simlab.grid import weight_scalar
from simlab.jit import kernel
from simlab.policies.artefacts import AUTO, Artefacts
from simlab.policies.composition import Composed, Composition
from simlab.policies.costs.curves import ALL_STAGES, RoundCosts, costs_at, round_costs
from simlab.policies.edges.models import Marginal
from simlab.policies.orders.best_first import BestFirst
from simlab.policies.orders.node_order import OrderLayer
from simlab.policies.rules.budgets import FULL_SCAN, BestRatio, ReadsFallingPaths, next_text, shared_sizes
from simlab.policies.settings import ALL_SIZES, at_least


@dataclass(frozen=True)
class JointThroughput(Composed):
    """At most ``budget`` drafted tokens over all texts of a batch, as many as bring the most tokens per second.

    Drafted tokens of all texts are admitted in the order of their path probabilities, as under `joint`. The batch is
    expected to commit one token for each text and the sum of the admitted path probabilities; a round takes what the
    prices say at the mean number of drafted tokens of a text and the mean context, all stages counted. Every number is
    tried, or with ``look_ahead`` until so many in a row bring no more; 1 stops at the first, as DSpark's does. Of equal
    ones the smallest is taken. ``cost=auto`` are prices of as many texts at a time as the replay has; a file that is
    named should be of as many. A text alone gets the tree of `caddtree` with look_ahead=0,overhead=true.
    """

    budget: int = at_least(1)
    look_ahead: int = at_least(0, 0, ALL_SIZES)
    cost: str = AUTO

    source = "DSpark 2026, arXiv 2607.05147"
    exactness = (
        "reconstruction (its throughput rule, on trees; the marginals in place of its confidence head, and latencies "
        "of equal trees in place of its profile of passes)"
    )
    reads = "every kept candidate, up to the exact budget of the trace; a latency profile"
    variants = ("budget=24", "budget=24,look_ahead=1")

    def compose(self, artefacts: Artefacts) -> Composition:
        """Best-first on the marginals, the throughput rule."""
        table, cost_id = artefacts.cost(self.cost)
        rule = SharedThroughput(self.budget, table, look_ahead=self.look_ahead or FULL_SCAN)
        return Composition(BestFirst(Marginal()), rule, {"cost": cost_id})


@dataclass(frozen=True, slots=True, eq=False)
class SharedThroughput(ReadsFallingPaths):
    """The number over all texts of a batch with the most expected tokens per second; of several the smallest.

    Where fewer texts are running than the prices are of, no number is tried whose mean has no price.

    Attributes:
        most: never more, of all texts together.
        cost: what a round costs; of as many texts at a time as there are, its drafted tokens those of each.
        stages: those that count.
        look_ahead: it stops once so many numbers in a row were no better than the best.
    """

    most: int
    cost: CostTable
    stages: tuple[str, ...] = ALL_STAGES
    _: KW_ONLY
    look_ahead: int = FULL_SCAN

    def sizes(self, layer: OrderLayer, contexts: Longs) -> Ints:
        self.check_batch(1)
        return BestRatio(self.most, self.cost, self.stages, look_ahead=self.look_ahead).sizes(layer, contexts)

    def shares(self, scores: Doubles, contexts: Longs) -> Ints:
        num_texts = len(scores)
        most = min(self.most, num_texts * self.cost.most_drafted)
        costs = round_costs(self.cost, self.stages, -(-most // num_texts))
        context = int(np.rint(contexts.mean()))
        return shared_sizes(scores, _best_total(scores, context, costs, most, self.look_ahead))

    def check_batch(self, batch: int) -> None:
        if self.most > batch * self.cost.most_drafted:
            texts = "1 text" if batch == 1 else f"{batch:,} texts at a time"
            raise PolicyError(
                f"joint-throughput:budget={self.most} with {texts}: the latency profile ends at "
                f"{self.cost.most_drafted:,} drafted tokens of each text; give it a budget of at most "
                f"{batch * self.cost.most_drafted:,}, or {self.cost.how_to_reach()}"
            )


@kernel
def _best_total(scores: Doubles, context: int, costs: RoundCosts, most: int, look_ahead: int) -> int:
    num_texts = scores.shape[0]
    sizes, seconds = np.zeros(num_texts, np.int32), np.empty(costs.seconds.shape[1], np.float64)
    costs_at(costs, context, seconds)
    tokens = float(num_texts)
    best, best_ratio, missed = 0, tokens / seconds[0], 0
    for n in range(1, most + 1):
        text = next_text(scores, sizes)
        if text < 0:
            break
        sizes[text] += 1
        tokens += weight_scalar(scores[text, sizes[text]])
        ratio = tokens / _seconds_of_mean(seconds, n, num_texts)
        if ratio > best_ratio:
            best, best_ratio, missed = n, ratio, 0
        else:
            missed += 1
            if missed >= look_ahead:
                break
    return best


@kernel
def _seconds_of_mean(seconds: Doubles, total: int, num_texts: int) -> float:
    """Seconds of a round by the mean number of drafted tokens of a text; linear between whole numbers."""
    low, more = total // num_texts, total % num_texts
    if more == 0:
        return float(seconds[low])
    share = more / num_texts
    return float(seconds[low] * (1.0 - share) + seconds[low + 1] * share)
