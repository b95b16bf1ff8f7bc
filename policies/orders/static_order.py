"""One tree for all rounds: which ranks enter is settled by how often each was right on other texts.

Sequoia (Chen and others 2024, arXiv 2402.12374) finds the tree with the most expected accepted tokens by dynamic
programming over how often the k-th child is accepted. With frequencies by depth and rank, a path is accepted as often
as their product says, and the best tree of n nodes is the n largest products: the same search as best-first, with
these frequencies in place of probabilities.
"""

from dataclasses import dataclass, field

import numpy as np

from simlab.arrays import Doubles, Ints, Shorts
from simlab.draft import Draft
from simlab.grid import LOWEST, STEPS_PER_NAT
from simlab.jit import kernel
from simlab.policies.edges.children import ELSEWHERE, SPINE, Children, empty_children
from simlab.policies.edges.correction import Correction, no_correction
from simlab.policies.kernels.best_scores import GATHER_FACTOR, best_scores_into
from simlab.policies.kernels.insertion import count_buffers_for, insertions_into, num_paths
from simlab.policies.kernels.path_order import DEPTHS, PARENTS, RANKS, TOKENS
from simlab.policies.kernels.take_in_order import take_in_order
from simlab.policies.orders.node_order import OrderedNodes, OrderLayer, empty_layer
from simlab.policy import Needs
from simlab.recorded import RecordedTexts, Roots


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
        counts = np.diff(marginals.offsets)
        tree, scores = _tree(marginals.ids, counts, costs, ranks, no_correction(), draft.root_token, most)
        return OrderedNodes(tree[TOKENS], tree[PARENTS], tree[DEPTHS], tree[RANKS], scores)

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
    place = 0
    for depth in range(counts.size):
        children.starts[SPINE, depth] = children.starts[ELSEWHERE, depth] = place
        if depth < costs.shape[0]:
            for column in range(costs.shape[1]):
                rank = ranks[depth, column]
                if rank < counts[depth]:
                    children.costs[place], children.ranks[place] = costs[depth, column], rank
                    children.tokens[place] = ids[start + rank]
                    place += 1
        children.ends[SPINE, depth] = children.ends[ELSEWHERE, depth] = place
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
