"""Best-first trees: the drafted tokens with the largest path probabilities.

Ringel and Romano, "DDTree" (2026), arXiv 2604.12989. Path scores are sums on the grid of
`simlab.grid`, so they are exact; equal scores are resolved by the smaller tuple of ranks, a
prefix first. It is the released code's order up to D grid steps.
"""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from simlab.arrays import Doubles, Floats, Ints
from simlab.draft import Draft, Marginals
from simlab.jit import kernel
from simlab.policy import Needs, Stateless
from simlab.tree import DraftTree


class BestFirst(NamedTuple):
    """Nodes in the order in which they enter, the root first.

    Attributes:
        tokens: int32 ``[N + 1]``.
        parents: int32 ``[N + 1]``, -1 for the root.
        depths: int32 ``[N + 1]``, 0 for the root.
        ranks: int32 ``[N + 1]``, the rank of each token at its depth; 0 for the root.
        scores: float64 ``[N + 1]``, the path's log-probability, exact; 0 for the root.
    """

    tokens: Ints
    parents: Ints
    depths: Ints
    ranks: Ints
    scores: Doubles


@dataclass(frozen=True, slots=True)
class DDTree(Stateless):
    """The ``budget`` drafted tokens with the largest path probabilities under the marginals.

    No tree of as many tokens has a larger sum of path probabilities. Smaller budgets are
    prefixes of larger ones.
    """

    budget: int

    source: ClassVar[str] = "Ringel and Romano 2026, arXiv 2604.12989"
    exactness: ClassVar[str] = "exact (from released code)"
    reads: ClassVar[str] = "every kept candidate, up to the exact budget of the trace"

    def __post_init__(self) -> None:
        if self.budget < 1:
            raise ValueError(f"budget must be at least 1; got {self.budget}")

    @property
    def needs(self) -> Needs:
        return Needs(top_k=None)

    def select(self, draft: Draft, state: None = None) -> DraftTree:
        nodes = best_first(draft.root_token, draft.drafted(), self.budget)
        return DraftTree(nodes.tokens, nodes.parents)


def best_first(root_token: int, marginals: Marginals, budget: int) -> BestFirst:
    """The best-first tree of at most ``budget`` drafted tokens; fewer where the candidates run out."""
    return BestFirst(*_pop_in_order(root_token, marginals.ids, marginals.log_probs, marginals.offsets, budget))


def ranks_used(marginals: Marginals, budget: int) -> Ints:
    """How many ranks the best-first tree of ``budget`` drafted tokens reads at each depth.

    Returns:
        int32 ``[D]``; the tree is the same when each depth is cut to so many candidates.
    """
    nodes = best_first(0, marginals, budget)
    return _ranks_used(nodes.depths, nodes.ranks, marginals.depth)


@kernel
def _ranks_used(depths: Ints, ranks: Ints, num_depths: int) -> Ints:
    used = np.zeros(num_depths, np.int32)
    for node in range(1, depths.size):
        used[depths[node] - 1] = max(used[depths[node] - 1], ranks[node] + 1)
    return used


@kernel
def _pop_in_order(
    root_token: int, ids: Ints, log_probs: Floats, offsets: Ints, budget: int
) -> tuple[Ints, Ints, Ints, Ints, Doubles]:
    """Take the best candidate, offer its next sibling and its first child; repeat.

    A candidate is offered only after its parent and its better siblings were taken, and all of
    these come before it in the order of nodes, so candidates are taken in exactly that order.
    """
    num_depths = offsets.size - 1
    nodes = np.empty((4, budget + 1), np.int32)
    tokens, parents, depths, ranks = nodes[0], nodes[1], nodes[2], nodes[3]
    scores = np.empty(budget + 1, np.float64)
    tokens[0], parents[0], depths[0], ranks[0], scores[0] = root_token, -1, 0, 0, 0.0
    # Candidates are numbered as they are offered; the heap holds their numbers.
    offered = np.empty((2, 2 * budget + 1), np.int32)
    offered_scores = np.empty(2 * budget + 1, np.float64)
    heap = np.empty(budget + 1, np.int32)
    num_offered, heap_size, node = 0, 0, 0
    if budget > 0 and num_depths > 0 and offsets[1] > 0:
        offered[0, 0], offered[1, 0], offered_scores[0] = 0, 0, log_probs[0]
        heap[0] = 0
        num_offered, heap_size = 1, 1
    while heap_size > 0 and node < budget:
        best = heap[0]
        node += 1
        parent, rank = offered[0, best], offered[1, best]
        depth = depths[parent] + 1
        place = offsets[depth - 1] + rank
        tokens[node], parents[node], depths[node], ranks[node] = ids[place], parent, depth, rank
        scores[node] = offered_scores[best]
        if place + 1 < offsets[depth]:
            offered[0, num_offered], offered[1, num_offered] = parent, rank + 1
            offered_scores[num_offered] = scores[parent] + log_probs[place + 1]
            heap[0] = num_offered
            num_offered += 1
        else:
            heap_size -= 1
            heap[0] = heap[heap_size]
        _sift_down(heap, heap_size, offered, offered_scores, parents, ranks, depths)
        if depth < num_depths and offsets[depth] < offsets[depth + 1]:
            offered[0, num_offered], offered[1, num_offered] = node, 0
            offered_scores[num_offered] = scores[node] + log_probs[offsets[depth]]
            heap[heap_size] = num_offered
            heap_size += 1
            num_offered += 1
            _sift_up(heap, heap_size, offered, offered_scores, parents, ranks, depths)
    end = node + 1
    return tokens[:end], parents[:end], depths[:end], ranks[:end], scores[:end]


@kernel
def _sift_down(
    heap: Ints, size: int, offered: Ints, offered_scores: Doubles, parents: Ints, ranks: Ints, depths: Ints
) -> None:
    """Put the top entry where it belongs."""
    place, moving = 0, heap[0]
    while 2 * place + 1 < size:
        below = 2 * place + 1
        if below + 1 < size and _before(heap[below + 1], heap[below], offered, offered_scores, parents, ranks, depths):
            below += 1
        if not _before(heap[below], moving, offered, offered_scores, parents, ranks, depths):
            break
        heap[place] = heap[below]
        place = below
    heap[place] = moving


@kernel
def _sift_up(
    heap: Ints, size: int, offered: Ints, offered_scores: Doubles, parents: Ints, ranks: Ints, depths: Ints
) -> None:
    """Put the last entry where it belongs."""
    place, moving = size - 1, heap[size - 1]
    while place > 0:
        above = (place - 1) // 2
        if not _before(moving, heap[above], offered, offered_scores, parents, ranks, depths):
            break
        heap[place] = heap[above]
        place = above
    heap[place] = moving


@kernel
def _before(
    one: int, other: int, offered: Ints, offered_scores: Doubles, parents: Ints, ranks: Ints, depths: Ints
) -> bool:
    """The order of nodes: the higher score, then the smaller tuple of ranks, a prefix first."""
    if offered_scores[one] != offered_scores[other]:
        return bool(offered_scores[one] > offered_scores[other])
    parent_a, rank_a = offered[0, one], offered[1, one]
    parent_b, rank_b = offered[0, other], offered[1, other]
    shallower = depths[parent_a] < depths[parent_b]
    while depths[parent_a] > depths[parent_b]:
        parent_a, rank_a = parents[parent_a], ranks[parent_a]
    while depths[parent_b] > depths[parent_a]:
        parent_b, rank_b = parents[parent_b], ranks[parent_b]
    while parent_a != parent_b:
        parent_a, rank_a = parents[parent_a], ranks[parent_a]
        parent_b, rank_b = parents[parent_b], ranks[parent_b]
    return bool(rank_a < rank_b or (rank_a == rank_b and shallower))
