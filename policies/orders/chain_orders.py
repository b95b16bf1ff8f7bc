"""A chain, and branches beside it: where a second choice is worth a node, and what hangs below it.

The whole chain enters first. Then come second choices, each below a node of the chain or the root, in an order that two
measures give; ties go to the larger path score, then to the smaller ranks, which is the deeper of two.
"""

from dataclasses import KW_ONLY, dataclass, field

import numpy as np

from simlab.arrays import Doubles, Floats, Ints, Longs, Shorts
from simlab.draft import Draft
from simlab.grid import STEPS_PER_NAT, weight_scalar
from simlab.jit import kernel
from simlab.policies.edges.children import SPINE, Children, empty_children, fill_marginal
from simlab.policies.kernels.take_in_order import insert_true_path, keep_path_costs
from simlab.policies.kernels.true_places import DEPTHS, PARENTS, RANKS, TOKENS
from simlab.policies.orders.node_order import OrderedNodes, OrderLayer, empty_layer, ordered_nodes
from simlab.policy import Needs
from simlab.recorded import RecordedTexts, Roots

MISS, GAP = 0, 1
"""Where branches go first: where the chain most probably ends, or where the first two candidates are closest."""

EVERY_DEPTH = 1 << 30

_WEIGHT_UNITS = 2.0**40


@dataclass(frozen=True, slots=True)
class GreedyPathOrder:
    """The first candidates, one below the other, as far as there are any."""

    has_probabilities: bool = field(default=True, init=False)
    scores_fall: bool = field(default=True, init=False)

    @property
    def key(self) -> str:
        """A constant, as there is one chain."""
        return "spine"

    @property
    def needs(self) -> Needs:
        """The first candidate at each depth."""
        return Needs(top_k=1)

    def nodes(self, draft: Draft, most: int) -> OrderedNodes:
        """The first nodes at one root."""
        marginals = draft.drafted()
        tokens = marginals.top_tokens(most)
        numbers = np.arange(len(tokens) + 1, dtype=np.int32)
        firsts = marginals.log_probs[marginals.offsets[: len(tokens)]]
        scores = np.concatenate([[0.0], np.cumsum(firsts, dtype=np.float64)])
        return OrderedNodes(
            np.append(np.int32(draft.root_token), tokens), numbers - 1, numbers, np.zeros_like(numbers), scores
        )

    def layer(self, texts: RecordedTexts, most: int, with_scores: bool) -> OrderLayer:
        """The first nodes at all roots of some texts; scores are only as wide as the deepest chain."""
        roots = texts.drafted()
        deepest = min(most, roots.counts.shape[1])
        layer = empty_layer(roots, deepest, with_scores)
        _fill_spine(roots, deepest, layer.insertions, layer.num_available, layer.score_rows)
        return layer


@dataclass(frozen=True, slots=True)
class BranchedChain:
    """The whole chain of first candidates, then second candidates beside it, each with first candidates below.

    Attributes:
        measure: `MISS` or `GAP`.
        num_branches: at most so many.
        below: at most so many first candidates below each second one.
    """

    measure: int
    _: KW_ONLY
    num_branches: int = EVERY_DEPTH
    below: int = 0
    has_probabilities: bool = field(default=True, init=False)
    scores_fall: bool = field(default=False, init=False)

    @property
    def key(self) -> str:
        """The name and the settings of this order."""
        return f"branched-chain:{self.measure}:{self.num_branches}:{self.below}"

    @property
    def needs(self) -> Needs:
        """The first two candidates at each depth."""
        return Needs(top_k=2)

    def nodes(self, draft: Draft, most: int) -> OrderedNodes:
        """The first nodes at one root."""
        marginals = draft.drafted()
        counts = marginals.counts
        settings = self.measure, self.num_branches, self.below
        tree, scores = _tree(marginals.ids, marginals.log_probs, counts, *settings, draft.root_token, most)
        return ordered_nodes(tree, scores)

    def layer(self, texts: RecordedTexts, most: int, with_scores: bool) -> OrderLayer:
        """The first nodes at all roots of some texts, as a layer."""
        roots = texts.drafted()
        layer, settings = empty_layer(roots, most, with_scores), (self.measure, self.num_branches, self.below)
        _fill_layer(roots, *settings, most, layer.insertions, layer.num_available, layer.score_rows)
        return layer


@kernel
def _tree(
    ids: Ints,
    log_probs: Floats,
    counts: Ints,
    measure: int,
    num_branches: int,
    below: int,
    root_token: int,
    most: int,
) -> tuple[Ints, Doubles]:
    children = empty_children(counts.size, 2)
    tree, costs = np.empty((4, most + 1), np.int32), np.empty(most + 1, np.int64)
    fill_marginal(children, ids, log_probs, counts, 0, 2)
    number = _grow(children, measure, num_branches, below, root_token, tree, costs)
    return tree[:, : number + 1].copy(), costs[: number + 1] / -STEPS_PER_NAT + 0.0


@kernel
def _fill_layer(
    roots: Roots,
    measure: int,
    num_branches: int,
    below: int,
    most: int,
    insertions: Shorts,
    available: Ints,
    scores: Doubles,
) -> None:
    """A row for each root."""
    children = empty_children(roots.counts.shape[1], 2)
    tree, costs = np.empty((4, most + 1), np.int32), np.empty(most + 1, np.int64)
    for root in range(roots.counts.shape[0]):
        fill_marginal(children, roots.ids, roots.log_probs, roots.counts[root], roots.starts[root], 2)
        number = _grow(children, measure, num_branches, below, -1, tree, costs)
        insert_true_path(tree[:, : number + 1], roots.true_ranks[root], insertions[root])
        keep_path_costs(costs, number, available, scores, root)


@kernel
def _grow(
    children: Children, measure: int, num_branches: int, below: int, root_token: int, tree: Ints, costs: Longs
) -> int:
    """Fill in the tree of one root by the settings of a `BranchedChain`; how many nodes there are, at most n.

    The tree is int32 ``[4, n + 1]``, rows as `simlab.policies.kernels.true_places` has them, and the costs of its paths
    int64 ``[n + 1]``.
    """
    most = costs.size - 1
    tree[TOKENS, 0], tree[PARENTS, 0], tree[DEPTHS, 0], tree[RANKS, 0], costs[0] = root_token, -1, 0, 0, 0
    number = _hang_chain(children, 0, most, 0, tree, costs)
    if number == most:
        return number
    parents = _places(children, measure, number, costs)
    for branch in range(min(num_branches, parents.size)):
        if number == most:
            break
        number = _hang(children, parents[branch], 1, number, tree, costs)
        number = _hang_chain(children, number, min(below, most - number), number, tree, costs)
    return number


@kernel
def _hang(children: Children, parent: int, rank: int, number: int, tree: Ints, costs: Longs) -> int:
    """Add one node; its number."""
    index = children.starts[SPINE, tree[DEPTHS, parent]] + rank
    number += 1
    tree[TOKENS, number], tree[PARENTS, number] = children.tokens[index], parent
    tree[DEPTHS, number], tree[RANKS, number] = tree[DEPTHS, parent] + 1, rank
    costs[number] = costs[parent] + children.costs[index]
    return number


@kernel
def _hang_chain(children: Children, parent: int, length: int, number: int, tree: Ints, costs: Longs) -> int:
    """Add first candidates one below the other, as far as there are any; the number of the last node."""
    for _ in range(length):
        depth = tree[DEPTHS, parent]
        if depth == children.starts.shape[1] or children.starts[SPINE, depth] == children.ends[SPINE, depth]:
            break
        number = _hang(children, parent, 0, number, tree, costs)
        parent = number
    return number


@kernel
def _places(children: Children, measure: int, length: int, costs: Longs) -> Ints:
    """The nodes of the chain, or the root, below which a second candidate lies, the most urgent first.

    Args:
        children: the first two candidates at each depth.
        measure: as in `BranchedChain`.
        length: of the chain, whose nodes are the first ones.
        costs: int64, of the paths.
    """
    parents, urgencies, sums = np.empty(length, np.int32), np.empty(length, np.int64), np.empty(length, np.int64)
    number = 0
    for parent in range(length):
        start = children.starts[SPINE, parent]
        if children.ends[SPINE, parent] < start + 2:
            continue
        if measure == GAP:
            urgency = np.int64(children.costs[start + 1] - children.costs[start])
        else:
            reached = weight_scalar(costs[parent] / -STEPS_PER_NAT) - weight_scalar(costs[parent + 1] / -STEPS_PER_NAT)
            urgency = -np.int64(reached * _WEIGHT_UNITS)
        cost = costs[parent] + children.costs[start + 1]
        index = number
        while index > 0 and (
            urgencies[index - 1] > urgency or (urgencies[index - 1] == urgency and sums[index - 1] >= cost)
        ):
            parents[index], urgencies[index], sums[index] = parents[index - 1], urgencies[index - 1], sums[index - 1]
            index -= 1
        parents[index], urgencies[index], sums[index] = parent, urgency, cost
        number += 1
    return parents[:number]


@kernel
def _fill_spine(roots: Roots, deepest: int, insertions: Shorts, available: Ints, scores: Doubles) -> None:
    """A row for each root."""
    counts, true_ranks, scored = roots.counts, roots.true_ranks, scores.shape[1] > 0
    for root in range(counts.shape[0]):
        index, is_true = roots.starts[root], True
        if scored:
            scores[root, 0] = 0.0
        for depth in range(deepest):
            if counts[root, depth] == 0:
                break
            is_true = is_true and true_ranks[root, depth] == 0
            if is_true:
                insertions[root, depth] = depth + 1
            available[root] = depth + 1
            if scored:
                scores[root, depth + 1] = scores[root, depth] + roots.log_probs[index]
            index += counts[root, depth]
