"""Which cells of the grid are measured next, and the samples so far.

A sweep visits every cell once, plain decoding too, in an order shuffled with a fixed seed: what slows
a machine for a while slows all cells alike.
"""

import math
import random

from simlab.cost import PLAIN, STAGES, StageSeconds
from simlab.real_runner.profile.rounds import MEASURED_ROUNDS, MEASURED_STEPS
from simlab.traces.artefacts.cost import Cell, CostFile

GridPoint = tuple[int | None, int]
"""Where to measure: drafted tokens (None: plain decoding), and the context."""


class ProfileSweeps:
    """The samples so far, and which cells are to be visited next."""

    def __init__(self, file: CostFile, repeats: int) -> None:
        """Go on with the samples of a file.

        Args:
            file: its whole visits count; a cell with enough of them is left alone.
            repeats: samples wanted of each cell.
        """
        self.num_sweeps = math.ceil(repeats / MEASURED_ROUNDS)
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
        return [(n, context) for context in self._file.contexts for n in (None, *self._file.node_counts)]

    @property
    def num_left(self) -> int:
        """Visits that are still wanted."""
        return sum(max(self.num_sweeps - self._visits(place), 0) for place in self.places)

    def sweep(self, number: int) -> list[GridPoint]:
        """The cells that were not visited in this sweep, in an order that depends on its number alone."""
        places = self.places
        random.Random(number).shuffle(places)
        return [place for place in places if self._visits(place) <= number]

    def add_steps(self, context: int, seconds: list[float]) -> None:
        """A visit to plain decoding."""
        self._add((PLAIN, 0, context), seconds)
        self.num_visits += 1

    def add_rounds(self, num_drafted: int, context: int, rounds: list[StageSeconds]) -> None:
        """A visit to rounds of one size."""
        for stage in STAGES:
            self._add((stage, num_drafted, context), [getattr(seconds, f"{stage}_s") for seconds in rounds])
        self.num_visits += 1

    def _add(self, cell: Cell, seconds: list[float]) -> None:
        self._samples[cell] = (*self._samples.get(cell, ()), *seconds)

    def _visits(self, place: GridPoint) -> int:
        num_drafted, context = place
        if num_drafted is None:
            return len(self._samples.get((PLAIN, 0, context), ())) // MEASURED_STEPS
        return min(len(self._samples.get((stage, num_drafted, context), ())) for stage in STAGES) // MEASURED_ROUNDS
