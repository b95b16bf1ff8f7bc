"""Measuring what rounds cost on this machine, sweep after sweep over node counts and contexts.

It ends when every cell has its samples, or, with a rule, when the prices are known well enough or the time is over.
"""

import math
import random
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from tqdm import tqdm

from simlab.arrays import Ints
from simlab.cost import GRID_STAGES, PLAIN, StageSeconds, channel_stage, plain_beside
from simlab.errors import CostError, PromptError
from simlab.policies.costs.cell_prices import Cell, ratio_half_widths
from simlab.policy import caught_up
from simlab.real_runner.decoding.plain import Clock, clock_of
from simlab.real_runner.models import Models, load_models, within_memory
from simlab.real_runner.profile.channels import (
    FEWEST_READ,
    CatchUpTimer,
    TimedChannel,
    catch_up_entries,
    load_channel,
    with_channels,
)
from simlab.real_runner.profile.options import ProfileOptions
from simlab.real_runner.profile.rounds import (
    UNMEASURED,
    PlainStepTimer,
    RoundTimer,
    check_grid,
    check_same,
    empty_file,
)
from simlab.real_runner.tap_offset import AUTO, PromptAndText, parse_tap_offset, settle_tap_offset
from simlab.real_runner.targets.model import Target
from simlab.traces.artefacts.cost import CostFile, read_cost_file, write_cost_file
from simlab.traces.format.lock import exclusive_lock

# Which cells of the grid are measured next, and the samples so far.
#
# A sweep visits every cell once, in an order that depends on its number alone: shuffled, large trees and small ones in
# turn. Each visit times rounds and, right before or behind them, plain decoding. So what slows a machine for a while
# slows cells of all kinds alike, and each cell together with the plain decoding that it is compared with.


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
    def grid_points(self) -> list[GridPoint]:
        """All of them, in the order of the file."""
        return [(n, context) for context in self._file.contexts for n in self._file.node_counts]

    @property
    def channel_points(self) -> list[ChannelPoint]:
        """All places of channels, in the order of the file."""
        return [
            ChannelPoint(name, units, context)
            for name, channel in sorted(self._file.channels.items())
            for context in self._file.contexts
            for units in channel.units
        ]

    @property
    def _all_points(self) -> list[GridPoint | ChannelPoint]:
        return [*self.grid_points, *self.channel_points]

    @property
    def num_places(self) -> int:
        """Visits of a whole sweep."""
        return len(self._all_points)

    @property
    def num_left(self) -> int:
        """Visits that are still wanted."""
        return sum(max(self.num_sweeps - self._visits(point), 0) for point in self._all_points)

    @property
    def points_left(self) -> list[GridPoint | ChannelPoint]:
        """The places that are still to be visited, in the order of the file."""
        return [point for point in self._all_points if self._visits(point) < self.num_sweeps]

    @property
    def widest_half_width(self) -> float:
        """Half the widest 95 % interval of the price of a round over plain decoding's, as a share of that ratio.

        Infinite before every cell was visited twice.
        """
        if min(map(self._visits, self._all_points)) < 2:
            return math.inf
        return max(ratio_half_widths(self._samples, self._file.visits).values())

    def sweep(self, number: int) -> list[GridPoint | ChannelPoint]:
        """The cells that were not visited in this sweep, in its order; those of channels stand among the others."""
        points = sorted(self.grid_points)
        small, large = points[: len(points) // 2], points[len(points) // 2 :]
        order = random.Random(number)
        order.shuffle(small)
        order.shuffle(large)
        turns: list[GridPoint | ChannelPoint] = [point for pair in zip(large, small, strict=False) for point in pair]
        turns += large[len(small) :]
        for point in self.channel_points:
            turns.insert(order.randrange(len(turns) + 1), point)
        return [turn for turn in turns if self._visits(turn) <= number]

    def add(self, point: GridPoint | ChannelPoint, rounds: list[StageSeconds], steps: list[float]) -> None:
        """A visit: rounds of one size or of one channel, and steps of plain decoding beside them."""
        if isinstance(point, ChannelPoint):
            stage, at = channel_stage(point.channel), (point.units, point.context)
            self._add((stage, *at), [seconds.channel_s for seconds in rounds])
            self._add((plain_beside(stage), *at), steps)
        else:
            for stage in GRID_STAGES:
                self._add((stage, *point), [getattr(seconds, f"{stage}_s") for seconds in rounds])
            self._add((PLAIN, *point), steps)
        self.num_visits += 1

    def _add(self, cell: Cell, seconds: list[float]) -> None:
        self._samples[cell] = (*self._samples.get(cell, ()), *seconds)

    def _visits(self, point: GridPoint | ChannelPoint) -> int:
        visits = self._file.visits
        stages, at = GRID_STAGES, point[-2:]
        if isinstance(point, ChannelPoint):
            stages = (channel_stage(point.channel),)
        rounds = min(len(self._samples.get((stage, *at), ())) for stage in stages)
        return min(rounds // visits.rounds, len(self._samples.get((plain_beside(stages[0]), *at), ())) // visits.steps)


SECONDS_BETWEEN_WRITINGS = 15.0
"""Work that a killed profile loses at most."""

_LAYOUT = "{desc}: {percentage:3.0f}%|{bar}| [{elapsed}<{remaining}{postfix}]"
_OPEN_LAYOUT = "{desc}: [{elapsed}{postfix}]"
"""Of a profile whose end is not known beforehand."""

MOST_REPEATS = 1000
"""Where a rule ends the profile: samples of a cell that no rule goes beyond."""

_CHARACTERS_PER_TOKEN = 8
_NUM_SAMPLES, _SAMPLE_TOKENS = 8, 64


@within_memory("give smaller --contexts or --node-counts, or --dtype bfloat16")
def profile(options: ProfileOptions) -> ProfileSweeps:
    """Measure until every cell has the samples that were asked for; keep the file up to date on the way.

    Returns:
        The samples, in a cost file as it is now, and how many visits to cells this run added.

    Raises:
        SimlabError: models cannot be used, the grid is beyond them, or the file at ``out`` is of another
            measurement.
    """
    with exclusive_lock(options.out):
        return _profile(options, _earlier(options.out, options.resume))


def _profile(options: ProfileOptions, earlier: CostFile | None) -> ProfileSweeps:
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    offset = parse_tap_offset(options.tap_offset)
    models = load_models(
        options.target,
        options.draft,
        options.dtype,
        options.device,
        offset,
        options.execution,
        options.device_map,
        options.block,
        options.noise,
    )
    if options.tap_offset == AUTO:
        settle_tap_offset(models, options.tap_offset, _samples(models.target, options.text))
    check_grid(models, options.contexts[-1], options.node_counts[-1])
    channels = {name: load_channel(asked, models) for name, asked in options.channels.items()}
    entries = {name: channel.entry for name, channel in channels.items()}
    entries |= catch_up_entries(options.catch_up, options.draft, models, channels)
    file = empty_file(options, models, entries)
    if earlier is not None:
        check_same(options.out, earlier, file)
        file = replace(with_channels(options.out, earlier, entries), repeats=max(earlier.repeats, options.repeats))
    todo = ProfileSweeps(file, MOST_REPEATS if options.may_stop else options.repeats)
    if todo.num_left:
        _measure(options, models, channels, todo)
    return todo


def _earlier(out: Path, resume: bool) -> CostFile | None:
    if not out.exists():
        return None
    if not resume:
        raise CostError(f"{out} is there already; add --resume to go on with it, or give another --out")
    earlier = read_cost_file(out)
    if earlier.notes:
        raise CostError(f"{out} cannot be gone on with, since not all in it was measured so: {earlier.notes[-1]}")
    return earlier


def _measure(
    options: ProfileOptions, models: Models, channels: Mapping[str, TimedChannel], todo: ProfileSweeps
) -> None:
    """All sweeps, written on the way and at the end, however that comes."""
    written, saved = time.monotonic(), 0

    def save() -> None:
        nonlocal written, saved
        if todo.num_visits > saved:
            write_cost_file(options.out, todo.file)
            written, saved = time.monotonic(), todo.num_visits

    try:
        for swept in _visits(options, models, channels, todo):
            if swept or time.monotonic() - written >= SECONDS_BETWEEN_WRITINGS:
                save()
    finally:
        save()


def _visits(
    options: ProfileOptions, models: Models, channels: Mapping[str, TimedChannel], todo: ProfileSweeps
) -> Iterator[bool]:
    """Visit cell after cell; after each, whether it was the last of its sweep."""
    begun, num_left = time.monotonic(), todo.num_left
    done = todo.num_places * todo.num_sweeps - num_left
    layout = _OPEN_LAYOUT if options.may_stop else _LAYOUT
    fewest = math.ceil(options.repeats / todo.file.visits.rounds)
    with tqdm(
        total=done + num_left, initial=done, desc="reading the text", bar_format=layout, smoothing=0, disable=None
    ) as bar:
        visit = _visitor(options, models, channels, todo)
        bar.set_description_str("warming up", refresh=True)
        # Passes are compiled and captured on first sight, which slows what runs soon after. The largest show the memory
        # that is needed, so they come first.
        for point in reversed(todo.points_left):
            visit(point)
        bar.set_description_str("profiling", refresh=False)
        for number in range(todo.num_sweeps):
            points = todo.sweep(number)
            bar.set_postfix_str(_sweep_text(options, todo, number), refresh=False)
            for index, point in enumerate(points):
                todo.add(point, *visit(point, UNMEASURED, number % 2 == 1))
                bar.update()
                yield index == len(points) - 1
                is_over = options.time_limit_s is not None and time.monotonic() - begun >= options.time_limit_s
                if is_over and todo.file.is_complete:
                    return
            until = options.until_interval
            if until is not None and number + 1 >= fewest and todo.widest_half_width <= until:
                return


def _sweep_text(options: ProfileOptions, todo: ProfileSweeps, number: int) -> str:
    """Which sweep it is, and how well prices are known where that may end it."""
    if not options.may_stop:
        return f"sweep {number + 1} of {todo.num_sweeps}"
    known = todo.widest_half_width
    return f"sweep {number + 1}" + (f", widest interval ±{100 * known:.1f} %" if known < math.inf else "")


def _visitor(
    options: ProfileOptions, models: Models, channels: Mapping[str, TimedChannel], todo: ProfileSweeps
) -> Callable[..., tuple[list[StageSeconds], list[float]]]:
    """Read the text at every context, once; what is returned visits a cell: see `visit` below."""
    clock = clock_of(models.target.device)
    longest = options.contexts[-1]
    token_ids = _token_ids(models.target, options.text, longest)
    most, sampling, batch = options.node_counts[-1], options.sampling, options.batch
    # Of one text or of several.
    plain = PlainStepTimer(models, token_ids, longest, sampling, clock, batch)
    rounds = {
        context: RoundTimer(models, most, token_ids, context, sampling, clock, batch=batch)
        for context in options.contexts
    }
    of_channels = _with_channels(options, models, channels, todo, clock)

    def visit(
        point: GridPoint | ChannelPoint, num_unmeasured: int = 0, plain_first: bool = False
    ) -> tuple[list[StageSeconds], list[float]]:
        """Rounds and steps of plain decoding, either first, after some of each that are not measured."""
        context = point[-1]
        before = plain.visit(context, num_unmeasured) if plain_first else None
        if isinstance(point, ChannelPoint):
            timed = of_channels[point](num_unmeasured)
        else:
            timed = rounds[context].visit(point[0], num_unmeasured)
        return timed, plain.visit(context, num_unmeasured) if before is None else before

    return visit


def _samples(target: Target, text: str) -> list[PromptAndText]:
    """Beginnings of texts that the target is to go on with: eight pieces of a text."""
    ids = _token_ids(target, text, _NUM_SAMPLES * _SAMPLE_TOKENS)
    return [(piece, np.empty(0, np.int32)) for piece in np.split(ids, _NUM_SAMPLES)]


def _with_channels(
    options: ProfileOptions,
    models: Models,
    channels: Mapping[str, TimedChannel],
    todo: ProfileSweeps,
    clock: Clock,
) -> dict[ChannelPoint, Callable[[int], list[StageSeconds]]]:
    """What visits the places of channels, and of catching up, that are still to be visited.

    Each is given how many rounds are not measured.
    """
    most, middle = options.node_counts[-1], options.node_counts[len(options.node_counts) // 2]
    longest, missed = options.contexts[-1], max(options.catch_up, default=0)
    token_ids = _token_ids(models.target, options.text, max(longest, missed + FEWEST_READ) + 1)
    visits, late = dict[ChannelPoint, Callable[[int], list[StageSeconds]]](), dict[tuple[str, int], CatchUpTimer]()
    for point in todo.points_left:
        if not isinstance(point, ChannelPoint):
            continue
        drafter = caught_up(point.channel)
        channel = channels.get(point.channel if drafter is None else drafter)
        name = point.channel if drafter is None else drafter
        making = models if channel is None else replace(models, channels={name: channel.producer})
        if drafter is not None:
            need = None if channel is None else channel.need(name, channel.entry.units[0])
            key = point.channel, point.context
            if key not in late:
                late[key] = CatchUpTimer(making, need, token_ids, point.context, clock)
            visits[point] = partial(late[key].visit, point.units)
        elif channel is not None:
            needs = (channel.need(name, point.units),)
            timer = RoundTimer(making, most, token_ids, point.context, options.sampling, clock, needs)
            visits[point] = partial(timer.visit, middle)
    return visits


def _token_ids(target: Target, text: str, num: int) -> Ints:
    """int32 ``[num]``: the first tokens of a text, from its beginning again where it is too short."""
    ids = target.tokenizer.encode(text[: num * _CHARACTERS_PER_TOKEN], verbose=False)
    if not ids:
        raise PromptError(f"the tokenizer of {target.name} makes no token of the text; give another --target")
    return np.resize(np.array(ids, np.int32), num)
