"""One fixed tree, of a size that is given or that suits the machine.

Sequoia (Chen and others 2024, arXiv 2402.12374) chooses size and depth of its tree once, for the most expected tokens
per second on the hardware: G(n, d) / (t(n) + d c), with t the time to verify n tokens and c that of one step of the
drafter. A drafter of blocks takes the same time for any depth, and G only grows with it; so the whole depth of the
table is best for every size, and sizes are all that is searched.
"""

from dataclasses import dataclass

import numpy as np

from simlab.arrays import Doubles
from simlab.cost import CostTable
from simlab.errors import PolicyError
from simlab.policies.artefacts import AUTO, Artefacts
from simlab.policies.composition import Composed, Composition
from simlab.policies.costs.curves import ALL_STAGES
from simlab.policies.orders.node_order import StaticOrder
from simlab.policies.rules.budgets import FixedBudget, expected_tokens
from simlab.policies.settings import at_least, one_of

FIXED, HARDWARE = "fixed", "hardware"


@dataclass(frozen=True)
class Sequoia(Composed):
    """One fixed tree of ``budget`` tokens: the ranks whose paths were right most often on other texts.

    ``table`` is a file of `simlab train ranks`: how often the true token had each rank at each depth, counted on a
    dev split. It reads nothing of what the drafter says but the order of its candidates; a policy that reads more has
    to beat it. The published dynamic program is about children by rank alone and finds the same kind of tree; here
    frequencies differ by depth too.

    ``size=hardware`` is the published search for the size with the most expected tokens per second, up to ``budget``;
    give it a large one. It is made once, for all rounds, with the seconds of a whole round at ``context`` tokens before
    the root, by default the middle one of the contexts that were measured.
    """

    budget: int = at_least(1, 64)
    table: str = AUTO
    size: str = one_of((FIXED, HARDWARE), FIXED, f"must be {FIXED} or {HARDWARE}")
    context: int | None = at_least(0, None)
    cost: str = AUTO

    source = "Sequoia 2024, arXiv 2402.12374"
    exactness = (
        "exact (from paper) for tree and size; frequencies by depth and rank, and one context for all, are simlab's"
    )
    reads = "as many candidates at each depth as its table has ranks; the table; a latency profile for hardware"
    variants = ("budget=24", "size=hardware")
    tries = ("budget=1..{budget}",)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.context is not None and self.size != HARDWARE:
            raise ValueError(f"context is where size={HARDWARE} weighs seconds; with size={self.size} leave it out")

    def compose(self, artefacts: Artefacts) -> Composition:
        """The order of the table, a budget that is the same in every round."""
        table, table_id = artefacts.table("ranks", self.table)
        if "values" not in table:
            raise PolicyError(f"the table of ranks {self.table} has no values")
        order = StaticOrder(np.array(table["values"], np.float64), table_id)
        if self.size == FIXED:
            return Composition(order, FixedBudget(self.budget), {"ranks": table_id})
        cost, cost_id = artefacts.cost(self.cost)
        if self.budget > cost.most_drafted:
            raise PolicyError(
                f"its size is searched up to {self.budget:,} tokens, and its latency profile ends at "
                f"{cost.most_drafted:,}; give it a smaller budget, or {cost.how_to_reach()}"
            )
        size = fastest_size(order.scores(self.budget), round_seconds(cost, self.context))
        return Composition(order, FixedBudget(size), {"ranks": table_id, "cost": cost_id})


def round_seconds(cost: CostTable, context: int | None) -> Doubles:
    """Seconds of a round by its drafted tokens.

    Args:
        cost: what stages cost.
        context: tokens before the root; None: the middle one of the measured contexts, of two the smaller.

    Returns:
        float64 ``[n_max + 1]``.

    Raises:
        CostError: the context is beyond what was measured.
    """
    at = int(cost.contexts[(len(cost.contexts) - 1) // 2]) if context is None else context
    seconds: Doubles = np.sum([cost.curve(stage, at) for stage in ALL_STAGES], axis=0)
    return seconds


def fastest_size(scores: Doubles, seconds: Doubles) -> int:
    """The number of nodes with the most expected tokens per second, of several the smallest; at least 1.

    Args:
        scores: float64 ``[n + 1]``, path scores in the order of nodes, the root's 0 first.
        seconds: float64, of a round by its drafted tokens; at least as long.
    """
    tokens = np.empty(len(scores), np.float64)
    if expected_tokens(scores, tokens) < 1:
        raise PolicyError("its table of ranks makes no tree")
    return int(np.argmax(tokens[1:] / seconds[1 : len(tokens)])) + 1
