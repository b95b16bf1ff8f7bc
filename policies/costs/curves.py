"""From measured samples to the cost of every number of drafted tokens."""

from collections.abc import Mapping, Sequence

import numpy as np

from simlab.arrays import Doubles
from simlab.cost import GRID_STAGES, PLAIN, STAGES, ChannelSeconds, CostTable, Visits, channel_stage
from simlab.limits.memory import check_memory
from simlab.policies.costs.cell_prices import NUM_DRAWS, Cell, CostSamples, cell_prices, drawn_prices

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

    def table(some: Mapping[Cell, float], draws: tuple[CostTable, ...] = ()) -> CostTable:
        curves, channels = _curves(contexts, node_counts, some), _channels(contexts, units, some)
        return CostTable(cost_id, np.array(contexts, np.int64), curves, draws, channels)

    each = ({cell: float(values[number]) for cell, values in drawn.items()} for number in range(_num(drawn)))
    return table(prices, tuple(map(table, each)))


def _num(drawn: Mapping[Cell, Doubles]) -> int:
    return len(next(iter(drawn.values()), ()))


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
            np.array(some, np.int64),
            np.array([[prices[channel_stage(name), one, context] for one in some] for context in contexts]),
        )
        for name, some in units.items()
    }


def _check_complete(
    contexts: Sequence[int],
    node_counts: Sequence[int],
    samples: CostSamples,
    visits: Visits,
    units: Mapping[str, Sequence[int]],
) -> None:
    wanted = {**dict.fromkeys(GRID_STAGES, node_counts), PLAIN: node_counts if visits.paired else (0,)}
    for stage, counts in (wanted | {channel_stage(name): some for name, some in units.items()}).items():
        missing = [(n, context) for context in contexts for n in counts if not samples.get((stage, n, context))]
        if missing:
            raise ValueError(f"{stage} has no samples for these drafted tokens and contexts: {missing}")
