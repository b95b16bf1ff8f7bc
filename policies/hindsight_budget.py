"""The best budget in each round, told the answer: how much a better choice of the budget could still bring.

It is no policy. It keeps the order of nodes and chooses, at every root at which a round starts, how many of them enter,
so that the seconds of the whole text are the fewest. No budget rule on the same order and prices is faster.
"""

import numpy as np

from simlab.arrays import Ints, Longs, Shorts
from simlab.columns import RoundColumns
from simlab.cost import CostTable
from simlab.jit import kernel
from simlab.policies.best_first import BestFirst
from simlab.policies.edge_models import Marginal
from simlab.policies.node_order import NodeOrder
from simlab.policies.round_costs import ALL_STAGES, RoundCosts, contexts_of, costs_at, round_costs
from simlab.policies.walk import walk_layer
from simlab.recorded import RecordedSequence


def best_budgets_in_hindsight(
    recorded: RecordedSequence, cost: CostTable, most: int, order: NodeOrder | None = None
) -> RoundColumns:
    """The rounds of the fewest seconds that an order can have on a text, every size tried at every root.

    A drafter pass is charged in each round, whatever its size.

    Args:
        recorded: the text and its draft rows.
        cost: what a round costs.
        most: the largest size.
        order: which nodes enter; None: best-first on the marginals.

    Raises:
        ValueError: the prices end before ``most``, or there are no draft rows.
    """
    layer = (BestFirst(Marginal()) if order is None else order).layer(recorded, most, False)
    costs = round_costs(cost, ALL_STAGES, most)
    contexts = contexts_of(len(recorded.prompt.token_ids), len(recorded.text))
    sizes = _sizes(layer.insertions, layer.num_available, contexts, costs, most)
    return walk_layer(layer.insertions, sizes, len(recorded.text))


@kernel
def _sizes(insertions: Shorts, available: Ints, contexts: Longs, costs: RoundCosts, most: int) -> Ints:
    """From the last root to the first, the smallest size with which the rest of the text takes the least."""
    num_roots, num_depths = insertions.shape
    rest, sizes = np.zeros(num_roots + 1, np.float64), np.zeros(num_roots, np.int32)
    seconds = np.empty(most + 1, np.float64)
    for back in range(num_roots):
        root = num_roots - 1 - back
        costs_at(costs, int(contexts[root]), seconds)
        accepted, deepest = 0, min(num_depths, num_roots - root)
        best = np.inf
        for n in range(min(available[root], most) + 1):
            while accepted < deepest and insertions[root, accepted] <= n:
                accepted += 1
            total = seconds[n] + rest[min(root + accepted + 1, num_roots)]
            if total < best:
                best, sizes[root] = total, n
        rest[root] = best
    return sizes
