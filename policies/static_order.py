"""One tree for all rounds: which ranks enter is settled by how often each was right on other texts.

Sequoia (Chen and others 2024, arXiv 2402.12374) finds the tree with the most expected accepted tokens by dynamic
programming over how often the k-th child is accepted. With frequencies by depth and rank, a path is accepted as often
as their product says, and the best tree of n nodes is the n largest products: the same search as best-first, with
these frequencies in place of probabilities.
"""

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from simlab.arrays import Doubles, Ints, Shorts
from simlab.draft import Draft
from simlab.errors import PolicyError
from simlab.grid import LOWEST, STEPS_PER_NAT
from simlab.jit import kernel
from simlab.policies.best_scores import ROOM, best_scores_into
from simlab.policies.budget_rules import Fixed
from simlab.policies.children import ELSEWHERE, SPINE, Children, room_for_children
from simlab.policies.composition import Composed, Composition
from simlab.policies.correction import Correction, no_correction
from simlab.policies.insertion import insertions_into, num_paths
from simlab.policies.node_order import NEVER, Layer, Nodes
from simlab.policies.shelf import AUTO, Shelf
from simlab.policies.take_in_order import DEPTHS, PARENTS, RANKS, TOKENS, take_in_order
from simlab.policy import Needs
from simlab.recorded import RecordedSequence


@dataclass(frozen=True, slots=True, eq=False)
class StaticOrder:
    """Ranks in the order of the product of their frequencies, the same at every root; ties by the smaller ranks.

    A frequency of 0 counts as the lowest number of the grid. Where a root has fewer candidates than the table ranks,
    the nodes that are not there are passed over. No node is deeper than the table.

    Attributes:
        frequencies: float64 ``[D, R]``, how often the true token has a rank at a depth, given the path above it.
        table_id: content id of the table.

    Raises:
        ValueError: the table is not of this shape, or its entries are no frequencies.
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
        """Its table."""
        return f"static:{self.table_id}"

    @property
    def needs(self) -> Needs:
        """So many ranks as the table has."""
        return Needs(top_k=self.frequencies.shape[1])

    def nodes(self, draft: Draft, most: int) -> Nodes:
        """The first nodes at one root."""
        marginals, (costs, ranks) = draft.drafted(), self._lists()
        counts = np.diff(marginals.offsets)
        tree, scores = _tree(marginals.ids, counts, costs, ranks, no_correction(), draft.root_token, most)
        return Nodes(tree[TOKENS], tree[PARENTS], tree[DEPTHS], tree[RANKS], scores)

    def layer(self, recorded: RecordedSequence, most: int, with_scores: bool) -> Layer:
        """The same for all roots of a text."""
        rows, (costs, ranks) = recorded.rows, self._lists()
        if rows is None:
            raise ValueError("a fixed tree needs a drafter's rows, and none were read")
        num_roots, num_depths = rows.counts.shape
        insertions = np.full((num_roots, num_depths), NEVER, np.uint16)
        available = np.zeros(num_roots, np.int32)
        scores = np.full((num_roots, most + 1 if with_scores else 0), -np.inf)
        _fill_layer(rows.ids, rows.counts, rows.true_ranks, costs, ranks, most, insertions, available, scores)
        return Layer(insertions, available, scores if with_scores else None)

    def _lists(self) -> tuple[Ints, Ints]:
        """int32 ``[D, R]`` twice, costs and ranks, the best first at each depth."""
        with np.errstate(divide="ignore"):
            logs = np.maximum(np.log(self.frequencies), LOWEST)
        costs = np.rint(-logs * STEPS_PER_NAT).astype(np.int32)
        ranks = np.argsort(costs, axis=1, kind="stable").astype(np.int32)
        return np.take_along_axis(costs, ranks, axis=1), ranks


@dataclass(frozen=True)
class Sequoia(Composed):
    """One fixed tree of ``budget`` tokens: the ranks whose paths were right most often on other texts.

    ``table`` is a file of `simlab train ranks`: how often the true token had each rank at each depth, counted on a
    dev split. It reads nothing of what the drafter says but the order of its candidates; a policy that reads more has
    to beat it. The published dynamic program is about children by rank alone and finds the same kind of tree; here
    frequencies differ by depth too.
    """

    budget: int = 64
    table: str = AUTO

    source: ClassVar[str] = "Sequoia 2024, arXiv 2402.12374"
    exactness: ClassVar[str] = "exact (from paper) for the tree; frequencies by depth and rank are simlab's"
    reads: ClassVar[str] = "as many candidates at each depth as its table has ranks; the table"

    def __post_init__(self) -> None:
        if self.budget < 1:
            raise ValueError(f"budget must be at least 1; got {self.budget}")

    def compose(self, shelf: Shelf) -> Composition:
        """The order of the table, a fixed budget."""
        table, table_id = shelf.table("ranks", self.table)
        if "values" not in table:
            raise PolicyError(f"the table of ranks {self.table} has no values")
        order = StaticOrder(np.array(table["values"], np.float64), table_id)
        return Composition(order, Fixed(self.budget), {"ranks": table_id})


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
    children = room_for_children(counts.size, costs.shape[1])
    _fill_static(children, ids, counts, 0, costs, ranks)
    return take_in_order(children, correction, -1, root_token, most)


@kernel
def _fill_layer(
    ids: Ints,
    counts: Ints,
    true_ranks: Ints,
    costs: Ints,
    ranks: Ints,
    most: int,
    insertions: Shorts,
    available: Ints,
    scores: Doubles,
) -> None:
    """A row for each root, without building trees."""
    num_roots, num_depths = counts.shape
    children = room_for_children(num_depths, costs.shape[1])
    stack, room, guess = np.empty((3, num_depths + 1), np.int32), np.empty((2, ROOM * most), np.int32), 1 << 18
    start = 0
    for root in range(num_roots):
        _fill_static(children, ids, counts[root], start, costs, ranks)
        start += counts[root].sum()
        insertions_into(children, true_ranks[root], num_roots - root, most, stack, insertions[root])
        available[root] = num_paths(children, most)
        if scores.shape[1] > 0:
            guess = best_scores_into(children, most, guess, stack, room, scores[root])
