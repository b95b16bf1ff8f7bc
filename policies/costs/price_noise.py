"""How well prices tell sizes apart, how many samples it would take to tell more, and half of the samples."""

import math
from itertools import pairwise

import numpy as np

from simlab.cost import Visits, is_plain
from simlab.policies.costs.cell_prices import (
    Cell,
    CostSamples,
    drawn_prices,
    drawn_rounds,
    half_width,
    num_visits,
)


def neighbour_half_widths(samples: CostSamples, visits: Visits) -> dict[tuple[int, int], float]:
    """How well a round's price is known beside that of the next measured number of drafted tokens.

    Args:
        samples: of every stage of each cell.
        visits: how they were taken.

    Returns:
        by the larger of the two numbers of drafted tokens and the context: half the width of the 95 % interval of the
        ratio, as a share of it; none where a cell was visited once.
    """
    rounds = drawn_rounds(drawn_prices(samples, visits))
    visited = {(n, context): num_visits("verify", samples["verify", n, context], visits) for n, context in rounds}
    return {
        (more, context): float(
            half_width(
                np.log(rounds[more, context] / rounds[less, context]),
                min(visited[more, context], visited[less, context]),
            )
        )
        for context in sorted({context for _, context in rounds})
        for less, more in pairwise(n for n, at in rounds if at == context)
    }


def fewest_samples(samples: CostSamples) -> int:
    """Samples of a stage in the cell that has the fewest, plain decoding left out; 0 where there are none."""
    return min((len(seconds) for (stage, _, _), seconds in samples.items() if not is_plain(stage)), default=0)


def samples_needed(half_width_now: float, samples_now: int, wanted: float, visits: Visits) -> int:
    """About so many samples of each cell make an interval as narrow as wanted: it shrinks with their square root.

    >>> samples_needed(0.04, 14, 0.01, Visits(rounds=2))
    224

    Args:
        half_width_now: half the interval's width by noise alone, a share; see
            `simlab.policies.costs.cell_prices.few_visits`.
        samples_now: of each cell.
        wanted: the half-width that is asked for.
        visits: how samples are taken; a whole number of visits comes back.
    """
    needed = max(samples_now * (half_width_now / wanted) ** 2, float(visits.rounds))
    return visits.rounds * math.ceil(round(needed / visits.rounds, 6))


def half_samples(samples: CostSamples, visits: Visits, half: int) -> dict[Cell, tuple[float, ...]]:
    """The samples of every other visit to each cell.

    Args:
        samples: of each cell.
        visits: how they were taken.
        half: 0: the first visit, the third, and so on; 1: the second, the fourth.

    Returns:
        those of cells that were visited often enough.
    """
    found = {}
    for cell, seconds in samples.items():
        at_once = visits.steps if is_plain(cell[0]) else visits.rounds
        kept = [one for place, one in enumerate(seconds) if place // at_once % 2 == half]
        if kept:
            found[cell] = tuple(kept)
    return found
