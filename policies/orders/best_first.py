"""Best-first trees: the drafted tokens with the largest path scores; and beams, in which few of a depth have children.

Ringel and Romano, "DDTree" (2026), arXiv 2604.12989. Path scores are sums on the grid of
`simlab.grid`, so they are exact; equal scores are resolved by the smaller tuple of ranks, a
prefix first. It is the released code's order up to D grid steps.

EAGLE-2 (Li and others 2024, arXiv 2406.16858) draws a beam of 10 and reranks all that the beam ever looked at; PRESTO
(2026, arXiv 2607.22634) calls the same "beam search with global retention". Path scores never rise with the depth, so
one heap takes the nodes in their order: the first ones of a depth that come out of it are that depth's beam.
"""

from dataclasses import KW_ONLY, dataclass, field

import numpy as np

from simlab.arrays import Doubles, Floats, Ints, Shorts, read_only
from simlab.draft import Draft, Marginals
from simlab.jit import kernel
from simlab.policies.edges.children import EVERY_COST, empty_children, num_widest
from simlab.policies.edges.correction import Correction, fill_children, no_correction
from simlab.policies.edges.models import NO_MAP, EdgeModel, Marginal, with_text_counts
from simlab.policies.edges.ngram_counting import count_up_to, longest_text, root_token, token_before
from simlab.policies.kernels.best_scores import GATHER_FACTOR, best_scores_into
from simlab.policies.kernels.insertion import insertions_into, num_paths
from simlab.policies.kernels.take_in_order import insert_true_path, keep_path_scores, take_in_order
from simlab.policies.kernels.take_lattice import EVERY_NODE
from simlab.policies.kernels.true_places import (
    EdgeScores,
    find_corrected_true_places,
    find_mapped_true_places,
    find_true_places,
    num_kept_paths,
    workspace_for,
)
from simlab.policies.orders.node_order import OrderedNodes, OrderLayer, empty_layer, ordered_nodes
from simlab.policy import Needs
from simlab.recorded import RecordedTexts, Roots

EVERY_DEPTH = 1 << 30
_EVERY_RANK = 1 << 30


@dataclass(frozen=True, slots=True)
class BestFirst:
    """Candidates in the order of their path scores, all of them or those that a beam looks at.

    The beam of a depth is the ``width`` best children of the beam above; all its children are looked at, and equal
    scores go by the smaller ranks. With ``width`` at least the budget that is every node a best-first tree could
    hold.

    Attributes:
        edge: what scores an edge; its ``top_k`` is how many children a node has.
        width: nodes of a depth that have children.
        deepest: no node lies deeper.
    """

    edge: EdgeModel
    _: KW_ONLY
    width: int = EVERY_NODE
    deepest: int = EVERY_DEPTH
    scores_fall: bool = field(default=True, init=False)

    @property
    def is_beam(self) -> bool:
        """Whether some nodes have no children whatever their path scores are."""
        return self.width < EVERY_NODE or self.deepest < EVERY_DEPTH

    @property
    def key(self) -> str:
        """Shape and edge model."""
        return f"best-first:{self.width}:{self.deepest}:{self.edge.key}"

    @property
    def needs(self) -> Needs:
        """The ranks that the edge model reads."""
        return Needs(top_k=self.edge.top_k)

    @property
    def has_probabilities(self) -> bool:
        """As the edge model says."""
        return self.edge.has_probabilities

    def nodes(self, draft: Draft, most: int) -> OrderedNodes:
        """The first nodes at one root."""
        marginals, committed = draft.drafted(), draft.committed
        counts = marginals.counts[: self.deepest]
        correction = with_text_counts(self.edge.correction(len(counts), 0), committed)
        before = int(committed[-2]) if len(committed) > 1 else -1
        # Where scores fall with the rank, no more ranks than nodes can enter.
        top_k = min(self._top_k, most) if isinstance(self.edge, Marginal) else self._top_k
        edges = top_k, self.edge.edge_map, correction, before, draft.root_token
        return ordered_nodes(*_tree(marginals.ids, marginals.log_probs, counts, *edges, most, self.width))

    def layer(self, texts: RecordedTexts, most: int, with_scores: bool) -> OrderLayer:
        """The first nodes at all roots of some texts, as a layer."""
        roots = texts.drafted()
        layer = empty_layer(roots, most, with_scores)
        columns = layer.insertions, layer.num_available
        if not self.is_beam and layer.scores is None:
            _fill_places(roots, *self.edge_scores(roots), most, *columns)
            return layer
        if self.deepest < roots.counts.shape[1]:
            roots = roots._replace(counts=read_only(np.ascontiguousarray(roots.counts[:, : self.deepest])))
        correction = self.edge_scores(roots).correction or (no_correction() if self.is_beam else None)
        edges = self._top_k, self.edge.edge_map, correction
        _fill_scores(roots, *edges, most, self.width, *columns, layer.score_rows)
        return layer

    def edge_scores(self, roots: Roots) -> EdgeScores:
        """What kernels score the edges with, and room for the counts of any of these texts."""
        edge, num_depths = self.edge, roots.counts.shape[1]
        correction = edge.correction(num_depths, longest_text(roots)) if edge.is_corrected else None
        return EdgeScores(self._top_k, edge.edge_map if len(edge.edge_map) > 0 else None, correction)

    @property
    def _top_k(self) -> int:
        return _EVERY_RANK if self.edge.top_k is None else self.edge.top_k


def best_first(root_token: int, marginals: Marginals, budget: int) -> OrderedNodes:
    """The best-first tree of at most ``budget`` drafted tokens; fewer where the candidates run out."""
    edges = _EVERY_RANK, NO_MAP, no_correction(), -1, root_token
    counts = marginals.counts
    return ordered_nodes(*_tree(marginals.ids, marginals.log_probs, counts, *edges, budget, EVERY_NODE))


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
def _tree(
    ids: Ints,
    log_probs: Floats,
    counts: Ints,
    top_k: int,
    edge_map: Doubles,
    correction: Correction,
    before_root: int,
    root_token: int,
    most: int,
    width: int,
) -> tuple[Ints, Doubles]:
    children = empty_children(counts.size, num_widest(counts, top_k))
    fill_children(children, ids, log_probs, counts, 0, top_k, edge_map)
    return take_in_order(children, correction, before_root, root_token, most, width)


@kernel
def _fill_places(
    roots: Roots,
    top_k: int,
    edge_map: Doubles | None,
    correction: Correction | None,
    most: int,
    insertions: Shorts,
    available: Ints,
) -> None:
    """A row for each root, without building trees; what is None is not even compiled."""
    workspace = workspace_for(roots, top_k, most)
    for text in range(roots.firsts.size - 1):
        for root in range(roots.firsts[text], roots.firsts[text + 1]):
            if correction is not None:
                count_up_to(correction, roots, text, root)
                find_corrected_true_places(roots, top_k, correction, text, root, most, workspace, insertions)
            elif edge_map is not None:
                find_mapped_true_places(roots, top_k, edge_map, root, most, workspace, insertions)
            else:
                find_true_places(roots, top_k, root, most, workspace, insertions)
            available[root] = num_kept_paths(roots.counts, root, top_k, most)


@kernel
def _fill_scores(
    roots: Roots,
    top_k: int,
    edge_map: Doubles,
    correction: Correction | None,
    most: int,
    width: int,
    insertions: Shorts,
    available: Ints,
    scores: Doubles,
) -> None:
    """A row of places and path scores for each root; trees are built for corrected scores and beams alone."""
    workspace, guess = workspace_for(roots, top_k, most), 1 << 18
    buffers = np.empty((2, GATHER_FACTOR * most), np.int32)
    children = workspace.children
    for text in range(roots.firsts.size - 1):
        for root in range(roots.firsts[text], roots.firsts[text + 1]):
            counts, start = roots.counts[root], roots.starts[root]
            fill_children(children, roots.ids, roots.log_probs, counts, start, top_k, edge_map)
            if correction is not None:
                count_up_to(correction, roots, text, root)
                before, token = token_before(roots, text, root), root_token(roots, root)
                tree, path_scores = take_in_order(children, correction, before, token, most, width)
                insert_true_path(tree, roots.true_ranks[root], insertions[root])
                keep_path_scores(path_scores, available, scores, root)
            else:
                ranks, row = roots.true_ranks[root], insertions[root]
                insertions_into(children, ranks, most, workspace.buffers, row, EVERY_COST)
                available[root] = num_paths(children, most)
                guess = best_scores_into(children, most, guess, buffers, scores[root])
