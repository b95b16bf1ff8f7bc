"""What rounds cost somewhere, as measured and as drawn again, for curves."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from simlab.arrays import Doubles
from simlab.cost import CostTable
from simlab.policies.costs.curves import ALL_STAGES, RoundCosts, convex_view, round_costs

FIRST = "first stop"
"""The rule that ends at the first size that brings no more."""

CONVEX = f"{FIRST}, convex"
"""The same, but what it decides by is the convex view of the prices."""


@dataclass(frozen=True, slots=True)
class CurveMachine:
    """What rounds cost somewhere.

    Attributes:
        cost_id: of the measurement.
        costs: seconds, for the largest tree that is asked for.
        views: other curves of seconds at the same contexts, by which a first stop may decide, by name; what it decides
            is priced with ``costs``.
        draws: the same at prices from samples drawn again, with the same views; none: how noisy they are is not known.
        halves: seconds by the prices from each half of the samples; none: they cannot be halved.
    """

    cost_id: str
    costs: RoundCosts
    views: Mapping[str, RoundCosts] = field(default_factory=dict)
    draws: tuple["CurveMachine", ...] = ()
    halves: tuple[RoundCosts, ...] = ()

    @property
    def viewed_s(self) -> Doubles:
        """Seconds by each view, float64 ``[V, C, n_max + 1]``."""
        return np.stack([self.costs.seconds, *(view.seconds for view in self.views.values())])[1:]

    @property
    def drawn_s(self) -> Doubles:
        """Seconds at the prices of each draw, float64 ``[B, C, n_max + 1]``."""
        return np.stack([draw.costs.seconds for draw in self.draws])


def curve_machine(cost: CostTable, most: int, halves: Sequence[CostTable] = ()) -> CurveMachine:
    """Whole rounds by a latency profile, with the convex view, and the same for each of its draws.

    Args:
        cost: the prices.
        most: drafted tokens, at most.
        halves: the prices by each half of the samples.
    """
    whole = CurveMachine(
        cost.cost_id,
        round_costs(cost, ALL_STAGES, most),
        {CONVEX: round_costs(convex_view(cost), ALL_STAGES, most)},
        halves=tuple(round_costs(half, ALL_STAGES, most) for half in halves),
    )
    return replace(whole, draws=tuple(curve_machine(draw, most) for draw in cost.draws))
