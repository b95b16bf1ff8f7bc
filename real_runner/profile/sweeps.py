"""Which cells of the grid are measured next, and the samples so far.

A sweep visits every cell once, in an order that depends on its number alone: shuffled, large trees and small ones in
turn. Each visit times rounds and, right before or behind them, plain decoding. So what slows a machine for a while
slows cells of all kinds alike, and each cell together with the plain decoding that it is compared with.
"""

import math
import random

from simlab.cost import PLAIN, STAGES, StageSeconds
from simlab.policies.costs.cell_prices import Cell, ratio_half_widths
from simlab.traces.artefacts.cost import CostFile

GridPoint = tuple[int, int]
"""Where to measure: drafted tokens, and the context."""


class ProfileSweeps:
    """The samples so far, and which cells are to be visited next."""

    def __init__(self, file: CostFile, repeats: int) -> None:
        """Go on with the samples of a file.

        Args:
            file: its whole visits count; a cell with enough of them is left alone.
            repeats: samples wanted of each cell.
        """
        self.num_sweeps = math.ceil(repeats / file.visits.rounds)
        self.num_visits = 0
        self._file = file
        self._samples: dict[Cell, tuple[float, ...]] = dict(file.samples)

    @property
    def file(self) -> CostFile:
        """With all samples so far."""
        return self._file.with_samples(self._samples)

    @property
    def places(self) -> list[GridPoint]:
        """All of them, in the order of the file."""
        return [(n, context) for context in self._file.contexts for n in self._file.node_counts]

    @property
    def num_left(self) -> int:
        """Visits that are still wanted."""
        return sum(max(self.num_sweeps - self._visits(place), 0) for place in self.places)

    @property
    def widest_half_width(self) -> float:
        """Half the widest 95 % interval of the price of a round over plain decoding's, as a share of that ratio.

        Infinite before every cell was visited twice.
        """
        if min(map(self._visits, self.places)) < 2:
            return math.inf
        return max(ratio_half_widths(self._samples, self._file.visits).values())

    def sweep(self, number: int) -> list[GridPoint]:
        """The cells that were not visited in this sweep, in its order."""
        places = sorted(self.places)
        small, large = places[: len(places) // 2], places[len(places) // 2 :]
        order = random.Random(number)
        order.shuffle(small)
        order.shuffle(large)
        turns = [place for pair in zip(large, small, strict=False) for place in pair]
        return [place for place in [*turns, *large[len(small) :]] if self._visits(place) <= number]

    def add(self, place: GridPoint, rounds: list[StageSeconds], steps: list[float]) -> None:
        """A visit: rounds of one size, and steps of plain decoding beside them."""
        num_drafted, context = place
        for stage in STAGES:
            self._add((stage, num_drafted, context), [getattr(seconds, f"{stage}_s") for seconds in rounds])
        self._add((PLAIN, num_drafted, context), steps)
        self.num_visits += 1

    def _add(self, cell: Cell, seconds: list[float]) -> None:
        self._samples[cell] = (*self._samples.get(cell, ()), *seconds)

    def _visits(self, place: GridPoint) -> int:
        num_drafted, context = place
        visits = self._file.visits
        rounds = min(len(self._samples.get((stage, num_drafted, context), ())) for stage in STAGES)
        return min(rounds // visits.rounds, len(self._samples.get((PLAIN, num_drafted, context), ())) // visits.steps)
