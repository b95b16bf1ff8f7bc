"""Trees that take all children of a node at once: the shape that JetSpec released.

JetSpec (2026, arXiv 2606.18394): nodes wait in a heap by their path scores; the best is taken out and its first
candidates enter together, in the order of their ranks. So a tree holds weak siblings of strong nodes, and is not the
best of its size.
"""

from dataclasses import dataclass, field

import numpy as np

from simlab.arrays import Doubles, Floats, Ints, Shorts
from simlab.draft import Draft
from simlab.grid import STEPS_PER_NAT
from simlab.jit import kernel
from simlab.policies.edges.children import ELSEWHERE, SPINE, Children, empty_children, fill_marginal
from simlab.policies.edges.lattice import lattice_of
from simlab.policies.kernels.take_in_order import insert_true_path, keep_path_costs
from simlab.policies.kernels.take_lattice import built_tree, expand_into, tree_buffers_for
from simlab.policies.orders.node_order import OrderedNodes, OrderLayer, empty_layer, ordered_nodes
from simlab.policy import Needs
from simlab.recorded import RecordedTexts, Roots


@dataclass(frozen=True, slots=True)
class ExpandParent:
    """Node after node, from the root on, has its children enter: the next is the one with the best path score.

    Equal path scores go by the smaller ranks, a prefix first. A node of the last depth has no children and is passed
    over.

    Attributes:
        width: the most children of a node, and the ranks that are read.
        caps: the most children at each depth, from the first on; deeper ones as the last; empty: ``width``.
        gap: slope and middle of a cap that falls with the gap between the first two candidates; None: no such cap.
    """

    width: int
    caps: tuple[int, ...] = ()
    gap: tuple[float, float] | None = None
    has_probabilities: bool = field(default=True, init=False)
    scores_fall: bool = field(default=False, init=False)

    @property
    def key(self) -> str:
        """The name and the settings of this order."""
        return f"expand-parent:{self.width}:{self.caps}:{self.gap}"

    @property
    def needs(self) -> Needs:
        """So many ranks as a node has children."""
        return Needs(top_k=self.width)

    def nodes(self, draft: Draft, most: int) -> OrderedNodes:
        """The first nodes at one root."""
        marginals = draft.drafted()
        counts = marginals.counts
        tree, scores = _tree(
            marginals.ids,
            marginals.log_probs,
            counts,
            self.width,
            self._caps(len(counts)),
            self._gap(),
            draft.root_token,
            most,
        )
        return ordered_nodes(tree, scores)

    def layer(self, texts: RecordedTexts, most: int, with_scores: bool) -> OrderLayer:
        """The first nodes at all roots of some texts, as a layer."""
        roots = texts.drafted()
        layer, caps = empty_layer(roots, most, with_scores), self._caps(roots.counts.shape[1])
        columns = layer.insertions, layer.num_available, layer.score_rows
        _fill_layer(roots, self.width, caps, self._gap(), most, *columns)
        return layer

    def _caps(self, num_depths: int) -> Ints:
        caps = self.caps or (self.width,)
        widths = np.full(num_depths, caps[-1], np.int32)
        widths[: len(caps)] = caps[:num_depths]
        return np.clip(widths, 1, self.width)

    def _gap(self) -> Doubles:
        return np.array(() if self.gap is None else self.gap, np.float64)


@kernel
def _tree(
    ids: Ints, log_probs: Floats, counts: Ints, width: int, caps: Ints, gap: Doubles, root_token: int, most: int
) -> tuple[Ints, Doubles]:
    children, buffers = empty_children(counts.size, width), tree_buffers_for(most)
    fill_marginal(children, ids, log_probs, counts, 0, width)
    _cap(children, caps, gap)
    return built_tree(buffers, expand_into(lattice_of(children), root_token, width, buffers))


@kernel
def _fill_layer(
    roots: Roots,
    width: int,
    caps: Ints,
    gap: Doubles,
    most: int,
    insertions: Shorts,
    available: Ints,
    scores: Doubles,
) -> None:
    """A row for each root."""
    children, buffers = empty_children(roots.counts.shape[1], width), tree_buffers_for(most)
    for root in range(roots.counts.shape[0]):
        fill_marginal(children, roots.ids, roots.log_probs, roots.counts[root], roots.starts[root], width)
        _cap(children, caps, gap)
        number = expand_into(lattice_of(children), -1, width, buffers)
        insert_true_path(buffers.tree[:, : number + 1], roots.true_ranks[root], insertions[root])
        keep_path_costs(buffers.costs, number, available, scores, root)


@kernel
def _cap(children: Children, caps: Ints, gap: Doubles) -> None:
    """Leave at each depth as many candidates as its cap allows; below the spine and elsewhere are one list."""
    for depth in range(caps.size):
        start, most = children.starts[SPINE, depth], int(caps[depth])
        if gap.size > 0 and children.ends[SPINE, depth] > start + 1:
            between = (children.costs[start + 1] - children.costs[start]) / STEPS_PER_NAT
            share = 1.0 / (1.0 + np.exp(gap[0] * (between - gap[1])))
            most = min(most, max(1, int(np.rint(most * share))))
        end = min(children.ends[SPINE, depth], start + most)
        children.ends[SPINE, depth] = children.ends[ELSEWHERE, depth] = end
