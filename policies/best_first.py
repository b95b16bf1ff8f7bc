"""Best-first trees: the drafted tokens with the largest path scores.

Ringel and Romano, "DDTree" (2026), arXiv 2604.12989. Path scores are sums on the grid of
`simlab.grid`, so they are exact; equal scores are resolved by the smaller tuple of ranks, a
prefix first. It is the released code's order up to D grid steps.
"""

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from simlab.arrays import Doubles, Floats, Ints, Shorts
from simlab.draft import Draft, Marginals
from simlab.jit import kernel
from simlab.policies.best_scores import ROOM, best_scores_into
from simlab.policies.budget_rules import Fixed
from simlab.policies.children import room_for_children
from simlab.policies.composition import Composed, Composition
from simlab.policies.correction import Correction, no_correction
from simlab.policies.edge_models import NO_MAP, EdgeModel, Marginal, counted
from simlab.policies.insertion import insertions_into, num_paths
from simlab.policies.node_order import Layer, Nodes, empty_layer
from simlab.policies.rank_classes import fill_children
from simlab.policies.shelf import Shelf
from simlab.policies.take_in_order import DEPTHS, PARENTS, RANKS, TOKENS, take_in_order
from simlab.policies.text_counts import count_up_to, longest_text, token_before
from simlab.policies.true_path import insert_true_path
from simlab.policies.true_places import EdgeScores, desk_for, look
from simlab.policy import Needs
from simlab.recorded import RecordedTexts, Roots

_EVERY_RANK = 1 << 30


@dataclass(frozen=True, slots=True)
class BestFirst:
    """Candidates in the order of their path scores."""

    edge: EdgeModel
    scores_fall: bool = field(default=True, init=False)

    @property
    def key(self) -> str:
        """Shape and edge model."""
        return f"best-first:{self.edge.key}"

    @property
    def needs(self) -> Needs:
        """The ranks that the edge model reads."""
        return Needs(top_k=self.edge.top_k)

    @property
    def has_probabilities(self) -> bool:
        """As the edge model says."""
        return self.edge.has_probabilities

    def nodes(self, draft: Draft, most: int) -> Nodes:
        """The first nodes at one root."""
        marginals, committed = draft.drafted(), draft.committed
        correction = counted(self.edge.correction(marginals.depth, 0), committed)
        before = int(committed[-2]) if len(committed) > 1 else -1
        return _nodes(marginals, self._top_k, self.edge.edge_map, correction, before, draft.root_token, most)

    def layer(self, texts: RecordedTexts, most: int, with_scores: bool) -> Layer:
        """The same for all roots of some texts."""
        roots = texts.drafted()
        layer = empty_layer(roots, most, with_scores)
        scores = self.edge_scores(roots)
        _fill_layer(roots, scores, most, layer.insertions, layer.num_available, layer.score_rows)
        return layer

    def edge_scores(self, roots: Roots) -> EdgeScores:
        """What kernels score the edges with, and room for the counts of any of these texts."""
        correction = self.edge.correction(roots.counts.shape[1], longest_text(roots))
        return EdgeScores(self._top_k, self.edge.edge_map, correction)

    @property
    def _top_k(self) -> int:
        return _EVERY_RANK if self.edge.top_k is None else self.edge.top_k


@dataclass(frozen=True)
class DDTree(Composed):
    """The ``budget`` drafted tokens with the largest path probabilities under the marginals.

    No tree of as many tokens has a larger sum of path probabilities. Smaller budgets are
    prefixes of larger ones. It is OPT-Tree's rule (2024, arXiv 2406.17276) on a block drafter's
    marginals; `calibrated` and `presto` take the same tokens by other scores.
    """

    budget: int

    source: ClassVar[str] = "Ringel and Romano 2026, arXiv 2604.12989"
    exactness: ClassVar[str] = "exact (from released code)"
    reads: ClassVar[str] = "every kept candidate, up to the exact budget of the trace"

    def __post_init__(self) -> None:
        if self.budget < 1:
            raise ValueError(f"budget must be at least 1; got {self.budget}")

    def compose(self, shelf: Shelf) -> Composition:
        """Best-first on the marginals, a fixed budget."""
        return Composition(BestFirst(Marginal()), Fixed(self.budget))


def best_first(root_token: int, marginals: Marginals, budget: int) -> Nodes:
    """The best-first tree of at most ``budget`` drafted tokens; fewer where the candidates run out."""
    return _nodes(marginals, _EVERY_RANK, NO_MAP, no_correction(), -1, root_token, budget)


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


def _nodes(
    marginals: Marginals,
    top_k: int,
    edge_map: Doubles,
    correction: Correction,
    before_root: int,
    root_token: int,
    most: int,
) -> Nodes:
    tree, scores = _taken(
        marginals.ids,
        marginals.log_probs,
        marginals.offsets,
        top_k,
        edge_map,
        correction,
        before_root,
        root_token,
        most,
    )
    return Nodes(tree[TOKENS], tree[PARENTS], tree[DEPTHS], tree[RANKS], scores)


@kernel
def _taken(
    ids: Ints,
    log_probs: Floats,
    offsets: Ints,
    top_k: int,
    edge_map: Doubles,
    correction: Correction,
    before_root: int,
    root_token: int,
    most: int,
) -> tuple[Ints, Doubles]:
    counts = offsets[1:] - offsets[:-1]
    children = room_for_children(counts.size, min(counts.max(), top_k) if counts.size else 0)
    fill_children(children, ids, log_probs, counts, 0, top_k, edge_map)
    return take_in_order(children, correction, before_root, root_token, most)


@kernel
def _fill_layer(
    roots: Roots, edges: EdgeScores, most: int, insertions: Shorts, available: Ints, scores: Doubles
) -> None:
    """A row for each root; trees are built for corrected scores alone."""
    desk = desk_for(roots, edges, most)
    room, guess = np.empty((2, ROOM * most), np.int32), 1 << 18
    corrected, scored = edges.correction.weights.size > 0, scores.shape[1] > 0
    for text in range(roots.firsts.size - 1):
        for root in range(roots.firsts[text], roots.firsts[text + 1]):
            count_up_to(edges.correction, roots, text, root)
            if not scored:
                look(roots, edges, text, root, most, desk, insertions, available)
                continue
            counts, start = roots.counts[root], roots.starts[root]
            fill_children(desk.children, roots.ids, roots.log_probs, counts, start, edges.top_k, edges.edge_map)
            if corrected:
                before, token = token_before(roots, text, root), int(roots.tokens[roots.places[root]])
                tree, found = take_in_order(desk.children, edges.correction, before, token, most)
                insert_true_path(tree, roots.true_ranks[root], insertions[root])
                available[root], scores[root, : found.size] = found.size - 1, found
            else:
                insertions_into(desk.children, roots.true_ranks[root], most, desk.room, insertions[root])
                available[root] = num_paths(desk.children, most)
                guess = best_scores_into(desk.children, most, guess, room, scores[root])
