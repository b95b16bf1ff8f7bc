"""Best-first trees whose depths have widths of their own, the wider the less sure the drafter is there.

DDTree++ (2026, github.com/hxri/ddtreeplus) shares a budget among the depths in proportion to their entropies. Its
authors found no gain, and there can be none in the sum of path probabilities: a cap only takes nodes away from the
best tree.
"""

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from simlab.arrays import Doubles, Floats, Ints, Shorts
from simlab.draft import Draft
from simlab.jit import kernel
from simlab.policies.best_scores import ROOM, best_scores_into
from simlab.policies.budget_rules import Fixed
from simlab.policies.children import ELSEWHERE, SPINE, Children, entropy_at, fill_marginal, room_for_children
from simlab.policies.composition import Composed, Composition
from simlab.policies.correction import Correction, no_correction
from simlab.policies.insertion import insertions_into, num_paths
from simlab.policies.node_order import NEVER, Layer, Nodes
from simlab.policies.shelf import Shelf
from simlab.policies.take_in_order import DEPTHS, PARENTS, RANKS, TOKENS, take_in_order
from simlab.policy import Needs
from simlab.recorded import RecordedSequence

HIGHEST_POWER = 16.0
"""With larger powers the shares of a budget would no longer be exact whole numbers."""

_SHARES = 1 << 16


@dataclass(frozen=True, slots=True)
class EntropyCapped:
    """Best-first on the marginals, of the first candidates at each depth as many as its share of a budget allows.

    The widths follow from ``budget``, not from how many nodes are asked for: orders of two budgets are not beginnings
    of each other. Within one order the first nodes are a tree, as everywhere.

    Attributes:
        budget: that is shared.
        power: to which entropies are raised.
        base_width: every depth has it before the rest is shared.
        most_width: no depth has more.
        top_k: ranks that are read at each depth; entropies are of these and the rest as one lump.
    """

    budget: int
    power: float
    base_width: int
    most_width: int
    top_k: int
    has_probabilities: bool = field(default=True, init=False)
    scores_fall: bool = field(default=True, init=False)

    @property
    def key(self) -> str:
        """Its settings, the budget among them."""
        return f"entropy-capped:{self.budget}:{self.power}:{self.base_width}:{self.most_width}:{self.top_k}"

    @property
    def needs(self) -> Needs:
        """So many ranks as entropies are taken of."""
        return Needs(top_k=self.top_k)

    def nodes(self, draft: Draft, most: int) -> Nodes:
        """The first nodes at one root."""
        marginals = draft.drafted()
        tree, scores = _tree(
            marginals.ids,
            marginals.log_probs,
            np.diff(marginals.offsets),
            self.budget,
            self.power,
            self.base_width,
            self.most_width,
            self.top_k,
            no_correction(),
            draft.root_token,
            most,
        )
        return Nodes(tree[TOKENS], tree[PARENTS], tree[DEPTHS], tree[RANKS], scores)

    def layer(self, recorded: RecordedSequence, most: int, with_scores: bool) -> Layer:
        """The same for all roots of a text."""
        rows = recorded.rows
        if rows is None:
            raise ValueError("best-first trees need a drafter's rows, and none were read")
        num_roots, num_depths = rows.counts.shape
        insertions = np.full((num_roots, num_depths), NEVER, np.uint16)
        available = np.zeros(num_roots, np.int32)
        scores = np.full((num_roots, most + 1 if with_scores else 0), -np.inf)
        _fill_layer(
            rows.ids,
            rows.log_probs,
            rows.counts,
            rows.true_ranks,
            self.budget,
            self.power,
            self.base_width,
            self.most_width,
            self.top_k,
            most,
            insertions,
            available,
            scores,
        )
        return Layer(insertions, available, scores if with_scores else None)


@dataclass(frozen=True)
class EntropyWidth(Composed):
    """Best-first, at each depth of as many candidates as its entropy has a share of the budget: a negative result.

    A depth of entropy H has ``base_width`` and a whole part of the rest of the budget, in proportion to H to the
    ``power``; ``most_width`` bounds it. A trace keeps the first ``top_k`` candidates of every depth, so H is theirs
    with all others as one lump; that, and sharing by whole numbers, is simlab's. Of DDTree++'s caps these are the
    ones it calls proportional.
    """

    budget: int = 128
    power: float = 1.0
    base_width: int = 1
    most_width: int | None = None
    top_k: int = 64

    source: ClassVar[str] = "DDTree++ 2026, github.com/hxri/ddtreeplus"
    exactness: ClassVar[str] = "exact (from released code), but for the entropy beyond top_k and rounding"
    reads: ClassVar[str] = "the first top_k candidates at each depth"

    def __post_init__(self) -> None:
        for name in ("budget", "base_width", "top_k"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1; got {getattr(self, name)}")
        if self.most_width is not None and self.most_width < 1:
            raise ValueError(f"most_width must be at least 1, or left out; got {self.most_width}")
        if not 0 <= self.power <= HIGHEST_POWER:
            raise ValueError(f"power must be from 0 to {HIGHEST_POWER:g}; got {self.power}")

    def compose(self, shelf: Shelf) -> Composition:
        """The capped order of this budget, as many nodes."""
        most_width = self.budget if self.most_width is None else min(self.most_width, self.budget)
        order = EntropyCapped(self.budget, self.power, self.base_width, most_width, self.top_k)
        return Composition(order, Fixed(self.budget))


@kernel
def _tree(
    ids: Ints,
    log_probs: Floats,
    counts: Ints,
    budget: int,
    power: float,
    base_width: int,
    most_width: int,
    top_k: int,
    correction: Correction,
    root_token: int,
    most: int,
) -> tuple[Ints, Doubles]:
    children = room_for_children(counts.size, min(counts.max(), top_k) if counts.size else 0)
    fill_marginal(children, ids, log_probs, counts, 0, top_k)
    cap_by_entropy(children, budget, power, base_width, most_width)
    return take_in_order(children, correction, -1, root_token, most)


@kernel
def _fill_layer(
    ids: Ints,
    log_probs: Floats,
    counts: Ints,
    true_ranks: Ints,
    budget: int,
    power: float,
    base_width: int,
    most_width: int,
    top_k: int,
    most: int,
    insertions: Shorts,
    available: Ints,
    scores: Doubles,
) -> None:
    """A row for each root, without building trees."""
    num_roots, num_depths = counts.shape
    children = room_for_children(num_depths, top_k)
    stack, room, guess = np.empty((3, num_depths + 1), np.int32), np.empty((2, ROOM * most), np.int32), 1 << 18
    start = 0
    for root in range(num_roots):
        fill_marginal(children, ids, log_probs, counts[root], start, top_k)
        start += counts[root].sum()
        cap_by_entropy(children, budget, power, base_width, most_width)
        insertions_into(children, true_ranks[root], num_roots - root, most, stack, insertions[root])
        available[root] = num_paths(children, most)
        if scores.shape[1] > 0:
            guess = best_scores_into(children, most, guess, stack, room, scores[root])


@kernel
def cap_by_entropy(children: Children, budget: int, power: float, base_width: int, most_width: int) -> None:
    """Leave at each depth its share of a budget, as in `EntropyCapped`; if all entropies are 0 shares are equal."""
    num_depths = children.starts.shape[1]
    shares, total = np.empty(num_depths, np.int64), 0
    for depth in range(num_depths):
        # Whole numbers, so that equal entropies have equal shares and a share that is a whole number stays one.
        shares[depth] = np.int64(np.rint(entropy_at(children, SPINE, depth) ** power * _SHARES))
        total += shares[depth]
    if total == 0:
        shares[:], total = 1, num_depths
    rest = max(0, budget - base_width * num_depths)
    for depth in range(num_depths):
        width = min(base_width + rest * shares[depth] // total, most_width)
        for kind in (SPINE, ELSEWHERE):
            children.ends[kind, depth] = min(children.ends[kind, depth], children.starts[kind, depth] + width)
