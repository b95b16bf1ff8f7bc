"""Best-first trees whose depths have widths of their own, the wider the less sure the drafter is there.

DDTree++ (2026, github.com/hxri/ddtreeplus) shares a budget among the depths in proportion to their entropies, or caps
them in other ways. Its authors found no gain, and there can be none in the sum of path probabilities: a cap only takes
nodes away from the best tree.
"""

import math
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from simlab.arrays import Doubles, Floats, Ints, Longs, Shorts, read_only
from simlab.draft import Draft
from simlab.grid import STEPS_PER_NAT, grid_scalar, weight_scalar
from simlab.jit import kernel
from simlab.limits import finite_number, shown, whole_number
from simlab.policies.artefacts import Artefacts
from simlab.policies.composition import Composed, Composition
from simlab.policies.edges.children import ELSEWHERE, SPINE, Children, empty_children, fill_marginal, num_widest
from simlab.policies.edges.correction import Correction, no_correction
from simlab.policies.kernels.best_scores import GATHER_FACTOR, best_scores_into
from simlab.policies.kernels.insertion import count_buffers_for, insertions_into, num_paths
from simlab.policies.kernels.take_in_order import take_in_order
from simlab.policies.orders.node_order import OrderedNodes, OrderLayer, empty_layer, ordered_nodes
from simlab.policies.rules.budgets import FixedBudget
from simlab.policies.settings import at_least, between, one_of
from simlab.policy import Needs
from simlab.recorded import RecordedTexts, Roots

# How many candidates a depth may have: the caps of DDTree++ (2026, github.com/hxri/ddtreeplus).
#
# A cap leaves the first candidates of a depth, below every node of the depth above. Entropies are the drafter's own,
# over its whole vocabulary, as the release takes them.

PROPORTIONAL, COVERAGE, LEAST_PROB, BINS = 0, 1, 2, 3

HIGHEST_POWER = 16.0
"""With larger powers nearly all would go to one depth."""

_SHARE_BITS = 40


class WidthCaps(NamedTuple):
    """A kind of cap and its settings; what a kind does not read is 0 or empty.

    Attributes:
        kind: `PROPORTIONAL`, `COVERAGE`, `LEAST_PROB` or `BINS`.
        most_width: no depth has more.
        budget: that is shared in proportion to entropies.
        power: to which entropies are raised.
        base_width: every depth has it before the rest is shared.
        level: the probability to be covered, or the least log-probability, on the grid.
        entropies: float64 ``[B]``, borders of bins, rising.
        widths: int32 ``[B + 1]``, of depths at or below the first border, the second, ..., and above the last.
    """

    kind: int
    most_width: int
    budget: int = 0
    power: float = 0.0
    base_width: int = 0
    level: float = 0.0
    entropies: Doubles = np.empty(0, np.float64)
    widths: Ints = np.empty(0, np.int32)

    @property
    def key(self) -> str:
        """The kind and the settings of these caps."""
        return ":".join(map(str, (*self[:6], self.entropies.tolist(), self.widths.tolist())))

    @property
    def needs_entropies(self) -> bool:
        """Whether widths follow from entropies."""
        return self.kind in (PROPORTIONAL, BINS)


def proportional_caps(budget: int, power: float, *, base_width: int, most_width: int) -> WidthCaps:
    """A depth has a base and, of the rest of a budget, a whole part in proportion to its entropy to a power."""
    return WidthCaps(PROPORTIONAL, most_width, budget=budget, power=power, base_width=base_width)


def coverage_caps(coverage: float, most_width: int) -> WidthCaps:
    """A depth has as few first candidates as together have a probability; all that are read where they have less."""
    return WidthCaps(COVERAGE, most_width, level=coverage)


def least_prob_caps(least_prob: float, most_width: int) -> WidthCaps:
    """A depth has the candidates of at least a probability, or else the first."""
    level = float(grid_scalar(np.log(least_prob))) if least_prob > 0 else -np.inf
    return WidthCaps(LEAST_PROB, most_width, level=level)


def bin_caps(entropies: tuple[float, ...], widths: tuple[int, ...], most_width: int) -> WidthCaps:
    """A depth has the width of the bin in which its entropy lies; a border belongs to the bin below it."""
    return WidthCaps(BINS, most_width, entropies=np.array(entropies, np.float64), widths=np.array(widths, np.int32))


@kernel
def cap_widths(children: Children, caps: WidthCaps, entropies: Floats) -> None:
    """Leave at each depth as many first candidates as its cap allows.

    Args:
        children: of one root.
        caps: of the depths.
        entropies: float32 ``[D]``, nats, over the drafter's vocabulary; ``[0]`` where the caps do not need them.
    """
    num_depths = children.starts.shape[1]
    shares, total = _shares(entropies, caps.power) if caps.kind == PROPORTIONAL else (np.zeros(num_depths, np.int64), 1)
    rest = max(0, caps.budget - caps.base_width * num_depths)
    for depth in range(num_depths):
        if caps.kind == PROPORTIONAL:
            width = caps.base_width + rest * shares[depth] // total
        elif caps.kind == COVERAGE:
            width = _covering(children, depth, caps.level)
        elif caps.kind == LEAST_PROB:
            width = _at_least(children, depth, caps.level)
        else:
            width = _of_bin(entropies[depth], caps.entropies, caps.widths)
        width = min(width, caps.most_width)
        for kind in (SPINE, ELSEWHERE):
            children.ends[kind, depth] = min(children.ends[kind, depth], children.starts[kind, depth] + width)


@kernel
def _shares(entropies: Floats, power: float) -> tuple[Longs, int]:
    """The share of each depth, int64 ``[D]``, and their sum; if all entropies are 0 shares are equal."""
    weights = np.maximum(entropies.astype(np.float64), 0.0) ** power
    if weights.sum() == 0.0:
        weights[:] = 1.0
    # Whole numbers, so that equal entropies have equal shares and a share that is a whole number stays one.
    _, exponent = math.frexp(weights.max())
    shares = np.rint(weights * 2.0 ** (_SHARE_BITS - exponent)).astype(np.int64)
    return shares, int(shares.sum())


@kernel
def _covering(children: Children, depth: int, coverage: float) -> int:
    covered, width = 0.0, 0
    for index in range(children.starts[SPINE, depth], children.ends[SPINE, depth]):
        if width > 0 and covered >= coverage:
            break
        covered += weight_scalar(children.costs[index] / -STEPS_PER_NAT)
        width += 1
    return width


@kernel
def _at_least(children: Children, depth: int, level: float) -> int:
    width = 1
    for index in range(children.starts[SPINE, depth] + 1, children.ends[SPINE, depth]):
        if children.costs[index] / -STEPS_PER_NAT < level:
            break
        width += 1
    return width


@kernel
def _of_bin(entropy: float, borders: Doubles, widths: Ints) -> int:
    index = 0
    while index < borders.size and entropy > borders[index]:
        index += 1
    return int(widths[index])


CAPS = ("proportional", "coverage", "probability", "bins")


@dataclass(frozen=True, slots=True, eq=False)
class WidthCapped:
    """Best-first on the marginals, of the first candidates at each depth as many as its cap allows.

    The caps are not of how many nodes are asked for: where they follow from a budget, orders of two budgets are not
    beginnings of each other. Within one order the first nodes are a tree, as everywhere.

    Attributes:
        caps: of the depths.
        top_k: ranks that are read at each depth.
    """

    caps: WidthCaps
    top_k: int
    has_probabilities: bool = field(default=True, init=False)
    scores_fall: bool = field(default=True, init=False)

    @property
    def key(self) -> str:
        """The caps and the number of ranks that are read."""
        return f"width-capped:{self.caps.key}:{self.top_k}"

    @property
    def needs(self) -> Needs:
        """So many ranks as caps are taken of, and entropies where the caps follow from them."""
        return Needs(top_k=self.top_k, entropies=self.caps.needs_entropies)

    def nodes(self, draft: Draft, most: int) -> OrderedNodes:
        """The first nodes at one root."""
        marginals = draft.drafted()
        tree, scores = _tree(
            marginals.ids,
            marginals.log_probs,
            marginals.counts,
            self.caps,
            draft.entropies() if self.caps.needs_entropies else np.empty(0, np.float32),
            self.top_k,
            no_correction(),
            draft.root_token,
            most,
        )
        return ordered_nodes(tree, scores)

    def layer(self, texts: RecordedTexts, most: int, with_scores: bool) -> OrderLayer:
        """The first nodes at all roots of some texts, as a layer."""
        roots = texts.drafted()
        nothing = read_only(np.empty((len(roots.counts), 0), np.float32))
        entropies = texts.entropies() if self.caps.needs_entropies else nothing
        layer = empty_layer(roots, most, with_scores)
        columns = layer.insertions, layer.num_available, layer.score_rows
        _fill_layer(roots, self.caps, entropies, self.top_k, most, *columns)
        return layer


@dataclass(frozen=True)
class EntropyWidth(Composed):
    """Best-first on a few candidates of each depth, by default more of them where entropy is high: a negative result.

    These are DDTree++'s ``caps`` of a depth's width. ``proportional``: ``base_width`` and a whole part of the rest of
    the budget, in proportion to the entropy to the ``power``. ``coverage``: as few first candidates as have a
    probability of ``coverage`` together. ``probability``: those of at least ``least_prob``, or the first. ``bins``: the
    width of the bin of the entropy, `widths="1,8,24"` below, between and above `entropies="1.5,3"`. ``most_width``
    bounds them all.

    Entropies are of the drafter's law over its whole vocabulary, as a trace has stored them and a live round works them
    out. No more than ``top_k`` candidates of a depth are read, whatever its cap. Left out are its option to spend what
    rounding leaves of the budget, the caps that read states of the target, and the learned choice among profiles,
    which reads seconds as they pass.
    """

    budget: int = at_least(1, 128)
    caps: str = one_of(CAPS, "proportional", f"must be one of {', '.join(CAPS)}")
    power: float = between(0, HIGHEST_POWER, 1.0, f"must be from 0 to {HIGHEST_POWER:g}")
    base_width: int = at_least(1, 1)
    most_width: int | None = at_least(1, None, "must be at least 1, or left out")
    coverage: float = between(0, 1, 0.8)
    least_prob: float = between(0, 1, 0.05)
    entropies: str = "1.5,3"
    widths: str = "1,8,24"
    top_k: int = at_least(1, 64)

    source = "DDTree++ 2026, github.com/hxri/ddtreeplus"
    exactness = "exact (from released code), but for what lies beyond top_k and rounding"
    reads = "the first top_k candidates at each depth; the drafter's entropy there for proportional and bins"
    revision = 2
    variants = (
        "budget=24",
        "budget=24,power=2,base_width=2,most_width=5,top_k=16",
        "budget=24,caps=coverage",
        "budget=24,caps=probability",
        'budget=24,caps=bins,entropies="0.5,2",widths="1,4,9"',
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        self._bins()

    def compose(self, artefacts: Artefacts) -> Composition:
        """The capped order of this budget, as many nodes."""
        return Composition(WidthCapped(self._caps(), self.top_k), FixedBudget(self.budget))

    def _caps(self) -> WidthCaps:
        most = self.budget if self.most_width is None else min(self.most_width, self.budget)
        if self.caps == "proportional":
            return proportional_caps(self.budget, self.power, base_width=self.base_width, most_width=most)
        if self.caps == "coverage":
            return coverage_caps(self.coverage, most)
        if self.caps == "probability":
            return least_prob_caps(self.least_prob, most)
        return bin_caps(*self._bins(), most)

    def _bins(self) -> tuple[tuple[float, ...], tuple[int, ...]]:
        """Borders and widths as numbers."""
        try:
            entropies = tuple(finite_number(part.strip()) for part in self.entropies.split(","))
            widths = tuple(whole_number(part.strip(), 1) for part in self.widths.split(","))
        except ValueError:
            entropies, widths = (), ()
        rise = all(low < high for low, high in pairwise(entropies)) and all(map(math.isfinite, entropies))
        if not rise or len(widths) != len(entropies) + 1 or min(widths) < 1:
            raise ValueError(
                'entropies must be rising numbers such as "1.5,3", and widths one whole number more, from 1, such as '
                f'"1,8,24"; got {shown(self.entropies)} and {shown(self.widths)}'
            )
        return entropies, widths


@kernel
def _tree(
    ids: Ints,
    log_probs: Floats,
    counts: Ints,
    caps: WidthCaps,
    entropies: Floats,
    top_k: int,
    correction: Correction,
    root_token: int,
    most: int,
) -> tuple[Ints, Doubles]:
    children = empty_children(counts.size, num_widest(counts, top_k))
    fill_marginal(children, ids, log_probs, counts, 0, top_k)
    cap_widths(children, caps, entropies)
    return take_in_order(children, correction, -1, root_token, most)


@kernel
def _fill_layer(
    roots: Roots,
    caps: WidthCaps,
    entropies: Floats,
    top_k: int,
    most: int,
    insertions: Shorts,
    available: Ints,
    scores: Doubles,
) -> None:
    """A row for each root, without building trees."""
    num_roots, num_depths = roots.counts.shape
    children, counting = empty_children(num_depths, top_k), count_buffers_for(num_depths, most)
    buffers, guess = np.empty((2, GATHER_FACTOR * most), np.int32), 1 << 18
    for root in range(num_roots):
        fill_marginal(children, roots.ids, roots.log_probs, roots.counts[root], roots.starts[root], top_k)
        cap_widths(children, caps, entropies[root])
        insertions_into(children, roots.true_ranks[root], most, counting, insertions[root])
        available[root] = num_paths(children, most)
        if scores.shape[1] > 0:
            guess = best_scores_into(children, most, guess, buffers, scores[root])
