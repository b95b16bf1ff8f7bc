"""Measuring what rounds cost on this machine, sweep after sweep over node counts and contexts.

It ends when every cell has its samples, or, with a rule, when the prices are known well enough or the time is over.
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from tqdm import tqdm

from simlab.arrays import Ints
from simlab.cost import StageSeconds
from simlab.errors import CostError, PromptError
from simlab.policy import caught_up
from simlab.real_runner.decoding.timer import Clock, clock_of
from simlab.real_runner.models import Models, load_models, within_memory
from simlab.real_runner.profile.batches import BatchPlainStepTimer, BatchRoundTimer
from simlab.real_runner.profile.catch_up import FEWEST_READ, CatchUpTimer, catch_up_entries
from simlab.real_runner.profile.channels import TimedChannel, load_channels, with_channels
from simlab.real_runner.profile.options import ProfileOptions
from simlab.real_runner.profile.rounds import (
    FIRST_UNMEASURED,
    UNMEASURED,
    PlainStepTimer,
    RoundTimer,
    check_grid,
)
from simlab.real_runner.profile.setting import check_same, empty_file
from simlab.real_runner.profile.sweeps import ChannelPoint, GridPoint, ProfileSweeps
from simlab.real_runner.tap_offset import AUTO, PromptAndText, parse_tap_offset, settle_tap_offset
from simlab.real_runner.targets.model import Target
from simlab.traces.artefacts.cost import CostFile, read_cost_file, write_cost_file
from simlab.traces.format.alone import writing_alone

SECONDS_BETWEEN_WRITINGS = 15.0
"""Work that a killed profile loses at most."""

_LAYOUT = "{desc}: {percentage:3.0f}%|{bar}| [{elapsed}<{remaining}{postfix}]"
_OPEN_LAYOUT = "{desc}: [{elapsed}{postfix}]"
"""Of a profile whose end is not known beforehand."""

MOST_REPEATS = 1000
"""Where a rule ends the profile: samples of a cell that no rule goes beyond."""

_CHARACTERS_PER_TOKEN = 8
_NUM_SAMPLES, _SAMPLE_TOKENS = 8, 64


@dataclass(frozen=True, slots=True)
class ProfileResult:
    """The cost file as it is now, and how many visits to cells this run added to it."""

    file: CostFile
    num_visits: int


@within_memory("give smaller --contexts or --node-counts, or --dtype bfloat16")
def profile(options: ProfileOptions) -> ProfileResult:
    """Measure until every cell has the samples that were asked for; keep the file up to date on the way.

    Raises:
        SimlabError: models cannot be used, the grid is beyond them, or the file at ``out`` is of another
            measurement.
    """
    with writing_alone(options.out):
        return _profile(options, _earlier(options.out, options.resume))


def _profile(options: ProfileOptions, earlier: CostFile | None) -> ProfileResult:
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
    )
    if options.tap_offset == AUTO:
        settle_tap_offset(models, options.tap_offset, _samples(models.target, options.text))
    check_grid(models, options.contexts[-1], options.node_counts[-1])
    channels = load_channels(options.channels, models)
    entries = {name: one.entry for name, one in channels.items()}
    entries |= catch_up_entries(options.catch_up, options.draft, models, channels)
    file = empty_file(options, models, entries)
    if earlier is not None:
        check_same(options.out, earlier, file)
        file = replace(with_channels(options.out, earlier, entries), repeats=max(earlier.repeats, options.repeats))
    todo = ProfileSweeps(file, MOST_REPEATS if options.may_stop else options.repeats)
    if todo.num_left:
        _measure(options, models, channels, todo)
    return ProfileResult(todo.file, todo.num_visits)


def _earlier(out: Path, resume: bool) -> CostFile | None:
    if out.is_dir():
        raise CostError(f"--out names the folder {out}; expected a file, such as {out / 'cost.json'}")
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
    with tqdm(total=done + num_left, initial=done, desc="reading the text", bar_format=layout, smoothing=0) as bar:
        visit = _visitor(options, models, channels, todo)
        bar.set_description_str("profiling", refresh=False)
        for number in range(todo.num_sweeps):
            places = todo.sweep(number)
            bar.set_postfix_str(_sweep_text(options, todo, number), refresh=False)
            for index, place in enumerate(places):
                visit(place, number % 2 == 1)
                bar.update()
                yield index == len(places) - 1
                if _is_over(options, begun) and todo.file.is_complete:
                    return
            if number + 1 >= fewest and _is_tight(options, todo):
                return


def _is_tight(options: ProfileOptions, todo: ProfileSweeps) -> bool:
    """Whether the prices are known as well as was asked for."""
    return options.until_interval is not None and todo.widest_half_width <= options.until_interval


def _is_over(options: ProfileOptions, begun: float) -> bool:
    """Whether the time for measuring is over."""
    return options.time_limit_s is not None and time.monotonic() - begun >= options.time_limit_s


def _sweep_text(options: ProfileOptions, todo: ProfileSweeps, number: int) -> str:
    """Which sweep it is, and how well prices are known where that may end it."""
    if not options.may_stop:
        return f"sweep {number + 1} of {todo.num_sweeps}"
    known = todo.widest_half_width
    return f"sweep {number + 1}" + (f", widest interval ±{100 * known:.1f} %" if known < math.inf else "")


def _visitor(
    options: ProfileOptions, models: Models, channels: Mapping[str, TimedChannel], todo: ProfileSweeps
) -> Callable[[GridPoint | ChannelPoint, bool], None]:
    """Read the text at every context, once; what is returned visits a cell, rounds or plain decoding first."""
    clock = clock_of(models.target.device)
    longest, most = options.contexts[-1], options.node_counts[-1]
    token_ids = _token_ids(models.target, options.text, longest)
    plain, rounds = _begun(options, models, token_ids, clock)
    of_channels = _with_channels(options, models, channels, todo, clock)
    visited: set[GridPoint | ChannelPoint] = set()

    def visit(place: GridPoint | ChannelPoint, plain_first: bool) -> None:
        context = place[-1]
        num_unmeasured = UNMEASURED if place in visited else FIRST_UNMEASURED
        visited.add(place)
        before = plain.visit(context, num_unmeasured) if plain_first else None
        if isinstance(place, ChannelPoint):
            timed = of_channels[place](num_unmeasured)
        else:
            timed = rounds[context].visit(place[0], num_unmeasured)
        todo.add(place, timed, plain.visit(context, num_unmeasured) if before is None else before)

    # The first passes of a process start threads and compile; the largest tree also shows what memory it takes.
    rounds[longest].visit(most, FIRST_UNMEASURED)
    plain.visit(longest, FIRST_UNMEASURED)
    return visit


def _samples(target: Target, text: str) -> list[PromptAndText]:
    """Beginnings of texts that the target is to go on with: eight pieces of a text."""
    ids = _token_ids(target, text, _NUM_SAMPLES * _SAMPLE_TOKENS)
    return [(piece, np.empty(0, np.int32)) for piece in np.split(ids, _NUM_SAMPLES)]


def _begun(
    options: ProfileOptions, models: Models, token_ids: Ints, clock: Clock
) -> tuple[PlainStepTimer | BatchPlainStepTimer, Mapping[int, RoundTimer | BatchRoundTimer]]:
    """Plain decoding, and rounds at each context, of one text or of several, which are read here."""
    most, sampling, batch = options.node_counts[-1], options.sampling, options.batch
    if batch == 1:
        plain = PlainStepTimer(models, token_ids, options.contexts[-1], sampling, clock)
        return plain, {
            context: RoundTimer(models, most, token_ids, context, sampling, clock) for context in options.contexts
        }
    together = BatchPlainStepTimer(models, token_ids, options.contexts[-1], sampling, clock, batch)
    return together, {
        context: BatchRoundTimer(models, most, token_ids, context, sampling, clock, batch)
        for context in options.contexts
    }


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
    found, late = dict[ChannelPoint, Callable[[int], list[StageSeconds]]](), dict[tuple[str, int], CatchUpTimer]()
    for place in todo.channel_places_left:
        drafter = caught_up(place.channel)
        channel = channels.get(place.channel if drafter is None else drafter)
        name = place.channel if drafter is None else drafter
        making = models if channel is None else replace(models, channels={name: channel.producer})
        if drafter is not None:
            need = None if channel is None else channel.need(name, channel.entry.units[0])
            key = place.channel, place.context
            if key not in late:
                late[key] = CatchUpTimer(making, need, token_ids, place.context, clock)
            found[place] = partial(late[key].visit, place.units)
        elif channel is not None:
            needs = (channel.need(name, place.units),)
            timer = RoundTimer(making, most, token_ids, place.context, options.sampling, clock, needs)
            found[place] = partial(timer.visit, middle)
    return found


def _token_ids(target: Target, text: str, num: int) -> Ints:
    """int32 ``[num]``: the first tokens of a text, from its beginning again where it is too short."""
    ids = target.tokenizer.encode(text[: num * _CHARACTERS_PER_TOKEN], verbose=False)
    if not ids:
        raise PromptError(f"the tokenizer of {target.name} makes no token of the text; give another --target")
    return np.resize(np.array(ids, np.int32), num)
