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
    # Candidates are numbered as they are offered; the heap holds their scores and numbers.
    offered = np.empty((2, 2 * budget + 1), np.int32)
    heap_scores, heap = np.empty(budget + 1, np.float64), np.empty(budget + 1, np.int32)
    num_offered, heap_size, node = 0, 0, 0
    if budget > 0 and num_depths > 0 and offsets[1] > 0:
        offered[0, 0], offered[1, 0] = 0, 0
        heap_scores[0], heap[0] = log_probs[0], 0
        num_offered, heap_size = 1, 1
    while heap_size > 0 and node < budget:
        node += 1
        parent, rank = offered[0, heap[0]], offered[1, heap[0]]
        depth = depths[parent] + 1
        place = offsets[depth - 1] + rank
        tokens[node], parents[node], depths[node], ranks[node] = ids[place], parent, depth, rank
        scores[node] = heap_scores[0]
        if place + 1 < offsets[depth]:
            offered[0, num_offered], offered[1, num_offered] = parent, rank + 1
            heap_scores[0], heap[0] = scores[parent] + log_probs[place + 1], num_offered
            num_offered += 1
        else:
            heap_size -= 1
            heap_scores[0], heap[0] = heap_scores[heap_size], heap[heap_size]
        _sift_down(heap_scores, heap, heap_size, offered, nodes)
        if depth < num_depths and offsets[depth] < offsets[depth + 1]:
            offered[0, num_offered], offered[1, num_offered] = node, 0
            heap_scores[heap_size], heap[heap_size] = scores[node] + log_probs[offsets[depth]], num_offered
            heap_size += 1
            num_offered += 1
            _sift_up(heap_scores, heap, heap_size, offered, nodes)
    end = node + 1
    return tokens[:end], parents[:end], depths[:end], ranks[:end], scores[:end]


@kernel
def _sift_down(heap_scores: Doubles, heap: Ints, size: int, offered: Ints, nodes: Ints) -> None:
    """Put the top entry where it belongs."""
    place, moving, score = 0, heap[0], heap_scores[0]
    while 2 * place + 1 < size:
        below = 2 * place + 1
        if below + 1 < size:
            left, right = heap_scores[below], heap_scores[below + 1]
            if right > left or (right == left and _smaller_ranks(heap[below + 1], heap[below], offered, nodes)):
                below += 1
        if score > heap_scores[below]:
            break
        if score == heap_scores[below] and _smaller_ranks(moving, heap[below], offered, nodes):
            break
        heap[place], heap_scores[place] = heap[below], heap_scores[below]
        place = below
    heap[place], heap_scores[place] = moving, score


@kernel
def _sift_up(heap_scores: Doubles, heap: Ints, size: int, offered: Ints, nodes: Ints) -> None:
    """Put the last entry where it belongs."""
    place, moving, score = size - 1, heap[size - 1], heap_scores[size - 1]
    while place > 0:
        above = (place - 1) // 2
        if heap_scores[above] > score:
            break
        if heap_scores[above] == score and _smaller_ranks(heap[above], moving, offered, nodes):
            break
        heap[place], heap_scores[place] = heap[above], heap_scores[above]
        place = above
    heap[place], heap_scores[place] = moving, score


@kernel
def _smaller_ranks(one: int, other: int, offered: Ints, nodes: Ints) -> bool:
    """The order of candidates with equal scores: the smaller tuple of ranks, a prefix first.

    The two are walked up to the place where their paths part.
    """
    parents, depths, ranks = nodes[1], nodes[2], nodes[3]
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
