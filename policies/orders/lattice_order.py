"""Trees on the lists of a channel: best-first, or all children of a node at once.

A first-order drafter is TreeFlash's (2026), a pool with a price on depths TAPS's, a pool alone EAGLE's (Li and others
2024, arXiv 2406.16858), whose reranking of all that its beam looked at is best-first on the pool.
"""

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from simlab.arrays import Doubles, Ints, Shorts
from simlab.draft import Draft
from simlab.jit import borrowing_kernel, kernel
from simlab.policies.edges.channel_lattice import empty_lattice, fill_lattice
from simlab.policies.edges.correction import Correction
from simlab.policies.edges.lattice import (
    Lattice,
    PoolLists,
    TransitionLists,
    fill_weights,
)
from simlab.policies.edges.models import NGramCorrected, with_text_counts
from simlab.policies.edges.ngram_counting import count_up_to, longest_text, root_token, token_before
from simlab.policies.edges.redrafts import BranchLists
from simlab.policies.kernels.take_in_order import keep_path_costs
from simlab.policies.kernels.take_lattice import (
    EVERY_NODE,
    TreeBuffers,
    WalkBuffers,
    built_tree,
    expand_into,
    insert_true_by_count,
    insert_true_by_token,
    take_corrected_into,
    take_into,
    tree_buffers_for,
    walk_buffers_for,
)
from simlab.policies.orders.lattice_sources import BranchSource, LatticeSource
from simlab.policies.orders.node_order import OrderedNodes, OrderLayer, empty_layer, ordered_nodes
from simlab.policy import Asked, Needs
from simlab.recorded import RecordedTexts, Roots


@dataclass(frozen=True, slots=True)
class BestPaths:
    """The nodes of the largest path scores, as `simlab.policies.orders.best_first` has them.

    Attributes:
        edge: a 3-gram that corrects the scores of the candidates below each node; None: nothing does. Its ``top_k`` is
            not read: the source has one.
    """

    edge: NGramCorrected | None = None

    @property
    def key(self) -> str:
        """The shape and the settings of its correction."""
        return f"best-first:{'' if self.edge is None else self.edge.key}"

    def correction(self, num_tokens: int) -> Correction | None:
        """What a 3-gram adds, with room for the counts of so many tokens of text; None: nothing."""
        # Lists have weights of their own, so those of depths are not read.
        return self.edge.correction(1, num_tokens) if self.edge is not None and self.edge.is_corrected else None


@dataclass(frozen=True, slots=True)
class WholeFamilies:
    """Node after node has its first children enter, as `simlab.policies.orders.expand_parent` has them.

    Attributes:
        width: the most children of a node.
    """

    width: int

    def __post_init__(self) -> None:
        if self.width < 1:
            raise ValueError(f"width must be at least 1; got {self.width}")

    @property
    def key(self) -> str:
        """Shape and width of families."""
        return f"expand-parent:{self.width}"


LatticeShape: TypeAlias = BestPaths | WholeFamilies
"""Which nodes of a lattice enter next."""


@dataclass(frozen=True, slots=True)
class LatticeOrder:
    """Nodes on the lists of a channel; equal path scores go by the smaller places in the lists, a prefix first.

    Attributes:
        source: of the lists.
        shape: which node is next.
    """

    source: LatticeSource
    shape: LatticeShape = BestPaths()

    def __post_init__(self) -> None:
        if not self.source.has_probabilities and isinstance(self.shape, BestPaths) and self.shape.edge is not None:
            raise ValueError(
                "a 3-gram corrects probabilities, and with a price on depths scores are none; leave one out"
            )

    @property
    def key(self) -> str:
        """Shape and source of lists."""
        return f"lattice:{self.shape.key}:{self.source.key}"

    @property
    def needs(self) -> Needs:
        """As the source says."""
        return self.source.needs

    @property
    def has_probabilities(self) -> bool:
        """As the source and the correction say."""
        edge = self.shape.edge if isinstance(self.shape, BestPaths) else None
        return self.source.has_probabilities and (edge is None or edge.has_probabilities)

    @property
    def scores_fall(self) -> bool:
        """Only where the best path is always next."""
        return isinstance(self.shape, BestPaths)

    def asked(self, draft: Draft) -> Asked:
        """The branches of one root that the source reads."""
        return self.source.asked(draft) if isinstance(self.source, BranchSource) else {}

    def nodes(self, draft: Draft, most: int) -> OrderedNodes:
        """The first nodes at one root."""
        committed, (width, correction) = draft.committed, self._settings(0)
        if correction is not None:
            correction = with_text_counts(correction, committed)
        before = int(committed[-2]) if len(committed) > 1 else -1
        tree, scores = _taken(*self.source.at_root(draft), width, correction, before, draft.root_token, most)
        return ordered_nodes(tree, scores)

    def layer(self, texts: RecordedTexts, most: int, with_scores: bool) -> OrderLayer:
        """The first nodes at all roots of some texts, as a layer."""
        roots, lists = texts.roots, self.source.at_roots(texts)
        layer = empty_layer(roots, most, with_scores, lists.num_depths())
        settings = self._settings(longest_text(roots))
        _fill_layer(roots, *lists, *settings, most, layer.insertions, layer.num_available, layer.score_rows)
        return layer

    def _settings(self, num_tokens: int) -> tuple[int | None, Correction | None]:
        """The width of families, and the correction, of this shape."""
        if isinstance(self.shape, WholeFamilies):
            return self.shape.width, None
        return None, self.shape.correction(num_tokens)


@kernel
def _taken(
    transitions: TransitionLists | None,
    pools: PoolLists | None,
    branches: BranchLists | None,
    width: int | None,
    correction: Correction | None,
    before_root: int,
    root_token: int,
    most: int,
) -> tuple[Ints, Doubles]:
    lattice, buffers = empty_lattice(transitions, pools, branches), tree_buffers_for(most)
    weights = np.empty(lattice.starts.size, np.float64)
    num_lists = fill_lattice(lattice, transitions, pools, branches, 0)
    num = _grow(lattice, num_lists, width, correction, weights, before_root, root_token, buffers)
    return built_tree(buffers, num)


@kernel
def _fill_layer(
    roots: Roots,
    transitions: TransitionLists | None,
    pools: PoolLists | None,
    branches: BranchLists | None,
    width: int | None,
    correction: Correction | None,
    most: int,
    insertions: Shorts,
    available: Ints,
    scores: Doubles,
) -> None:
    """A row for each root; what is None is not even compiled."""
    lattice, buffers = empty_lattice(transitions, pools, branches), tree_buffers_for(most)
    weights, walk = np.empty(lattice.starts.size, np.float64), walk_buffers_for(lattice)
    lists, columns = (lattice, transitions, pools, branches), (insertions, available, scores)
    _fill_roots(roots, *lists, width, correction, most, weights, buffers, walk, *columns)


@borrowing_kernel
def _fill_roots(
    roots: Roots,
    lattice: Lattice,
    transitions: TransitionLists | None,
    pools: PoolLists | None,
    branches: BranchLists | None,
    width: int | None,
    correction: Correction | None,
    most: int,
    weights: Doubles,
    buffers: TreeBuffers,
    walk: WalkBuffers,
    insertions: Shorts,
    available: Ints,
    scores: Doubles,
) -> None:
    """Counts into arrays that are there: making references to them took a third of the time of each root."""
    for text in range(roots.firsts.size - 1):
        for root in range(roots.firsts[text], roots.firsts[text + 1]):
            if correction is not None:
                count_up_to(correction, roots, text, root)
            num_lists = fill_lattice(lattice, transitions, pools, branches, root)
            behind = roots.tokens[roots.token_indices[root] + 1 : roots.begins[text + 1]]
            if width is None and correction is None and scores.shape[1] == 0:
                available[root] = insert_true_by_count(lattice, behind, most, walk, insertions[root])
                continue
            before, token = token_before(roots, text, root), root_token(roots, root)
            num = _grow(lattice, num_lists, width, correction, weights, before, token, buffers)
            insert_true_by_token(buffers.tree, num, behind, insertions[root])
            keep_path_costs(buffers.costs, num, available, scores, root)


@borrowing_kernel
def _grow(
    lattice: Lattice,
    num_lists: int,
    width: int | None,
    correction: Correction | None,
    weights: Doubles,
    before_root: int,
    root_token: int,
    buffers: TreeBuffers,
) -> int:
    """Build the tree of one root; the number of nodes below it."""
    if width is not None:
        return expand_into(lattice, root_token, width, buffers)
    if correction is not None:
        fill_weights(lattice, num_lists, correction, weights)
        return take_corrected_into(lattice, correction, weights, before_root, root_token, EVERY_NODE, buffers)
    return take_into(lattice, root_token, EVERY_NODE, buffers)
