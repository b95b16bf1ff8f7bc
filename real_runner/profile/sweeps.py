"""Which cells of the grid are measured next, and the samples so far.

A sweep visits every cell once, in an order that depends on its number alone: shuffled, large trees and small ones in
turn. Each visit times rounds and, right before or behind them, plain decoding. So what slows a machine for a while
slows cells of all kinds alike, and each cell together with the plain decoding that it is compared with.
"""

import math
import random
from typing import NamedTuple

from simlab.cost import GRID_STAGES, PLAIN, StageSeconds, channel_stage, plain_beside
from simlab.policies.costs.cell_prices import Cell, ratio_half_widths
from simlab.traces.artefacts.cost import CostFile

GridPoint = tuple[int, int]
"""Where to measure: drafted tokens, and the context."""


class ChannelPoint(NamedTuple):
    """Where to measure a channel: its name and units, and the context."""

    channel: str
    units: int
    context: int


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
    def channel_places(self) -> list[ChannelPoint]:
        """All places of channels, in the order of the file."""
        return [
            ChannelPoint(name, units, context)
            for name, one in sorted(self._file.channels.items())
            for context in self._file.contexts
            for units in one.units
        ]

    @property
    def _all_places(self) -> list[GridPoint | ChannelPoint]:
        return [*self.places, *self.channel_places]

    @property
    def num_places(self) -> int:
        """Visits of a whole sweep."""
        return len(self._all_places)

    @property
    def num_left(self) -> int:
        """Visits that are still wanted."""
        return sum(max(self.num_sweeps - self._visits(place), 0) for place in self._all_places)

    @property
    def channel_places_left(self) -> list[ChannelPoint]:
        """Those places of channels that are still to be visited."""
        return [place for place in self.channel_places if self._visits(place) < self.num_sweeps]

    @property
    def widest_half_width(self) -> float:
        """Half the widest 95 % interval of the price of a round over plain decoding's, as a share of that ratio.

        Infinite before every cell was visited twice.
        """
        if min(map(self._visits, self._all_places)) < 2:
            return math.inf
        return max(ratio_half_widths(self._samples, self._file.visits).values())

    def sweep(self, number: int) -> list[GridPoint | ChannelPoint]:
        """The cells that were not visited in this sweep, in its order; those of channels stand among the others."""
        places = sorted(self.places)
        small, large = places[: len(places) // 2], places[len(places) // 2 :]
        order = random.Random(number)
        order.shuffle(small)
        order.shuffle(large)
        turns: list[GridPoint | ChannelPoint] = [place for pair in zip(large, small, strict=False) for place in pair]
        turns += large[len(small) :]
        for place in self.channel_places:
            turns.insert(order.randrange(len(turns) + 1), place)
        return [place for place in turns if self._visits(place) <= number]

    def add(self, place: GridPoint | ChannelPoint, rounds: list[StageSeconds], steps: list[float]) -> None:
        """A visit: rounds of one size or of one channel, and steps of plain decoding beside them."""
        if isinstance(place, ChannelPoint):
            stage, at = channel_stage(place.channel), (place.units, place.context)
            self._add((stage, *at), [seconds.channel_s for seconds in rounds])
            self._add((plain_beside(stage), *at), steps)
        else:
            for stage in GRID_STAGES:
                self._add((stage, *place), [getattr(seconds, f"{stage}_s") for seconds in rounds])
            self._add((PLAIN, *place), steps)
        self.num_visits += 1

    def _add(self, cell: Cell, seconds: list[float]) -> None:
        self._samples[cell] = (*self._samples.get(cell, ()), *seconds)

    def _visits(self, place: GridPoint | ChannelPoint) -> int:
        visits = self._file.visits
        stages, at = GRID_STAGES, place[-2:]
        if isinstance(place, ChannelPoint):
            stages = (channel_stage(place.channel),)
        rounds = min(len(self._samples.get((stage, *at), ())) for stage in stages)
        return min(rounds // visits.rounds, len(self._samples.get((plain_beside(stages[0]), *at), ())) // visits.steps)
