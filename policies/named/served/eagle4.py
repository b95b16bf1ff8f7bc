"""EAGLE-4's rule for how many nodes of a tree are verified, by measured costs of the target's passes.

Read in eagle-harness 0.1.3, ``core/cost_model.py``, ``core/limits.py``, ``core/draft_tree.py``, ``sglang/drafter.py``.
"""

from collections import deque
from dataclasses import dataclass
from statistics import mode

import numpy as np

from simlab.arrays import Doubles, Ints, Longs
from simlab.cost import CostTable
from simlab.errors import PolicyError
from simlab.grid import path_weight
from simlab.policies.artefacts import AUTO, Artefacts
from simlab.policies.composition import Composed, Composition
from simlab.policies.edges.models import Marginal
from simlab.policies.orders.best_first import BestFirst
from simlab.policies.orders.lattice_order import LatticeOrder
from simlab.policies.orders.lattice_sources import eagle3_source
from simlab.policies.orders.node_order import OrderLayer
from simlab.policies.rules.budgets import ReadsFallingPaths
from simlab.policies.settings import at_least, between

WIDTHS = (1, 8, 16, 32, 64)
"""Tokens of the passes that it has for one text, the root counted."""

LEAST_DELTA = 0.04
"""A pass that costs no more than this share of a plain one above another counts as one that costs as much."""

VOTE = 5
"""Rounds of which more than half must have had one width for it to be easier to keep than to exceed."""

STEADINESS = 0.05
"""By this share of the threshold."""


@dataclass(frozen=True)
class Eagle4(Composed):
    """The best nodes of 8, 16, 32 or 64 tokens in a pass, the root counted, as EAGLE-4 sizes what is verified.

    A wider pass is taken where, over each narrower one, it brings ``threshold`` expected tokens for each plain pass
    that it costs more; 2.4 is the release's constant for one text. The smallest is taken whatever it costs, and a tree
    of fewer than 7 nodes is not verified at all. Expected tokens are those of the text's round before, and widths of
    the last 5 rounds move the threshold by 5 %: this memory is of texts served together, so it takes ``--batch 1``;
    else every round is sized by its own draft, as the first is. Nodes are the best over ``top_k`` candidates a depth,
    or, with a ``channel``, of the pool of an EAGLE-3 head with ``beam``, ``top_k`` and ``steps``.
    """

    budget: int = between(7, 63, 63)
    threshold: float = at_least(0, 2.4)
    top_k: int = at_least(1, 8)
    channel: str | None = None
    beam: int = at_least(1, 8)
    steps: int = at_least(1, 7)
    cost: str = AUTO

    source = "eagle-harness 0.1.3, its cost model"
    exactness = (
        "sizes of passes exact (from released code) for one text, with measured latencies by context in place of its "
        "intervals; its stop of the draft by depth and its decay of 0.0001 a depth are left out"
    )
    reads = "the first `top_k` candidates at each depth, or the pool of an EAGLE-3 head; a latency profile"
    variants = ("", "budget=20,threshold=1.0,top_k=3", "budget=31,channel=eagle3,beam=10,top_k=10,steps=3")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.channel is None and (self.beam, self.steps) != (8, 7):
            raise ValueError(
                "beam and steps are of the pool of an EAGLE-3 head; name its channel too, or leave them out"
            )

    def compose(self, artefacts: Artefacts) -> Composition:
        """Best-first nodes, and the rule of widths."""
        table, cost_id = artefacts.cost(self.cost)
        order = (
            BestFirst(Marginal(self.top_k))
            if self.channel is None
            else LatticeOrder(eagle3_source(self.channel, self.beam, self.top_k, self.steps))
        )
        return Composition(order, VerifyWidths(self.budget, table, self.threshold), {"cost": cost_id})


@dataclass(frozen=True, slots=True, eq=False)
class VerifyWidths(ReadsFallingPaths):
    """EAGLE-4's rule; see `Eagle4`.

    Attributes:
        most: drafted tokens of a pass.
        cost: of rounds of one text.
        threshold: expected tokens for each plain pass.
    """

    most: int
    cost: CostTable
    threshold: float

    def memory(self) -> "WidthMemory":
        return WidthMemory(self)

    def shares(self, scores: Doubles, contexts: Longs) -> Ints:
        return widths_of(self, expected_at(scores, self.most), contexts)

    def sizes(self, layer: OrderLayer, contexts: Longs) -> Ints:
        assert layer.scores is not None
        return self.shares(layer.scores, contexts)

    def check_batch(self, batch: int) -> None:
        if batch > 1:
            raise PolicyError(f"eagle4 is replayed as it sizes passes of one text; got {batch} texts at a time")


def expected_at(scores: Doubles, most: int) -> Doubles:
    """Expected tokens of a pass of each of the widths up to ``most`` + 1, float64 ``[R, W]``; NaN: of too few nodes.

    Args:
        scores: float64 ``[R, n + 1]``, of paths in their order, the root's first; -inf behind the last.
        most: drafted tokens.
    """
    expected = np.cumsum(path_weight(scores), axis=1)
    sizes = [width - 1 for width in WIDTHS if width <= most + 1]
    values = np.full((len(scores), len(sizes)), np.nan)
    for column, size in enumerate(sizes):
        if size < scores.shape[1]:
            values[:, column] = np.where(np.isfinite(scores[:, size]), expected[:, size], np.nan)
    return values


def widths_of(rule: VerifyWidths, expected: Doubles, contexts: Longs, usual: int = -1) -> Ints:
    """Drafted tokens of the pass at some roots, int32 ``[R]``.

    Args:
        rule: whose passes they are.
        expected: float64 ``[R, W]``, as `expected_at` has it.
        contexts: int64 ``[R]``, tokens before each root.
        usual: the width that most of the last rounds had; -1: none.
    """
    num_roots, num_widths = expected.shape
    sizes = np.array(WIDTHS[:num_widths], np.int64) - 1
    seconds = [rule.cost.at("verify", contexts, np.full(num_roots, size)) for size in sizes.tolist()]
    ratios, chosen = np.stack(seconds, axis=1) / seconds[0][:, None], np.tile(sizes, (num_roots, 1))
    for wide in range(1, num_widths):
        # In the order of the release: a width that fell back is from then on compared by what it fell back to.
        for narrow in range(wide):
            delta, gain = ratios[:, wide] - ratios[:, narrow], expected[:, wide] - expected[:, narrow]
            least = rule.threshold * np.where(usual > chosen[:, wide] + 1, 1 + STEADINESS, 1 - STEADINESS)
            with np.errstate(divide="ignore", invalid="ignore"):
                falls = (delta > LEAST_DELTA) & (gain / delta < least)
            chosen[falls, wide] = sizes[1]
    chosen[np.isnan(expected)] = 0
    widest: Ints = chosen.max(axis=1).astype(np.int32)
    return widest


class WidthMemory:
    """What is known of earlier rounds; see `simlab.policies.rules.serving.ServingMemory`."""

    def __init__(self, rule: VerifyWidths) -> None:
        self._rule = rule
        self._before: Doubles | None = None
        self._recent = deque(range(-VOTE, 0), VOTE)

    def shares(self, requests: Longs, scores: Doubles, contexts: Longs) -> Ints:
        present = expected_at(scores, self._rule.most)
        lagged, self._before = present if self._before is None else self._before, present
        usual = mode(self._recent)
        usual = usual if self._recent.count(usual) > VOTE // 2 else -1
        widths = widths_of(self._rule, np.where(np.isnan(present), np.nan, lagged), contexts, usual)
        self._recent.append(int(widths[0]) + 1)
        return widths

    def observe(self, num_accepted: Longs, num_known: Longs) -> None:
        """Do nothing: this rule does not learn from what was accepted."""
