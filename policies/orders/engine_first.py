"""Best-first trees on marginals as serving engines build them: among equal path scores the engine's own order.

A tree of the first nodes is that of `simlab.policies.orders.best_first` but where paths are equally probable, and a
node's number is when it entered, as there. Read in UNO's released tree builder (ifm-ai/uno at 9018a5d; the same in
SGLang 0.5.23, `uno_tree.py`) and in TensorRT-Edge-LLM's (about 0.11, `ddtreeKernels.cu`).
"""

from dataclasses import dataclass, field

import numpy as np

from simlab.arrays import Doubles, Floats, Ints, Shorts
from simlab.draft import Draft
from simlab.grid import STEPS_PER_NAT
from simlab.jit import kernel
from simlab.policies.kernels.take_in_order import insert_true_path, keep_path_scores
from simlab.policies.kernels.true_places import DEPTHS, PARENTS, RANKS, TOKENS
from simlab.policies.orders.node_order import OrderedNodes, OrderLayer, empty_layer, ordered_nodes
from simlab.policy import Needs
from simlab.recorded import RecordedTexts, Roots

UNO, EDGE_LLM = "uno", "edge-llm"
TIES = {
    UNO: "the smaller depth, then rank, token id and number of the parent",
    EDGE_LLM: "the smaller number of the parent, then rank and token id",
}
"""Whose order it is, and which of equally probable paths is first."""


@dataclass(frozen=True, slots=True)
class EngineFirst:
    """The most probable paths over the first candidates of each depth.

    Attributes:
        ties: one of `TIES`.
        top_k: candidates of a depth, K.
    """

    ties: str
    top_k: int
    has_probabilities: bool = field(default=True, init=False)
    scores_fall: bool = field(default=True, init=False)

    @property
    def key(self) -> str:
        """The engine and its number of candidates."""
        return f"engine-first:{self.ties}:{self.top_k}"

    @property
    def needs(self) -> Needs:
        """The ranks that a node may have."""
        return Needs(top_k=self.top_k)

    def nodes(self, draft: Draft, most: int) -> OrderedNodes:
        """The first nodes at one root."""
        marginals = draft.drafted()
        counts = marginals.counts
        where = (marginals.ids, marginals.log_probs, counts, 0, self.top_k, self.ties == UNO)
        tree, scores = _taken(*where, draft.root_token, most)
        return ordered_nodes(tree, scores)

    def layer(self, texts: RecordedTexts, most: int, with_scores: bool) -> OrderLayer:
        """The first nodes at all roots of some texts, as a layer."""
        roots = texts.drafted()
        layer = empty_layer(roots, most, with_scores)
        settings = self.top_k, self.ties == UNO, most
        _fill_layer(roots, *settings, layer.insertions, layer.num_available, layer.score_rows)
        return layer


@kernel
def _taken(
    ids: Ints,
    log_probs: Floats,
    counts: Ints,
    start: int,
    top_k: int,
    by_depth: bool,
    root_token: int,
    most: int,
) -> tuple[Ints, Doubles]:
    """Each node offers its next rank; the best offer enters, until there are so many or none is left."""
    num_depths = counts.size
    starts = np.empty(num_depths + 1, np.int64)
    starts[0] = start
    for depth in range(num_depths):
        starts[depth + 1] = starts[depth] + counts[depth]
    tree, costs = np.zeros((4, most + 1), np.int32), np.zeros(most + 1, np.int64)
    offered = np.zeros(most + 1, np.int64)
    tree[TOKENS, 0], tree[PARENTS, 0] = root_token, -1
    size = 1
    while size <= most:
        best, lowest, best_token = -1, np.int64(0), np.int64(0)
        for node in range(size):
            depth, rank = tree[DEPTHS, node], offered[node]
            if depth == num_depths or rank >= min(counts[depth], top_k):
                continue
            index = starts[depth] + rank
            cost = costs[node] + np.int64(np.rint(-np.float64(log_probs[index]) * STEPS_PER_NAT))
            token = np.int64(ids[index])
            is_first = best < 0 or cost < lowest
            if best >= 0 and cost == lowest and by_depth:
                # Equal offers of earlier nodes are kept, which have the smaller number.
                other = tree[DEPTHS, best]
                is_first = depth < other or (
                    depth == other and (rank < offered[best] or (rank == offered[best] and token < best_token))
                )
            if is_first:
                best, lowest, best_token = node, cost, token
        if best < 0:
            break
        tree[TOKENS, size], tree[PARENTS, size] = best_token, best
        tree[DEPTHS, size], tree[RANKS, size] = tree[DEPTHS, best] + 1, offered[best]
        costs[size] = lowest
        offered[best] += 1
        size += 1
    return tree[:, :size], costs[:size] / -STEPS_PER_NAT


@kernel
def _fill_layer(
    roots: Roots, top_k: int, by_depth: bool, most: int, insertions: Shorts, available: Ints, scores: Doubles
) -> None:
    """A row for each root."""
    for root in range(len(available)):
        where = roots.ids, roots.log_probs, roots.counts[root], roots.starts[root]
        tree, path_scores = _taken(*where, top_k, by_depth, 0, most)
        insert_true_path(tree, roots.true_ranks[root], insertions[root])
        keep_path_scores(path_scores, available, scores, root)
