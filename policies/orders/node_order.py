"""In which order do nodes enter a tree? What an edge model and a shape come to."""

from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np

from simlab.arrays import Doubles, Ints, Longs, Shorts
from simlab.channels import BranchRows
from simlab.columns import TextRounds
from simlab.draft import Draft
from simlab.grid import LOWEST, STEPS_PER_NAT
from simlab.jit import inlined_kernel, kernel
from simlab.limits import check_memory
from simlab.policies.edges.children import ELSEWHERE, SPINE, Children, empty_children
from simlab.policies.edges.correction import Correction, no_correction
from simlab.policies.kernels.best_scores import GATHER_FACTOR, best_scores_into
from simlab.policies.kernels.insertion import count_buffers_for, insertions_into, num_paths
from simlab.policies.kernels.take_in_order import take_in_order
from simlab.policies.kernels.true_places import DEPTHS, PARENTS, RANKS, TOKENS
from simlab.policy import Asked, Needs
from simlab.recorded import RecordedTexts, Roots
from simlab.sequence_replay import draft_source

# From places in the order of nodes to rounds: how a policy of nested trees goes through texts.
#
# Where the target drafts for itself some nodes carry masks. Samragh and others 2025, "Your LLM Knows the Future",
# arXiv 2507.11851, whose linear and quadratic decoding are the two ends of one number: the masks stand behind the
# first nodes in the order in which they enter. Where the last accepted node is one of these, the next root has a
# draft at no further pass. Where it is not, the next round drafts nothing: it is a pass of the root with masks behind
# it, commits one token, and gives the next root a draft.

EVERY_NODE = 1 << 30
"""As the last node that carries masks: every root has a draft, as where a drafter makes it."""


def walk_layer(
    insertions: Shorts, num_drafted: Ints, firsts: Longs, masked: int = EVERY_NODE, first_draft: bool = True
) -> TextRounds:
    """The rounds of trees that hold the first nodes of an order.

    Args:
        insertions: uint16 ``[R, D]``, the place of each node of the true path at each root, from 1; they rise.
        num_drafted: int32 ``[R]``, the size of the tree at each root, where it has a draft.
        firsts: int64 ``[S + 1]``, the first root of each text, and R.
        masked: the number of the last node that carries masks, the root's being 0; -1: none does.
        first_draft: whether the first root of a text has a draft: masks stand behind the prompt.
    """
    visited, ends = _walk(insertions, num_drafted, firsts, masked, first_draft)
    return TextRounds(visited[0], visited[1], visited[2], ends)


@inlined_kernel
def num_accepted(insertions: Shorts, root: int, num_drafted: int) -> int:
    """How many nodes of the true path are in the tree of a root."""
    accepted = 0
    while accepted < insertions.shape[1] and insertions[root, accepted] <= num_drafted:
        accepted += 1
    return accepted


@kernel
def _walk(insertions: Shorts, num_drafted: Ints, firsts: Longs, masked: int, first_draft: bool) -> tuple[Longs, Longs]:
    """int64 ``[3, N]``: the root, drafted and accepted tokens of each round; and where those of each text end."""
    visited, ends = np.empty((3, insertions.shape[0]), np.int64), np.empty(firsts.size - 1, np.int64)
    number = 0
    for text in range(firsts.size - 1):
        root, has_draft = firsts[text], 1 if first_draft else 0
        while root < firsts[text + 1]:
            drafted = int(num_drafted[root]) if has_draft == 1 else 0
            accepted = num_accepted(insertions, root, drafted) if has_draft == 1 else 0
            last = np.int64(insertions[root, accepted - 1]) if accepted > 0 else np.int64(0)
            has_draft = 1 if has_draft == 0 or last <= masked else 0
            visited[0, number], visited[1, number], visited[2, number] = root, drafted, accepted
            number += 1
            root += accepted + 1
        ends[text] = number
    return visited[:, :number].copy(), ends


NEVER = 65535
"""Stands for a node that is not among the first ones; so many are never asked for."""


class OrderedNodes(NamedTuple):
    """Nodes in the order in which they enter, the root first; every beginning of them is a tree.

    Attributes:
        tokens: int32 ``[N + 1]``.
        parents: int32 ``[N + 1]``, -1 for the root.
        depths: int32 ``[N + 1]``, 0 for the root.
        ranks: int32 ``[N + 1]``, the drafter's rank of each token at its depth; 0 for the root.
        scores: float64 ``[N + 1]``, the path's score, exact; 0 for the root.
    """

    tokens: Ints
    parents: Ints
    depths: Ints
    ranks: Ints
    scores: Doubles


def ordered_nodes(tree: Ints, scores: Doubles) -> OrderedNodes:
    """The nodes of a tree int32 ``[4, N + 1]``, rows as `simlab.policies.kernels.true_places` has them."""
    return OrderedNodes(tree[TOKENS], tree[PARENTS], tree[DEPTHS], tree[RANKS], scores)


@dataclass(frozen=True, slots=True, eq=False)
class OrderLayer:
    """What every budget needs to know of some texts: whole numbers for each root, whatever the budget.

    Attributes:
        insertions: uint16 ``[R, D]``, how large a tree must be to hold the node of the true path at a depth; `NEVER`
            where more than ``most`` tokens, or where the true token is no candidate.
        num_available: int32 ``[R]``, nodes there are, at most ``most``.
        scores: float64 ``[R, most + 1]``, path scores in the order of nodes, the root's 0 first and -inf behind the
            last; narrower where no tree can be as large; None where they were not asked for.
        num_requested: int32 ``[R]``, branches that are asked for at each root, where a round pays for those; else None.
    """

    insertions: Shorts
    num_available: Ints
    scores: Doubles | None
    num_requested: Ints | None = None

    @property
    def score_rows(self) -> Doubles:
        """The scores, for kernels; float64 ``[R, 0]`` where they were not asked for."""
        return np.empty((len(self.insertions), 0), np.float64) if self.scores is None else self.scores


class NodeOrder(Protocol):
    """Which nodes enter, one after the other; how many of them is the budget rule's affair.

    Attributes:
        key: equal keys give equal nodes.
        needs: what is read.
        has_probabilities: whether exp(score) is meant as a probability, so that sums of it are expected tokens.
        scores_fall: whether scores never rise in the order of nodes.
    """

    @property
    def key(self) -> str: ...

    @property
    def needs(self) -> Needs: ...

    @property
    def has_probabilities(self) -> bool: ...

    @property
    def scores_fall(self) -> bool: ...

    def nodes(self, draft: Draft, most: int) -> OrderedNodes:
        """The first nodes at one root, at most ``most`` and the root."""
        ...

    def layer(self, texts: RecordedTexts, most: int, with_scores: bool) -> OrderLayer:
        """The first nodes at all roots of some texts, as a layer."""
        ...


@runtime_checkable
class StagedOrder(NodeOrder, Protocol):
    """An order that says, once it sees the drafter's candidates, which branches it reads."""

    def asked(self, draft: Draft) -> Asked:
        """The branches that are read at one root, by channel; what is not named is read whole."""
        ...


def layer_by_roots(order: NodeOrder, texts: RecordedTexts, most: int, with_scores: bool) -> OrderLayer:
    """The layer of any order, root by root: what its own faster way must give."""
    depths = [texts.roots.counts.shape[1], *(need.deepest or 0 for need in order.needs.channels)]
    depths += [channel.depth for channel in texts.channels.values() if isinstance(channel, BranchRows)]
    layer, index = empty_layer(texts.roots, most, with_scores, max(depths)), 0
    for recorded in texts.sequences:
        source, text = draft_source(order.needs, recorded), recorded.text
        for t in range(len(text) - 1):
            nodes = order.nodes(source(t), most)
            path = true_path(nodes, text[t + 1 :])
            layer.insertions[index, : len(path)] = path
            layer.num_available[index] = len(nodes.tokens) - 1
            if layer.scores is not None:
                layer.scores[index, : len(nodes.scores)] = nodes.scores
            index += 1
    return layer


def empty_layer(roots: Roots, most: int, with_scores: bool, num_depths: int | None = None) -> OrderLayer:
    """A layer to be filled: no node of the true path, and no node at all; by default as deep as the drafter's rows."""
    if with_scores:
        check_memory(8 * len(roots.counts) * (most + 1), f"scores of trees of up to {most:,} tokens", "take fewer")
    num_roots, deepest = roots.counts.shape
    insertions = np.full((num_roots, deepest if num_depths is None else num_depths), NEVER, np.uint16)
    scores = np.full((len(insertions), most + 1), -np.inf) if with_scores else None
    return OrderLayer(insertions, np.zeros(len(insertions), np.int32), scores)


def true_path(nodes: OrderedNodes, follows: Ints) -> list[int]:
    """The nodes of the true path, from below the root, as far as they are among these."""
    path: list[int] = []
    for node, (token, parent) in enumerate(zip(nodes.tokens.tolist(), nodes.parents.tolist(), strict=True)):
        if node and len(path) < len(follows) and parent == (path[-1] if path else 0) and token == follows[len(path)]:
            path.append(node)
    return path


# One tree for all rounds: which ranks enter is settled by how often each was right on other texts.
#
# Sequoia (Chen and others 2024, arXiv 2402.12374) finds the tree with the most expected accepted tokens by dynamic
# programming over how often the k-th child is accepted. With frequencies by depth and rank, a path is accepted as often
# as their product says, and the best tree of n nodes is the n largest products: the same search as best-first, with
# these frequencies in place of probabilities.


@dataclass(frozen=True, slots=True, eq=False)
class StaticOrder:
    """Ranks in the order of the product of their frequencies, the same at every root; ties by the smaller ranks.

    A frequency of 0 counts as the lowest number of the grid. Where a root has fewer candidates than the table ranks,
    the nodes that are not there are passed over. No node is deeper than the table.

    Attributes:
        frequencies: float64 ``[D, R]``, how often the true token has a rank at a depth, given the path above it.
        table_id: content id of the table.
    """

    frequencies: Doubles
    table_id: str
    has_probabilities: bool = field(default=True, init=False)
    scores_fall: bool = field(default=True, init=False)

    def __post_init__(self) -> None:
        shape = self.frequencies.shape
        if len(shape) != 2 or 0 in shape:
            raise ValueError(f"frequencies must be [depths, ranks], at least one of each; got the shape {shape}")
        if not np.all((self.frequencies >= 0) & (self.frequencies <= 1)):
            raise ValueError("frequencies must be from 0 to 1")

    @property
    def key(self) -> str:
        """The content id of the table that this order follows."""
        return f"static:{self.table_id}"

    @property
    def needs(self) -> Needs:
        """So many ranks as the table has."""
        return Needs(top_k=self.frequencies.shape[1])

    def nodes(self, draft: Draft, most: int) -> OrderedNodes:
        """The first nodes at one root."""
        marginals, (costs, ranks) = draft.drafted(), self._lists()
        counts = marginals.counts
        tree, scores = _tree(marginals.ids, counts, costs, ranks, no_correction(), draft.root_token, most)
        return ordered_nodes(tree, scores)

    def layer(self, texts: RecordedTexts, most: int, with_scores: bool) -> OrderLayer:
        """The first nodes at all roots of some texts, as a layer."""
        roots = texts.drafted()
        layer, lists = empty_layer(roots, most, with_scores), self._lists()
        _fill_layer(roots, *lists, most, layer.insertions, layer.num_available, layer.score_rows)
        return layer

    def scores(self, most: int) -> Doubles:
        """float64 ``[n + 1]``, path scores where every rank of the table is there, the root's 0 first; n <= most."""
        (num_depths, num_ranks), (costs, ranks) = self.frequencies.shape, self._lists()
        ids, counts = np.zeros(num_depths * num_ranks, np.int32), np.full(num_depths, num_ranks, np.int32)
        return _tree(ids, counts, costs, ranks, no_correction(), 0, most)[1]

    def _lists(self) -> tuple[Ints, Ints]:
        """int32 ``[D, R]`` twice, costs and ranks, the best first at each depth."""
        with np.errstate(divide="ignore"):
            logs = np.maximum(np.log(self.frequencies), LOWEST)
        costs = np.rint(-logs * STEPS_PER_NAT).astype(np.int32)
        ranks = np.argsort(costs, axis=1, kind="stable").astype(np.int32)
        return np.take_along_axis(costs, ranks, axis=1), ranks


@kernel
def _fill_static(children: Children, ids: Ints, counts: Ints, start: int, costs: Ints, ranks: Ints) -> None:
    """The candidates that a root has, as the table scores them."""
    index = 0
    for depth in range(counts.size):
        children.starts[SPINE, depth] = children.starts[ELSEWHERE, depth] = index
        if depth < costs.shape[0]:
            for column in range(costs.shape[1]):
                rank = ranks[depth, column]
                if rank < counts[depth]:
                    children.costs[index], children.ranks[index] = costs[depth, column], rank
                    children.tokens[index] = ids[start + rank]
                    index += 1
        children.ends[SPINE, depth] = children.ends[ELSEWHERE, depth] = index
        start += counts[depth]


@kernel
def _tree(
    ids: Ints, counts: Ints, costs: Ints, ranks: Ints, correction: Correction, root_token: int, most: int
) -> tuple[Ints, Doubles]:
    children = empty_children(counts.size, costs.shape[1])
    _fill_static(children, ids, counts, 0, costs, ranks)
    return take_in_order(children, correction, -1, root_token, most)


@kernel
def _fill_layer(
    roots: Roots,
    costs: Ints,
    ranks: Ints,
    most: int,
    insertions: Shorts,
    available: Ints,
    scores: Doubles,
) -> None:
    """A row for each root, without building trees."""
    num_roots, num_depths = roots.counts.shape
    children, counting = empty_children(num_depths, costs.shape[1]), count_buffers_for(num_depths, most)
    buffers, guess = np.empty((2, GATHER_FACTOR * most), np.int32), 1 << 18
    for root in range(num_roots):
        _fill_static(children, roots.ids, roots.counts[root], roots.starts[root], costs, ranks)
        insertions_into(children, roots.true_ranks[root], most, counting, insertions[root])
        available[root] = num_paths(children, most)
        if scores.shape[1] > 0:
            guess = best_scores_into(children, most, guess, buffers, scores[root])
