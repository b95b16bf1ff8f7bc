"""The chain, and a second drafter's continuations where it is most probably rejected: the tree of D²SD."""

from dataclasses import dataclass, field

import numpy as np

from simlab.arrays import Doubles, Ints, Longs, Shorts
from simlab.draft import Draft
from simlab.grid import STEPS_PER_NAT
from simlab.jit import borrowing_kernel, kernel
from simlab.policies.edges.redrafts import BranchLists, chain_length
from simlab.policies.kernels.take_in_order import keep_path_costs
from simlab.policies.kernels.take_lattice import insert_true_by_token
from simlab.policies.kernels.true_places import DEPTHS, LISTS, PARENTS, RANKS, TOKENS
from simlab.policies.orders.lattice_sources import BranchSource
from simlab.policies.orders.node_order import OrderedNodes, OrderLayer, empty_layer, ordered_nodes
from simlab.policy import Asked, Needs
from simlab.recorded import RecordedTexts, Roots


@dataclass(frozen=True, slots=True)
class RedraftOrder:
    """The whole chain enters first, then branch after branch, the likeliest rejection first, each with first tokens.

    What is there already enters once: a branch may repeat the chain, or another branch.

    Attributes:
        source: of chain and branches.
        exclude: whether the token that the chain has behind a boundary is left out of the branch's first row: there it
            was rejected.
    """

    source: BranchSource
    exclude: bool = False
    has_probabilities: bool = field(default=False, init=False)
    scores_fall: bool = field(default=False, init=False)

    @property
    def key(self) -> str:
        """The key of the source, and the settings."""
        return f"redrafts:{self.exclude}:{self.source.key}"

    @property
    def needs(self) -> Needs:
        """As the source says."""
        return self.source.needs

    def asked(self, draft: Draft) -> Asked:
        """The branches of one root that are read."""
        return self.source.asked(draft)

    def nodes(self, draft: Draft, most: int) -> OrderedNodes:
        """The first nodes at one root."""
        branches = self.source.at_root(draft).branches
        assert branches is not None
        tree, scores = _tree(branches, self.exclude, draft.root_token, most)
        return ordered_nodes(tree, scores)

    def layer(self, texts: RecordedTexts, most: int, with_scores: bool) -> OrderLayer:
        """The first nodes at all roots of some texts, as a layer."""
        lists = self.source.at_roots(texts)
        assert lists.branches is not None
        layer = empty_layer(texts.roots, most, with_scores, lists.num_depths())
        columns = layer.insertions, layer.num_available, layer.score_rows
        _fill_layer(texts.roots, lists.branches, self.exclude, most, *columns)
        return layer


@kernel
def _tree(branches: BranchLists, exclude: bool, root_token: int, most: int) -> tuple[Ints, Doubles]:
    tree, costs = np.empty((LISTS, most + 1), np.int32), np.empty(most + 1, np.int64)
    num = _grow(branches, 0, exclude, root_token, tree, costs)
    return tree[:, : num + 1].copy(), costs[: num + 1] / -STEPS_PER_NAT + 0.0


@kernel
def _fill_layer(
    roots: Roots,
    branches: BranchLists,
    exclude: bool,
    most: int,
    insertions: Shorts,
    available: Ints,
    scores: Doubles,
) -> None:
    """A row for each root."""
    tree, costs = np.empty((LISTS, most + 1), np.int32), np.empty(most + 1, np.int64)
    for text in range(roots.firsts.size - 1):
        for root in range(roots.firsts[text], roots.firsts[text + 1]):
            num = _grow(branches, root, exclude, -1, tree, costs)
            behind = roots.tokens[roots.token_indices[root] + 1 : roots.begins[text + 1]]
            insert_true_by_token(tree, num, behind, insertions[root])
            keep_path_costs(costs, num, available, scores, root)


@borrowing_kernel
def _grow(branches: BranchLists, root: int, exclude: bool, root_token: int, tree: Ints, costs: Longs) -> int:
    """Fill in the tree of one root.

    Args:
        branches: chain and branches.
        root: one of their roots.
        exclude: as in `RedraftOrder`.
        root_token: its token.
        tree: int32 ``[4, n + 1]``, rows as `simlab.policies.kernels.true_places` has them, to be filled.
        costs: int64 ``[n + 1]``, of the paths, to be filled.

    Returns:
        How many nodes there are below the root; at most n.
    """
    most, num_chain = costs.size - 1, chain_length(branches.chain_ids[root])
    tree[TOKENS, 0], tree[PARENTS, 0], tree[DEPTHS, 0], tree[RANKS, 0], costs[0] = root_token, -1, 0, 0, 0
    num = min(num_chain, most)
    for number in range(1, num + 1):
        token, log_prob = branches.chain_ids[root, number - 1], branches.chain_log_probs[root, number - 1]
        _put(tree, costs, number, number - 1, token, 0, log_prob)
    for index in range(branches.likely.shape[1]):
        length = branches.likely[root, index]
        if length < 0 or num < num_chain:
            break
        row, parent = branches.rows[root, length], int(length)
        if row < 0:
            continue
        for depth in range(length, branches.depth):
            rank = 0
            if exclude and depth == length < num_chain and branches.ids[row, 0] == branches.chain_ids[root, length]:
                rank = 1
            if rank == branches.ids.shape[1]:
                break
            token, log_prob = branches.ids[row, rank], branches.log_probs[row, rank]
            child = _child(tree, num, parent, token)
            if child < 0:
                if num == most:
                    return num
                num, child = num + 1, num + 1
                _put(tree, costs, child, parent, token, rank, log_prob)
            parent, row = child, row + 1
    return num


@borrowing_kernel
def _put(tree: Ints, costs: Longs, number: int, parent: int, token: int, rank: int, log_prob: float) -> None:
    """Set a node of the tree, and the cost of its path."""
    tree[TOKENS, number], tree[PARENTS, number], tree[RANKS, number] = token, parent, rank
    tree[DEPTHS, number] = tree[DEPTHS, parent] + 1
    costs[number] = costs[parent] + np.int64(np.rint(np.float64(log_prob) * -STEPS_PER_NAT))


@borrowing_kernel
def _child(tree: Ints, num: int, parent: int, token: int) -> int:
    """The node below another one that has a token; -1 if there is none."""
    for number in range(parent + 1, num + 1):
        if tree[PARENTS, number] == parent and tree[TOKENS, number] == token:
            return number
    return -1
