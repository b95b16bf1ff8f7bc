"""Beams: at each depth only the best nodes have children, and the best nodes of all depths make the tree.

EAGLE-2 (Li and others 2024, arXiv 2406.16858) draws a beam of 10 and reranks all that the beam ever looked at; PRESTO
(2026, arXiv 2607.22634) calls the same "beam search with global retention". Path scores never rise with the depth, so
one heap takes the nodes in their order: the first ones of a depth that come out of it are that depth's beam.
"""

from dataclasses import KW_ONLY, dataclass, field

import numpy as np

from simlab.arrays import Doubles, Floats, Ints, Shorts
from simlab.draft import Draft
from simlab.jit import kernel
from simlab.policies.edges.children import empty_children
from simlab.policies.edges.correction import Correction, fill_children
from simlab.policies.edges.models import EdgeModel, with_text_counts
from simlab.policies.edges.ngram_counting import count_up_to, longest_text, root_token, token_before
from simlab.policies.kernels.take_in_order import insert_true_path, take_in_order
from simlab.policies.kernels.true_places import DEPTHS, PARENTS, RANKS, TOKENS
from simlab.policies.orders.node_order import OrderedNodes, OrderLayer, empty_layer
from simlab.policy import Needs
from simlab.recorded import RecordedTexts, Roots

EVERY_RANK = 1 << 30
EVERY_DEPTH = 1 << 30


@dataclass(frozen=True, slots=True)
class Beam:
    """Nodes in the order of their path scores, of those that a beam looks at.

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
    width: int
    deepest: int = EVERY_DEPTH
    scores_fall: bool = field(default=True, init=False)

    @property
    def key(self) -> str:
        """Shape and edge model."""
        return f"beam:{self.width}:{self.deepest}:{self.edge.key}"

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
        counts = np.diff(marginals.offsets)[: self.deepest]
        correction = with_text_counts(self.edge.correction(len(counts), 0), committed)
        before = int(committed[-2]) if len(committed) > 1 else -1
        tree, scores = _beam_tree(
            marginals.ids,
            marginals.log_probs,
            counts,
            0,
            self._top_k,
            self.edge.edge_map,
            correction,
            before,
            draft.root_token,
            most,
            self.width,
        )
        return OrderedNodes(tree[TOKENS], tree[PARENTS], tree[DEPTHS], tree[RANKS], scores)

    def layer(self, texts: RecordedTexts, most: int, with_scores: bool) -> OrderLayer:
        """The first nodes at all roots of some texts, as a layer."""
        roots = texts.drafted()
        layer, deepest = empty_layer(roots, most, with_scores), min(self.deepest, roots.counts.shape[1])
        correction = self.edge.correction(deepest, longest_text(roots))
        settings = deepest, self._top_k, self.edge.edge_map, correction, most, self.width
        _fill_layer(roots, *settings, layer.insertions, layer.num_available, layer.score_rows)
        return layer

    @property
    def _top_k(self) -> int:
        return EVERY_RANK if self.edge.top_k is None else self.edge.top_k


@kernel
def _beam_tree(
    ids: Ints,
    log_probs: Floats,
    counts: Ints,
    start: int,
    top_k: int,
    edge_map: Doubles,
    correction: Correction,
    before_root: int,
    root_token: int,
    most: int,
    width: int,
) -> tuple[Ints, Doubles]:
    children = empty_children(counts.size, min(counts.max(), top_k) if counts.size else 0)
    fill_children(children, ids, log_probs, counts, start, top_k, edge_map)
    return take_in_order(children, correction, before_root, root_token, most, width)


@kernel
def _fill_layer(
    roots: Roots,
    num_depths: int,
    top_k: int,
    edge_map: Doubles,
    correction: Correction,
    most: int,
    width: int,
    insertions: Shorts,
    available: Ints,
    scores: Doubles,
) -> None:
    """A row for each root; counts of the text grow from root to root."""
    for text in range(roots.firsts.size - 1):
        for root in range(roots.firsts[text], roots.firsts[text + 1]):
            count_up_to(correction, roots, text, root)
            tree, path_scores = _beam_tree(
                roots.ids,
                roots.log_probs,
                roots.counts[root, :num_depths],
                roots.starts[root],
                top_k,
                edge_map,
                correction,
                token_before(roots, text, root),
                root_token(roots, root),
                most,
                width,
            )
            insert_true_path(tree, roots.true_ranks[root], insertions[root])
            available[root] = path_scores.size - 1
            if scores.shape[1] > 0:
                scores[root, : path_scores.size] = path_scores
