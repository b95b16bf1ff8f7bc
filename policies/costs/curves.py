"""From measured samples to the cost of every number of drafted tokens."""

from collections.abc import Mapping, Sequence

import numpy as np

from simlab.arrays import Doubles
from simlab.cost import PLAIN, STAGES, CostTable

CostSamples = Mapping[tuple[str, int, int], Sequence[float]]
"""Seconds by stage, number of drafted tokens and context; ``plain`` has no drafted token."""


def cost_table(cost_id: str, contexts: Sequence[int], node_counts: Sequence[int], samples: CostSamples) -> CostTable:
    """The raw curves: `undisturbed_s` of each cell, and straight lines between node counts.

    `CostTable` is linear between contexts, so between four measured cells the price is bilinear.

    Args:
        cost_id: of the measurement.
        contexts: tokens before the root, ascending.
        node_counts: drafted tokens, the root not counted, ascending from 0.
        samples: one or more seconds for each stage at each node count and context, and for
            ``plain`` at each context.

    Raises:
        ValueError: the node counts do not rise from 0, or a cell has no sample.
    """
    if not node_counts or node_counts[0] != 0 or np.any(np.diff(node_counts) <= 0):
        raise ValueError(f"node counts must rise from 0; got {list(node_counts)}")
    every_count = np.arange(node_counts[-1] + 1)
    seconds: dict[str, Doubles] = {
        stage: np.stack(
            [np.interp(every_count, node_counts, row) for row in cells_s(stage, contexts, node_counts, samples)]
        )
        for stage in STAGES
    }
    seconds[PLAIN] = cells_s(PLAIN, contexts, (0,), samples)
    return CostTable(cost_id, np.array(contexts, np.int64), seconds)


def undisturbed_s(seconds: Sequence[float]) -> float:
    """What a cell's samples come to where nothing else runs: their lower quartile.

    Other work slows a shared machine by a sixth for a minute or two, some cells more often than others, so that a
    median lies on one side of the gap in one cell and on the other side in the next. The faster quarter
    is of the quiet machine in every cell, as long as a quarter of the time was quiet.
    """
    return float(_lower_quartiles([seconds])[0])


def _lower_quartiles(cells: Sequence[Sequence[float]]) -> Doubles:
    """The lower quartile of each cell's samples, float64 ``[len(cells)]``; cells of equally many go together."""
    found = np.empty(len(cells), np.float64)
    sizes = np.array([len(seconds) for seconds in cells])
    for size in np.unique(sizes):
        (places,) = np.nonzero(sizes == size)
        found[places] = np.quantile(np.array([cells[place] for place in places.tolist()], np.float64), 0.25, axis=1)
    return found


def cells_s(stage: str, contexts: Sequence[int], node_counts: Sequence[int], samples: CostSamples) -> Doubles:
    """The seconds of a stage over the measured grid.

    Returns:
        float64 ``[len(contexts), len(node_counts)]``.

    Raises:
        ValueError: a cell has no sample.
    """
    missing = [(n, context) for context in contexts for n in node_counts if not samples.get((stage, n, context))]
    if missing:
        raise ValueError(f"{stage} has no samples for these drafted tokens and contexts: {missing}")
    cells = [samples[stage, n, context] for context in contexts for n in node_counts]
    return _lower_quartiles(cells).reshape(len(contexts), len(node_counts))
