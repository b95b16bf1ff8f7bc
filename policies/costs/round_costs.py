"""What a whole round costs by its drafted tokens, in a form that kernels read."""

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from simlab.arrays import Doubles
from simlab.cost import STAGES, CostTable
from simlab.jit import kernel

MODEL_STAGES = ("draft", "channel", "verify")
"""What networks take; a channel takes something only in a table that is charged with it."""
ALL_STAGES = STAGES


class RoundCosts(NamedTuple):
    """Seconds of a round, by context and drafted tokens.

    Attributes:
        contexts: float64 ``[C]``, ascending.
        seconds: float64 ``[C, n_max + 1]``.
    """

    contexts: Doubles
    seconds: Doubles


@lru_cache(maxsize=64)
def round_costs(cost: CostTable, stages: tuple[str, ...], most_drafted: int) -> RoundCosts:
    """The sum of some stages, for up to so many drafted tokens.

    Raises:
        ValueError: the table ends before.
    """
    if most_drafted > cost.most_drafted:
        raise ValueError(
            f"it drafts up to {most_drafted} tokens and its latency profile ends at {cost.most_drafted}; "
            f"lower its cap, or {cost.how_to_reach()}"
        )
    seconds = sum(cost.seconds[stage][:, : most_drafted + 1] for stage in stages)
    return RoundCosts(cost.contexts.astype(np.float64), np.ascontiguousarray(seconds, np.float64))


@kernel
def costs_at(costs: RoundCosts, context: int, seconds: Doubles) -> None:
    """Seconds by drafted tokens at one context; linear between contexts, constant outside.

    Args:
        costs: as measured.
        context: tokens before the root.
        seconds: float64 ``[n + 1]``, to be filled.
    """
    high = 0
    while high < costs.contexts.size - 1 and costs.contexts[high] < context:
        high += 1
    low = max(high - 1, 0)
    width = max(costs.contexts[high] - costs.contexts[low], 1.0)
    share = min(max((context - costs.contexts[low]) / width, 0.0), 1.0)
    for n in range(seconds.size):
        seconds[n] = costs.seconds[low, n] * (1.0 - share) + costs.seconds[high, n] * share
