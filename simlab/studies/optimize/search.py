"""The search of ``simlab optimize``: what policies come to on which prompts."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TypeAlias

import numpy as np
import polars as pl

from simlab.analysis.optimize.candidate_sums import (
    ACCEPTANCE_LENGTH,
    CandidateSums,
    best_indices,
    halve_candidates,
    mixed_order,
    objective_figures,
)
from simlab.arrays import Doubles, Longs
from simlab.channels.needs import channels_read
from simlab.errors import UsageError
from simlab.ids import VERSION
from simlab.policies.composition import order_key, rule_of
from simlab.policies.engine.replay import Replay, TimedPolicy
from simlab.policies.parsing.parse import parse_policies
from simlab.policies.rules.budgets import FixedBudget
from simlab.recorded import RecordedTexts
from simlab.sequence_replay import DRAFTED, ROUNDS
from simlab.studies.inputs.progress import progress_bar
from simlab.studies.inputs.trace import TraceJob, trace_handle
from simlab.studies.optimize.inputs import PromptSet, SearchInputs
from simlab.studies.optimize.space import SearchPoint, SearchSpace, is_reference
from simlab.studies.replay.run import ROOTS_A_UNIT, ROOTS_AT_ONCE, ROWS_AT_ONCE
from simlab.traces.format.documents import first_difference
from simlab.traces.results.files import check_whole
from simlab.traces.results.sums import SUMS, SumRows, read_sums, sums_schema
from simlab.workers.threads import Threads, Workers, ignore_progress

# A search in parts: each machine sums up some of the prompts, and whoever has all sums chooses.


_KEYS = ("dataset", "prompt_id", "cost_id", "policy", "policy_id")


def check_one_step(space: SearchSpace, halving: bool | None, option: str) -> None:
    """Refuse a search of several steps, each of which goes on from the sums on all prompts of the one before.

    Args:
        space: what is searched.
        halving: whether worse policies are to be dropped on the way; None: as many as there are, they are not.
        option: which does not go with it.
    """
    if space.ranged:
        entry = space.entries[space.ranged[0]].text
        raise UsageError(
            f"`{entry}` is searched trial after trial, each on all prompts, so it takes no {option}; list values: "
            "0.0/0.5/1.0"
        )
    if halving:
        raise UsageError(f"--halving drops policies by their sums on all prompts, so it takes no {option}")


def sum_rows(side: PromptSet, points: Sequence[SearchPoint], sums: CandidateSums) -> SumRows:
    """The sums of policies on some prompts, as a table: prompt after prompt, machine after machine.

    Args:
        side: whose prices they are at.
        points: the policies.
        sums: theirs, ``[M, P, prompts]``.
    """
    keys = _keys(side, points, [side.prompts.index(prompt) for prompt in sums.prompts])
    shape = sums.rounds.shape
    by_prompt: dict[str, Doubles] = {
        "committed": np.broadcast_to(sums.committed, shape),
        "rounds": sums.rounds,
        "drafted": sums.drafted,
        "seconds": sums.seconds,
        "plain_seconds": np.broadcast_to(sums.plain_seconds[:, None], shape),
    }
    columns = [pl.Series(name, np.moveaxis(values, 2, 0).ravel()) for name, values in by_prompt.items()]
    schema = sums_schema()
    rows = keys.hstack(columns).with_columns(pl.lit(side.name).alias("side"), pl.col(SUMS).fill_nan(None))
    return rows.select(pl.col(name).cast(dtype) for name, dtype in schema.items())


KnownSums: TypeAlias = Callable[[PromptSet, Sequence[SearchPoint]], CandidateSums]
"""The sums of policies on all prompts of a side that the parts of a search have worked out."""


def known_sums(path: Path, inputs: SearchInputs) -> KnownSums:
    """The sums of all parts of this very search."""
    rows, noted, of = read_sums(path)
    check_whole(path, noted)
    differing = first_difference(dict(sorted(of.items(), reverse=True)), shared_by_parts(inputs))
    if differing is not None:
        raise UsageError(f"{path} is of another search: it differs in {differing}; give it what its parts were given")
    return partial(_known, path, rows)


def _known(path: Path, rows: SumRows, side: PromptSet, points: Sequence[SearchPoint]) -> CandidateSums:
    """The sums of these policies on all prompts of a side, by the rows of a file."""
    wanted = _keys(side, points, range(len(side.prompts)))
    known = rows.filter(side=side.name).with_columns(known=pl.lit(value=True))
    joined = wanted.join(known, on=_KEYS, how="left", nulls_equal=True, maintain_order="left")
    lacking = joined.filter(pl.col("known").is_null())
    if joined.height != wanted.height or not lacking.is_empty():
        dataset, prompt, cost_id, policy, _ = (lacking if lacking.height else joined).select(_KEYS).row(0)
        raise UsageError(
            f"{path} has not one sum of {policy} with the latency profile {cost_id} on {dataset}/{prompt}; "
            "type the same -p, --cost and --node-cap as for its parts"
        )
    shape = (len(side.prompts), len(side.prices), len(points))
    table = joined.select(pl.col(SUMS).cast(pl.Float64).fill_null(float("nan")))
    committed, rounds, drafted, seconds, plain = (
        np.ascontiguousarray(np.moveaxis(table[name].to_numpy().reshape(shape), 0, 2)) for name in SUMS
    )
    return CandidateSums(side.prompts, committed[0, 0], rounds, drafted, seconds, plain[:, 0])


def shared_by_parts(inputs: SearchInputs) -> Mapping[str, object]:
    """What all parts of a search agree in, besides their policies."""
    of: dict[str, object] = {"simlab_version": VERSION}
    for side in (inputs.dev, inputs.evaluation):
        of |= {
            f"{side.name}_text_id": side.trace.text_id,
            f"{side.name}_draft_id": side.trace.draft_ids[side.draft],
            f"{side.name}_channel_ids": dict(side.trace.manifest.held().channel_ids),
            f"{side.name}_prompts": len(side.prompts),
        }
    return of


def _keys(side: PromptSet, points: Sequence[SearchPoint], indices: Sequence[int]) -> pl.DataFrame:
    """Prompt, prices and policy of each sum, prompt after prompt, machine after machine."""
    schema = sums_schema()
    prompts = pl.DataFrame(
        [side.prompts[index] for index in indices], {key: schema[key] for key in _KEYS[:2]}, orient="row"
    )
    policies = pl.DataFrame(
        [
            (prices.cost_id, point.typed, point.policies[machine].policy_id)
            for machine, prices in enumerate(side.prices)
            for point in points
        ],
        {key: schema[key] for key in _KEYS[2:]},
        orient="row",
    )
    return prompts.join(policies, how="cross", maintain_order="left_right")


HALVING_FROM = 20_000
"""From so many policies that are worked out apart times prompts, about a minute of a core, a search drops the worse."""


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """How a search is run; what it finds is the same in any options.

    Attributes:
        workers: what replays: threads of this process, or Ray.
        progress: whether bars are shown; None: on a terminal.
        note: is told the numbers of each step on the way.
    """

    workers: Workers = Threads()
    progress: bool | None = None
    note: Callable[[Mapping[str, float]], object] = field(default=lambda _: None)


def sums_on(
    points: Sequence[SearchPoint], side: PromptSet, options: SearchOptions, prompts: Sequence[int] | None = None
) -> CandidateSums:
    """Sums of policies on prompts of one side.

    Args:
        points: the policies.
        side: whose prices they are at.
        options: workers and bar.
        prompts: places of the prompts; None: all.
    """
    wanted = range(len(side.prompts)) if prompts is None else prompts
    (plain,) = parse_policies(["ar"])
    priced: list[TimedPolicy] = []
    for machine, prices in enumerate(side.prices):
        named = [plain, *(point.policies[machine] for point in points)]
        priced += [(policy.policy, prices.cost_of(policy.policy)) for policy in named]
    sums, committed = np.zeros((3, len(priced), len(wanted))), np.zeros(len(wanted))
    sequences = side.sequences(wanted)
    lengths = {record.index: len(record.text) for record in side.trace.sequences() if record.index in sequences}
    for texts, indices, part_sums in _found(priced, lengths, side, options):
        for number, index in enumerate(texts):
            at = sequences[index]
            sums[:, indices, at] += part_sums[:, :, number]
            committed[at] += (lengths[index] - 1) if indices[0] == 0 else 0
    rounds, drafted, seconds = sums.reshape(3, len(side.prices), len(points) + 1, len(wanted))
    names = tuple(side.prompts[prompt] for prompt in wanted)
    return CandidateSums(names, committed, rounds[:, 1:], drafted[:, 1:], seconds[:, 1:], seconds[:, 0])


def _found(
    priced: list[TimedPolicy], lengths: Mapping[int, int], side: PromptSet, options: SearchOptions
) -> "Iterator[_Sums]":
    """Sums of some of the policies on some of the texts; the first of all is in the first of each texts."""
    orders: dict[str, int] = {}
    near = sorted(range(len(priced)), key=lambda index: orders.setdefault(order_key(priced[index][0]), len(orders)))
    chunks = tuple(np.array(near[at : at + ROWS_AT_ONCE], np.int64) for at in range(0, len(near), ROWS_AT_ONCE))
    job = _SumsJob(trace_handle(side.trace, options.workers), side.draft, tuple(priced), chunks)
    if options.workers.shares_memory:
        units: Iterator[_Unit] = iter([(tuple(lengths), None)])
    else:
        runs = side.trace.runs(frozenset(lengths), ROOTS_A_UNIT)
        units = ((run, chunk) for run in runs for chunk in range(len(chunks)))
    total = sum(lengths.values()) * len(priced)
    with progress_bar(options.progress, f"search on {side.name}", "token", total, unit_scale=True) as bar:
        for part in options.workers.results(job, units, ignore_progress):
            yield part
            texts, indices, _ = part
            bar.update(sum(lengths[index] for index in texts) * len(indices))


_Unit: TypeAlias = tuple[tuple[int, ...], int | None]
"""What a worker is given: sequences, and a chunk of the policies; None: all of them."""

_Sums: TypeAlias = tuple[tuple[int, ...], Longs, Doubles]
"""Texts, places of policies, int64 ``[P]``, and their rounds, drafted tokens and seconds, float64 ``[3, P, S]``."""


@dataclass
class _SumsJob(TraceJob):
    """Rounds, tokens and seconds of policies, summed over each text.

    Attributes:
        priced: the policies.
        chunks: int64, places of those that are worked out together.
    """

    priced: tuple[TimedPolicy, ...]
    chunks: tuple[Longs, ...]

    def make_ready(self) -> None:
        """The policies of each chunk, and the channels that any of them reads."""
        self._channels = channels_read(policy for policy, _ in self.priced)
        self._ready = [(chunk, Replay([self.priced[index] for index in chunk])) for chunk in self.chunks]

    def parts(self, unit: _Unit) -> Iterator[tuple[RecordedTexts, Longs, Replay]]:
        """The texts of a unit, some at a time, under each chunk."""
        sequences, chunk = unit
        ready = self._ready if chunk is None else [self._ready[chunk]]
        for texts in self.trace.recorded_texts(self.draft, sequences, ROOTS_AT_ONCE, self._channels):
            yield from ((texts, *entry) for entry in ready)

    def work(self, part: tuple[RecordedTexts, Longs, Replay]) -> _Sums:
        """The sums of a part."""
        texts, indices, replay = part
        replayed = replay.sums(texts)
        counts = replayed.counts.astype(np.float64)
        sums = np.stack([counts[:, :, ROUNDS], counts[:, :, DRAFTED], replayed.seconds.sum(axis=2)])
        return tuple(sequence.index for sequence in texts.sequences), indices, sums


def units_of(points: Sequence[SearchPoint]) -> Longs:
    """Which policies are worked out together, as `halve_candidates` reads it."""
    numbers: dict[str, int] = {}
    units = []
    for point in points:
        named = point.policies[0]
        key = order_key(named.policy) if isinstance(rule_of(named.policy), FixedBudget) else f"alone {named.policy_id}"
        units.append(numbers.setdefault(key, len(numbers)))
    return np.array(units, np.int64)


@dataclass(frozen=True, slots=True)
class SearchOutcome:
    """What a search came to on one side.

    Attributes:
        points: those that are left at its end.
        sums: theirs, on all prompts.
        steps: policies and prompts of each step; one step: nothing was dropped on the way.
        gaps: places of policies that are not chosen, since nobody timed rounds of their size, and the measured node
            counts around it, see `simlab.traces.artefacts.cost.gap_around`.
    """

    points: tuple[SearchPoint, ...]
    sums: CandidateSums
    steps: tuple[tuple[int, int], ...]
    gaps: Mapping[int, tuple[int, int]]

    def ranked(self, objective: str) -> list[int]:
        """Places of the policies that may be chosen, the one with the largest figure first."""
        indices = best_indices(self.sums, objective_figures(self.sums, objective))
        return [index for index in indices if index not in self.gaps]

    def best(self, objective: str) -> SearchPoint:
        """The policy with the largest figure of those that may be chosen."""
        return self.points[self.ranked(objective)[0]]


def _gaps(
    points: Sequence[SearchPoint], sums: CandidateSums, side: PromptSet, objective: str
) -> dict[int, tuple[int, int]]:
    """Places of the policies that may not be chosen by seconds, and the measured node counts around their sizes."""
    means = sums.drafted.sum(axis=2) / np.maximum(sums.rounds.sum(axis=2), 1.0)
    return {
        index: gap
        for machine, prices in enumerate(side.prices if objective != ACCEPTANCE_LENGTH else ())
        for index, point in enumerate(points)
        if (gap := prices.gap_of(point.policies[machine].policy, float(means[machine, index]))) is not None
    }


def search(
    space: SearchSpace,
    more: Sequence[SearchPoint],
    side: PromptSet,
    objective: str,
    halving: bool | None,
    options: SearchOptions,
    known: KnownSums | None = None,
) -> SearchOutcome:
    """The points of a search on all prompts, or where there are many the better ones only.

    Args:
        space: what is searched; its references are never dropped.
        more: further policies, which are not dropped either.
        side: the prompts.
        objective: what is to be large.
        halving: whether worse policies are dropped on the way; None: where there are many.
        options: workers and bar.
        known: sums that were worked out before, in which nothing was dropped; None: none were.
    """
    always = {point.typed: point for point in (*filter(is_reference, space.points), *more)}
    points = [point for point in space.points if point.typed not in always]
    units, everything = units_of(points), [*always.values(), *points]
    steps = [(len(everything), len(side.prompts))]
    many = len(set(units.tolist())) * len(side.prompts) >= HALVING_FROM
    if known is not None:
        sums = known(side, everything)
    elif points and (many if halving is None else halving):
        order, entries = mixed_order(side.prompts), np.array([point.entry for point in points], np.int64)
        left, left_sums, steps = halve_candidates(
            lambda indices, prompts: sums_on([points[index] for index in indices], side, options, prompts),
            units,
            entries,
            order,
            objective,
            lambda num, so_far: options.note(_step_numbers(num, so_far, objective)),
        )
        own = sums_on(list(always.values()), side, replace(options, progress=False))
        everything = [*always.values(), *(points[index] for index in left)]
        sums = own.beside(left_sums.on(np.argsort(order).tolist()))
    else:
        sums = sums_on(everything, side, options)
        options.note(_step_numbers(len(everything), sums, objective))
    return SearchOutcome(tuple(everything), sums, tuple(steps), _gaps(everything, sums, side, objective))


def _step_numbers(num_policies: int, sums: CandidateSums, objective: str) -> dict[str, float]:
    """Tell how far a search is: the best figure so far is on the prompts of this step."""
    best = float(objective_figures(sums, objective).max())
    return {"search/policies": num_policies, "search/prompts": len(sums.prompts), "search/best_objective": best}


def at_the_ends(best: SearchPoint, points: Sequence[SearchPoint]) -> list[str]:
    """Settings of the best that are the smallest or the largest that its entry was searched for.

    Args:
        best: a policy.
        points: all that were searched.
    """
    of_entry = [point.policies[0].settings for point in points if point.entry == best.entry]
    notes = []
    for key, value in best.policies[0].settings.items():
        tried = sorted(
            {float(number) for number in (settings[key] for settings in of_entry) if isinstance(number, int | float)}
        )
        if isinstance(value, bool) or not isinstance(value, int | float) or len(tried) < 3:
            continue
        if value in (tried[0], tried[-1]):
            notes.append(f"{key}={value:g} is the {'smallest' if value == tried[0] else 'largest'} that was searched")
    return notes
