"""JetSpec's released tree, and a chain below its leaf where the drafter was sure all along."""

from dataclasses import dataclass, field

import numpy as np

from simlab.arrays import Doubles, Floats, Ints, Longs, Shorts
from simlab.channels import BRANCHES, Branches, BranchRows
from simlab.channels.rows import WHOLE_CHAIN
from simlab.draft import Draft
from simlab.errors import MissingChannelError
from simlab.grid import STEPS_PER_NAT
from simlab.jit import borrowing_kernel, kernel
from simlab.policies.artefacts import Artefacts
from simlab.policies.composition import Composed, Composition
from simlab.policies.edges.children import empty_children, fill_marginal
from simlab.policies.edges.lattice import lattice_of
from simlab.policies.kernels.take_in_order import insert_true_path
from simlab.policies.kernels.take_lattice import expand_into, tree_buffers_for
from simlab.policies.kernels.true_places import PARENTS, RANKS
from simlab.policies.orders.expand_parent import ExpandParent
from simlab.policies.orders.node_order import NEVER, OrderedNodes, OrderLayer, empty_layer
from simlab.policies.rules.budgets import FixedBudget
from simlab.policies.settings import at_least
from simlab.policy import Asked, ChannelNeed, Needs
from simlab.recorded import RecordedTexts, Roots


@dataclass(frozen=True, slots=True)
class ExtendedFamilies:
    """The first nodes of an expand-parent tree, and a chain below the drafter's whole chain where that is sure.

    It is sure where all of it is among these nodes, and the mean over depths of the gap between the first two
    log-probabilities is above a bound. Gaps are summed in whole grid steps, so that everyone decides alike.

    Attributes:
        width: the most children of a node, and the ranks that are read.
        tree_budget: the nodes of the tree.
        gap: the bound, in nats.
        length: the most tokens of the chain below.
        channel: branches behind the whole chain.
    """

    width: int
    tree_budget: int
    gap: float
    length: int
    channel: str
    has_probabilities: bool = field(default=False, init=False)
    scores_fall: bool = field(default=False, init=False)

    @property
    def key(self) -> str:
        """The name and the settings of this order."""
        return f"extended:{self.width}:{self.tree_budget}:{self.gap}:{self.length}:{self.channel}"

    @property
    def needs(self) -> Needs:
        """The ranks of the tree, and one branch at most, paid where it is asked for."""
        least = (("branches", 1), ("top_k", 1))
        need = ChannelNeed(self.channel, BRANCHES, least, ((WHOLE_CHAIN, 1),), as_asked=True)
        return Needs(top_k=self.width, channels=(need,))

    def asked(self, draft: Draft) -> Asked:
        """The branch behind the whole chain, where the chain is sure."""
        return {self.channel: (draft.drafted().depth,) if self._leaf(draft, self._tree(draft)) else ()}

    def nodes(self, draft: Draft, most: int) -> OrderedNodes:
        """The first nodes at one root."""
        tree, depth = self._tree(draft), draft.drafted().depth
        leaf = self._leaf(draft, tree)
        if leaf == 0:
            return _first(tree, most)
        branches = draft.channels.get(self.channel)
        if not isinstance(branches, Branches) or depth not in branches.lengths:
            raise _no_branch(self.channel)
        row = int((branches.depth - branches.lengths[branches.lengths < depth]).sum())
        rows = slice(row, row + min(self.length, branches.depth - depth))
        tokens, log_probs = branches.ids[rows, 0], branches.log_probs[rows, 0].astype(np.float64)
        last, count = len(tree.tokens) - 1, len(tokens)
        parents = np.array([leaf, *range(last + 1, last + count)], np.int32)[:count]
        depths = np.arange(depth + 1, depth + count + 1, dtype=np.int32)
        joined = OrderedNodes(
            np.concatenate([tree.tokens, tokens]),
            np.concatenate([tree.parents, parents]),
            np.concatenate([tree.depths, depths]),
            np.concatenate([tree.ranks, np.zeros(count, np.int32)]),
            np.concatenate([tree.scores, tree.scores[leaf] + np.cumsum(log_probs)]),
        )
        return _first(joined, most)

    def layer(self, texts: RecordedTexts, most: int, with_scores: bool) -> OrderLayer:
        """The first nodes at all roots of some texts, as a layer."""
        roots, branches = texts.drafted(), texts.channels.get(self.channel)
        if not isinstance(branches, BranchRows):
            raise _no_branch(self.channel)
        depth, num_roots = roots.counts.shape[1], len(roots.counts)
        is_whole, left = (
            branches.lengths == depth,
            np.where(branches.lengths >= 0, branches.depth - branches.lengths, 0),
        )
        # Where the rows of the branch begin; none is longer, so that it is the last.
        rows = branches.starts()[:-1] + np.where(branches.lengths < depth, left, 0).sum(axis=1)
        rows = np.where(is_whole.any(axis=1), rows, -1).astype(np.int64)
        firsts = np.ascontiguousarray(branches.ids[:, 0]), np.ascontiguousarray(branches.log_probs[:, 0])
        deeper = max(0, min(self.length, branches.depth - depth))
        layer, asked = empty_layer(roots, most, with_scores, depth + deeper), np.zeros(num_roots, np.int32)
        settings, columns = (self.width, self.tree_budget, self.gap, deeper), (layer.num_available, layer.score_rows)
        _fill_layer(roots, *settings, *firsts, rows, most, layer.insertions, *columns, asked)
        if (asked > 0)[rows < 0].any():
            raise _no_branch(self.channel)
        return OrderLayer(layer.insertions, layer.num_available, layer.scores, asked)

    def _tree(self, draft: Draft) -> OrderedNodes:
        return ExpandParent(self.width).nodes(draft, self.tree_budget)

    def _leaf(self, draft: Draft, tree: OrderedNodes) -> int:
        """The last node of the whole chain, where the chain is sure; else 0."""
        marginals = draft.drafted()
        counts = marginals.counts
        if not _is_sure(marginals.log_probs, counts, 0, self.gap):
            return 0
        return int(_chain_leaf(tree.parents, tree.ranks, len(tree.parents) - 1, len(counts)))


@dataclass(frozen=True)
class JetSpecExtended(Composed):
    """A tree of `expand-parent` of ``tree_budget`` tokens, and up to ``length`` more below its most probable chain.

    The drafter is run once more behind its whole chain, where that is in the tree and the mean over depths of the gap
    between its first two log-probabilities is above ``gap`` nats. A round that does not, pays for no second pass. As
    released the second pass has the block's own slots, all of which root and chain fill, so that the tokens spliced
    below the leaf are those said at the chain's own positions; here the block is longer, its further slots hold masks,
    and the tokens are those said behind the chain. It is for a causal head, and stands in the trace's channel
    ``channel``, recorded with ``whole=1`` and a longer ``block``.
    """

    tree_budget: int = 254
    width: int = at_least(2, 7, "must be at least 2, for a gap between two candidates")
    gap: float = 1.0
    length: int = 7
    channel: str = "extension"

    source = "JetSpec 2026, arXiv 2606.18394"
    exactness = (
        "tree and gate exact (from released code), but for precision and tie order; the longer block is simlab's"
    )
    reads = "the first `width` candidates at each depth, and the drafter's own branch behind its chain"
    variants = ("tree_budget=24,gap=0.1", "tree_budget=12,width=2,gap=0.0,length=2")

    def __post_init__(self) -> None:
        if min(self.tree_budget, self.length) < 1:
            raise ValueError(f"tree_budget and length must be at least 1; got {self.tree_budget} and {self.length}")
        super().__post_init__()
        if not np.isfinite(self.gap):
            raise ValueError(f"gap must be a number; got {self.gap}")

    @property
    def budget(self) -> int:
        """The tree and the chain below it."""
        return self.tree_budget + self.length

    @classmethod
    def searched(cls, budget: int, depth: int) -> tuple[str, ...]:
        """Trees of a few sizes, with room for a chain below each."""
        sizes = "/".join(str(size) for size in (8, 16, 32, 64, 128, 256) if size + depth <= budget)
        return (f"gap=0.5/1/2,tree_budget={sizes},length={depth}",) if sizes else ()

    def compose(self, artefacts: Artefacts) -> Composition:
        """The tree with its extension, and room for both."""
        order = ExtendedFamilies(self.width, self.tree_budget, self.gap, self.length, self.channel)
        return Composition(order, FixedBudget(self.budget))


def _first(nodes: OrderedNodes, most: int) -> OrderedNodes:
    """The root and the first so many nodes."""
    end = most + 1
    whole = nodes.tokens[:end], nodes.parents[:end], nodes.depths[:end], nodes.ranks[:end]
    return OrderedNodes(*whole, nodes.scores[:end])


def _no_branch(channel: str) -> MissingChannelError:
    return MissingChannelError(
        f"the policy asks for the branch behind the whole chain in the channel {channel}, and there is none; record "
        f"it: `simlab record --trace DIR --add-channel {channel}=CHECKPOINT,block=N,{WHOLE_CHAIN}=1`"
    )


@borrowing_kernel
def _is_sure(log_probs: Floats, counts: Ints, start: int, gap: float) -> bool:
    """Whether the mean gap between the first two candidates of each depth is above a bound.

    Args:
        log_probs: float32, on the grid, depth after depth.
        counts: int32 ``[D]``, candidates of each depth; where there are fewer than two nothing is sure.
        start: where the first depth begins.
        gap: the bound, in nats.
    """
    steps, index = np.int64(0), start
    for depth in range(counts.size):
        if counts[depth] < 2:
            return False
        steps += np.int64(np.rint((np.float64(log_probs[index]) - np.float64(log_probs[index + 1])) * STEPS_PER_NAT))
        index += counts[depth]
    return bool(steps > gap * STEPS_PER_NAT * counts.size)


@borrowing_kernel
def _chain_leaf(parents: Ints, ranks: Ints, num: int, depth: int) -> int:
    """The node of a tree that is ``depth`` first candidates below the root; 0 if there is none.

    Args:
        parents: int32 ``[N + 1]``.
        ranks: int32 ``[N + 1]``.
        num: nodes below the root.
        depth: of the node.
    """
    here, reached = 0, 0
    for node in range(1, num + 1):
        if reached < depth and parents[node] == here and ranks[node] == 0:
            here, reached = node, reached + 1
    return here if reached == depth else 0


@kernel
def _fill_layer(
    roots: Roots,
    width: int,
    tree_budget: int,
    gap: float,
    length: int,
    ids: Ints,
    log_probs: Floats,
    rows: Longs,
    most: int,
    insertions: Shorts,
    available: Ints,
    scores: Doubles,
    asked: Ints,
) -> None:
    """A row of the layer for each root, and what is ``asked`` there, int32 ``[N]``; settings as in `ExtendedFamilies`.

    ``ids`` int32 and ``log_probs`` float32 ``[S]`` are the first candidates of the rows of the branches, ``rows`` int64
    ``[N]`` the first row behind each root's whole chain, -1 where it has none; ``most`` nodes are told apart.
    """
    num_depths = roots.counts.shape[1]
    children, buffers = empty_children(num_depths, width), tree_buffers_for(tree_budget)
    for text in range(roots.firsts.size - 1):
        for root in range(roots.firsts[text], roots.firsts[text + 1]):
            counts, start = roots.counts[root], roots.starts[root]
            fill_marginal(children, roots.ids, roots.log_probs, counts, start, width)
            num, more, leaf = expand_into(lattice_of(children), -1, width, buffers), 0, 0
            true_places = insertions[root]
            insert_true_path(buffers.tree[:, : num + 1], roots.true_ranks[root], true_places[:num_depths])
            if _is_sure(roots.log_probs, counts, start, gap):
                leaf = _chain_leaf(buffers.tree[PARENTS], buffers.tree[RANKS], num, num_depths)
            if leaf > 0:
                asked[root] = 1
                more = length if rows[root] >= 0 else 0
            if more > 0 and true_places[num_depths - 1] == leaf:
                behind = roots.tokens[roots.token_indices[root] + 1 + num_depths : roots.begins[text + 1]]
                _extend_true_path(true_places, num_depths, ids[rows[root] : rows[root] + more], behind, num)
            for index in range(true_places.size):
                if true_places[index] > most:
                    true_places[index] = NEVER
            available[root] = min(num + more, most)
            if scores.shape[1] > 0:
                below = log_probs[rows[root] : rows[root] + more] if more > 0 else log_probs[:0]
                _fill_scores(scores[root], buffers.costs[: num + 1], leaf, below)


@borrowing_kernel
def _extend_true_path(true_places: Shorts, depth: int, chain: Ints, behind: Ints, num: int) -> None:
    """The places of the true tokens behind the whole chain of the drafter, which is true.

    Args:
        true_places: uint16, of all depths, to be filled behind ``depth``.
        depth: of the drafter's chain.
        chain: int32, the tokens of the extension.
        behind: int32, the true tokens there.
        num: nodes of the tree, behind which the extension stands.
    """
    index = 0
    while index < min(chain.size, behind.size) and chain[index] == behind[index]:
        true_places[depth + index] = num + 1 + index
        index += 1


@borrowing_kernel
def _fill_scores(scores: Doubles, costs: Longs, leaf: int, below: Floats) -> None:
    """Path scores of a tree and of the extension below its leaf, as far as there is room.

    Args:
        scores: float64, of one root, to be filled.
        costs: int64 ``[N + 1]``, of the tree.
        leaf: the node that the extension stands below.
        below: float32, the log-probabilities of its tokens.
    """
    for node in range(min(costs.size, scores.size)):
        scores[node] = costs[node] / -STEPS_PER_NAT + 0.0
    cost = costs[leaf]
    for index in range(below.size):
        cost += np.int64(np.rint(np.float64(below[index]) * -STEPS_PER_NAT))
        if costs.size + index < scores.size:
            scores[costs.size + index] = cost / -STEPS_PER_NAT + 0.0
