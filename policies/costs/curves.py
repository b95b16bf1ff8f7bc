"""From measured samples to the cost of every number of drafted tokens."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from simlab.arrays import Doubles, read_only
from simlab.cost import CHANNEL, GRID_STAGES, PLAIN, STAGES, ChannelSeconds, CostTable, Visits, channel_stage
from simlab.errors import PolicyError
from simlab.ids import content_id
from simlab.jit import kernel
from simlab.limits import check_memory
from simlab.policies.costs.cell_prices import NUM_DRAWS, Cell, CostSamples, cell_prices, drawn_prices

# Prices as they were measured, or their convex view: the closest curves whose every further token costs no less.
#
# CaDDTree (2026, arXiv 2606.01813) fits its prices by least squares to curves that never fall and are convex, since the
# first size that brings no more is then the best of all. Machines need not be so: passes come in tiles, and kernels
# change with the shape. So the raw curves stay what rounds are priced with, and a policy may choose to see the view.
#
# The release asks for convexity by the place in its list of sizes, which is that of the seconds only where the sizes
# are evenly spaced. Here every number of drafted tokens counts, one as much as another. A convex curve that does not
# fall is a constant plus hinges max(0, n - k) with weights of at least 0, so that the fit is one of least squares with
# weights that are not negative (Lawson and Hanson 1974, chapter 23).


_BASES = 4
"""So many squares of numbers are in memory while one is made."""

_CLOSER = 1e-12
"""What is less than this is rounding, of seconds as a share of the longest."""

RAW, CONVEX = "raw", "convex"
VIEWS = (RAW, CONVEX)


@lru_cache(maxsize=64)
def convex_view(cost: CostTable) -> CostTable:
    """The convex view of each stage at each context; plain decoding and channels keep their prices.

    A sum of convex curves is convex, and so is what lies between two contexts: whatever stages count and wherever a
    root is, a round's seconds are convex in the drafted tokens. Its content id names the prices and the view.
    """
    seconds = {
        stage: values if stage in (CHANNEL, PLAIN) else np.stack([closest_convex(row) for row in values])
        for stage, values in cost.seconds.items()
    }
    cost_id = content_id({"cost": cost.cost_id, "view": CONVEX})
    return CostTable(cost_id, cost.contexts, seconds, channels=cost.channels, origin=cost.origin, name=cost.name)


def closest_convex(seconds: Doubles) -> Doubles:
    """The curve nearest to another, by the sum of squares, that is convex, never falls and is nowhere below 0.

    Args:
        seconds: float64 ``[n_max + 1]``, not negative.

    Returns:
        float64 ``[n_max + 1]``; up to rounding.
    """
    # Half a second to load, and most commands take prices as they were measured.
    from scipy.optimize import nnls  # noqa: PLC0415

    scale = float(seconds.max())
    if scale == 0 or len(seconds) == 1:
        return seconds.copy()
    (basis, lengths), wanted = _basis(len(seconds)), seconds / scale
    # A few hinges are used, and all of them together take long: begin with those at which the curve bends upwards, and
    # add those that would bring it closer until none would, which is the best of all (Karush, Kuhn and Tucker).
    tried = np.concatenate([[True, True], np.diff(wanted, n=2) > _CLOSER])
    while True:
        weights = np.zeros(len(seconds))
        weights[tried] = nnls(basis[:, tried], wanted)[0]
        closer = np.where(tried, 0.0, basis.T @ (wanted - basis @ weights))
        around = np.pad(closer, 1)
        more = (closer > _CLOSER) & (closer >= around[:-2]) & (closer >= around[2:])
        if not more.any():
            break
        tried |= more
    slopes = np.cumsum(weights[1:] / lengths[1:])
    convex: Doubles = scale * (weights[0] / lengths[0] + np.concatenate([[0.0], np.cumsum(slopes)]))
    return convex


@lru_cache(maxsize=2)  # 2 MB for 512 drafted tokens; all rows of a table have the same
def _basis(number: int) -> tuple[Doubles, Doubles]:
    """A constant and all hinges over so many sizes, float64 ``[number, number]``, and how long the columns were.

    Columns of one length: the first hinge is hundreds of times as long as the last, and both may be wanted.
    """
    check_memory(
        _BASES * 8 * number * number,
        f"the convex view of a latency profile up to {number - 1:,} drafted tokens",
        "take the prices as they were measured",
    )
    numbers = np.arange(number, dtype=np.float64)
    basis = np.column_stack([np.ones(number), np.maximum(numbers[:, None] - numbers[:-1], 0.0)])
    lengths = np.linalg.norm(basis, axis=0)
    return read_only(basis / lengths), read_only(lengths)


def name_and_view(name: str) -> tuple[str, str]:
    """A file's name, and the view that a policy asks for: ``auto:convex``, ``cost.json:convex``, or ``raw``."""
    file, colon, view = name.rpartition(":")
    if not colon or Path(name).exists():
        return name, RAW
    if view not in VIEWS:
        raise PolicyError(
            f"{view!r} is no view of a latency profile; write cost=FILE, cost={file}:{CONVEX}, or for a roofline the "
            "setting cost_model=roofline of bastion"
        )
    return file, view


def cost_in_view(cost: CostTable, view: str) -> CostTable:
    """Prices as a view has them."""
    return convex_view(cost) if view == CONVEX else cost


# What a whole round costs by its drafted tokens, in a form that kernels read.


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
            f"it drafts up to {most_drafted} tokens, and {cost.label} ends at {cost.most_drafted}; "
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


# What passes of a whole batch take by their number of tokens, as the tables of serving engines have it.


LARGEST_CAPTURED = 512
"""Tokens of the largest pass that vLLM captures as a graph by default."""


def captured_size(tokens: int) -> int:
    """The size to which vLLM 0.32.0 pads a pass by default: 1, 2, 4, multiples of 8 to 256, of 16 to 512, then its own.

    >>> [captured_size(tokens) for tokens in (1, 3, 4, 5, 9, 256, 257, 513)]
    [1, 4, 4, 8, 16, 256, 272, 513]
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
    expected: Doubles = np.interp(means, np.arange(depth + 1), seconds)
    return expected


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

    Probes rise; what is smaller than the first has its price. The other arguments are those of `pass_seconds`.
    """
    measured = pass_seconds(cost, stages, num_texts, depth, context, tuple(probes))
    sizes = np.arange(num_texts * (depth + 1) + 1)
    seconds: Doubles = measured[np.maximum(np.searchsorted(np.array(probes), sizes, side="right") - 1, 0)]
    return seconds


AS_BEFORE = Visits()
"""How samples of the first format of cost files were taken."""


def cost_table(
    cost_id: str,
    contexts: Sequence[int],
    node_counts: Sequence[int],
    samples: CostSamples,
    visits: Visits = AS_BEFORE,
    channels: Mapping[str, Sequence[int]] | None = None,
) -> CostTable:
    """The raw curves: the price of each cell, and straight lines between node counts; and those of samples drawn again.

    `CostTable` is linear between contexts, so between four measured cells the price is bilinear.

    Args:
        cost_id: of the measurement.
        contexts: tokens before the root, ascending.
        node_counts: drafted tokens, the root not counted, ascending from 0.
        samples: one or more seconds for each stage at each node count and context, and for ``plain`` at each context,
            or where visits are paired, at each node count too.
        visits: how samples were taken.
        channels: the units at which each channel was timed, rising; None: there are none.
    """
    if not node_counts or node_counts[0] != 0 or np.any(np.diff(node_counts) <= 0):
        raise ValueError(f"node counts must rise from 0; got {list(node_counts)}")
    units = {} if channels is None else channels
    _check_complete(contexts, node_counts, samples, visits, units)
    num_tables = 1 + NUM_DRAWS
    check_memory(
        8 * num_tables * len(STAGES) * len(contexts) * (node_counts[-1] + 1),
        f"prices of every number of drafted tokens up to {node_counts[-1]:,}, at {len(contexts):,} contexts,",
        "give a latency profile of fewer",
    )
    prices = cell_prices(samples, visits)
    drawn = drawn_prices(samples, visits)

    def table(prices: Mapping[Cell, float], draws: tuple[CostTable, ...] = ()) -> CostTable:
        curves, channels = _curves(contexts, node_counts, prices), _channels(contexts, units, prices)
        return CostTable(cost_id, np.array(contexts, np.int64), curves, draws, channels)

    num_draws = len(next(iter(drawn.values()), ()))
    of_draw = ({cell: float(values[number]) for cell, values in drawn.items()} for number in range(num_draws))
    return table(prices, tuple(map(table, of_draw)))


def _curves(contexts: Sequence[int], node_counts: Sequence[int], prices: Mapping[Cell, float]) -> dict[str, Doubles]:
    """Seconds of each stage by context and drafted tokens."""
    every_count = np.arange(node_counts[-1] + 1)
    seconds: dict[str, Doubles] = {
        stage: np.stack(
            [
                np.interp(every_count, node_counts, [prices[stage, n, context] for n in node_counts])
                for context in contexts
            ]
        )
        for stage in GRID_STAGES
    }
    seconds[PLAIN] = np.array([[prices[PLAIN, 0, context]] for context in contexts], np.float64)
    return seconds


def _channels(
    contexts: Sequence[int], units: Mapping[str, Sequence[int]], prices: Mapping[Cell, float]
) -> dict[str, ChannelSeconds]:
    """Seconds of each channel by context and units."""
    return {
        name: ChannelSeconds(
            np.array(counts, np.int64),
            np.array(
                [[prices[channel_stage(name), num_drafted, context] for num_drafted in counts] for context in contexts]
            ),
        )
        for name, counts in units.items()
    }


def _check_complete(
    contexts: Sequence[int],
    node_counts: Sequence[int],
    samples: CostSamples,
    visits: Visits,
    units: Mapping[str, Sequence[int]],
) -> None:
    wanted = {**dict.fromkeys(GRID_STAGES, node_counts), PLAIN: node_counts if visits.paired else (0,)}
    for stage, counts in (wanted | {channel_stage(name): counts for name, counts in units.items()}).items():
        missing = [(n, context) for context in contexts for n in counts if not samples.get((stage, n, context))]
        if missing:
            raise ValueError(f"{stage} has no samples for these drafted tokens and contexts: {missing}")
