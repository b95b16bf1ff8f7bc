"""Fixed budgets on one text: only the roots that some budget comes to are looked at, each once."""

import numpy as np

from simlab.arrays import Doubles, Floats, Ints, Longs
from simlab.columns import RoundColumns
from simlab.jit import kernel
from simlab.policies.children import fill_marginal, room_for_children
from simlab.policies.insertion import insertions_into, num_paths
from simlab.policies.rank_classes import apply_map
from simlab.policies.walk import rounds_of
from simlab.recorded import DraftRows


def walk_budgets(rows: DraftRows, budgets: Ints, top_k: int, edge_map: Doubles) -> list[RoundColumns]:
    """The rounds of best-first trees of several budgets on one text.

    Args:
        rows: the candidates.
        budgets: int32 ``[B]``, drafted tokens.
        top_k: so many ranks are read at each depth.
        edge_map: as in `simlab.policies.edge_models.EdgeModel`.
    """
    num_roots = len(rows.counts)
    visited, ends, available = _walk(
        rows.ids, rows.log_probs, rows.counts, rows.true_ranks, rows.starts(), budgets, top_k, edge_map
    )
    starts = [0, *ends[:-1].tolist()]
    return [
        rounds_of(visited[:, start:end], np.minimum(available, budget), num_roots + 1)
        for budget, start, end in zip(budgets.tolist(), starts, ends.tolist(), strict=True)
    ]


@kernel
def _walk(
    ids: Ints,
    log_probs: Floats,
    counts: Ints,
    true_ranks: Ints,
    starts: Longs,
    budgets: Ints,
    top_k: int,
    edge_map: Doubles,
) -> tuple[Longs, Longs, Ints]:
    """Positions and accepted tokens of all rounds, budget after budget; where each budget ends; nodes there are."""
    num_roots, num_depths = counts.shape
    most, widest = budgets.max(), 0
    for root in range(num_roots):
        for depth in range(num_depths):
            widest = max(widest, counts[root, depth])
    children = room_for_children(num_depths, min(widest, top_k))
    stack = np.empty((3, num_depths + 1), np.int32)
    insertions, is_done = np.empty((num_roots, num_depths), np.uint16), np.zeros(num_roots, np.bool_)
    available = np.zeros(num_roots, np.int32)
    visited, ends = np.empty((2, num_roots * budgets.size), np.int64), np.empty(budgets.size, np.int64)
    number = 0
    for place in range(budgets.size):
        position = 0
        while position < num_roots:
            if not is_done[position]:
                is_done[position] = True
                fill_marginal(children, ids, log_probs, counts[position], starts[position], top_k)
                if edge_map.shape[0] > 0:
                    apply_map(children, edge_map)
                left = num_roots - position
                insertions_into(children, true_ranks[position], left, most, stack, insertions[position])
                available[position] = num_paths(children, most)
            accepted, deepest = 0, min(num_depths, num_roots - position)
            while accepted < deepest and insertions[position, accepted] <= budgets[place]:
                accepted += 1
            visited[0, number], visited[1, number] = position, accepted
            number += 1
            position += accepted + 1
        ends[place] = number
    return visited[:, :number].copy(), ends, available
