"""What passes of a whole batch take by their number of tokens, as the tables of serving engines have it."""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from simlab.arrays import Doubles
from simlab.cost import CostTable
from simlab.errors import PolicyError
from simlab.policies.costs.round_costs import costs_at, round_costs

LARGEST_CAPTURED = 512
"""Tokens of the largest pass that vLLM captures as a graph by default."""


def captured_size(tokens: int) -> int:
    """The size to which vLLM 0.32.0 pads a pass by default: 1, 2, 4, multiples of 8 to 256, of 16 to 512, then its own.

    >>> [captured_size(tokens) for tokens in (1, 3, 9, 256, 257, 513)]
    [1, 4, 16, 256, 272, 513]
    """
    if tokens > LARGEST_CAPTURED:
        return tokens
    if tokens <= 4:
        return 1 << (tokens - 1).bit_length()
    step = 8 if tokens <= 256 else 16
    return -(-tokens // step) * step


@lru_cache(maxsize=64)
def pass_seconds(
    cost: CostTable, stages: tuple[str, ...], num_texts: int, depth: int, context: int, sizes: tuple[int, ...]
) -> Doubles:
    """Seconds of passes of some sizes, float64 of as many.

    A pass of t tokens is priced as a round in which each text has the mean number of drafted tokens, linear between
    whole numbers. Passes of fewer tokens than texts are those of no drafted token, passes of more than whole blocks
    those of whole blocks.

    Args:
        cost: of rounds of ``num_texts`` texts.
        stages: that count.
        num_texts: texts in a pass.
        depth: drafted tokens of a whole block.
        context: tokens before the root.
        sizes: tokens in each pass, the roots counted.
    """
    if depth > cost.most_drafted:
        raise PolicyError(
            f"it may verify whole blocks of {depth} drafted tokens, and its latency profile ends at "
            f"{cost.most_drafted:,}; {cost.how_to_reach()}"
        )
    seconds = np.empty(depth + 1)
    costs_at(round_costs(cost, stages, depth), context, seconds)
    means = np.clip((np.array(sizes, np.float64) - num_texts) / num_texts, 0.0, depth)
    found: Doubles = np.interp(means, np.arange(depth + 1), seconds)
    return found


def rising_seconds(cost: CostTable, stages: tuple[str, ...], num_texts: int, depth: int, context: int) -> Doubles:
    """Seconds of passes of 0, 1, ... tokens up to whole blocks, float64 ``[S * (D + 1) + 1]``, never falling."""
    sizes = range(num_texts * (depth + 1) + 1)
    return np.maximum.accumulate(pass_seconds(cost, stages, num_texts, depth, context, tuple(sizes)))


def stepped_seconds(cost: CostTable, stages: tuple[str, ...], num_texts: int, depth: int, context: int) -> Doubles:
    """As `rising_seconds`, each pass at the price of the size that it is padded to."""
    sizes = [captured_size(max(tokens, num_texts)) for tokens in range(num_texts * (depth + 1) + 1)]
    return np.maximum.accumulate(pass_seconds(cost, stages, num_texts, depth, context, tuple(sizes)))


def probed_seconds(
    cost: CostTable, stages: tuple[str, ...], num_texts: int, depth: int, context: int, probes: Sequence[int]
) -> Doubles:
    """Seconds of passes of 0, 1, ... tokens up to whole blocks, each that of the next smaller size that was probed.

    Args:
        cost: see `pass_seconds`, as the arguments that follow.
        stages: as there.
        num_texts: as there.
        depth: as there.
        context: as there.
        probes: sizes that were measured, rising; what is smaller than the first has its price.
    """
    measured = pass_seconds(cost, stages, num_texts, depth, context, tuple(probes))
    sizes = np.arange(num_texts * (depth + 1) + 1)
    found: Doubles = measured[np.maximum(np.searchsorted(np.array(probes), sizes, side="right") - 1, 0)]
    return found
