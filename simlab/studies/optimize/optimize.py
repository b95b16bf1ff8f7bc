"""A policy and its settings, chosen on some prompts and reported once on others."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import ClassVar

import polars as pl

from simlab.analysis.optimize.candidate_sums import objective_figures
from simlab.analysis.optimize.finalists import (
    FinalistVerdict,
    choose_finalists,
    finalist_table,
    judge_finalists,
    optimism_figures,
    optimism_text,
    policy_to_take,
    price_text,
    share_of_draws_best,
    take_sentence,
)
from simlab.analysis.statistics.intervals import rough_intervals
from simlab.analysis.table.prompt_sums import PolicyRun
from simlab.analysis.table.summaries import summarise
from simlab.analysis.table.text import SPEEDS, within_width
from simlab.arrays import Doubles
from simlab.errors import UsageError, as_usage_error
from simlab.ids import VERSION
from simlab.options import path_or_none, paths, study
from simlab.policies.parsing.parse import parse_policies
from simlab.studies.inputs.artefacts import PoliciesOnMachine, in_sample_note
from simlab.studies.inputs.prices import not_chosen_note, notes_on
from simlab.studies.inputs.served import lines_of_choice
from simlab.studies.inputs.trace import opened
from simlab.studies.optimize.inputs import PromptSet, SearchInputs, search_inputs
from simlab.studies.optimize.options import OptimizeOptions
from simlab.studies.optimize.search import (
    SearchOptions,
    SearchOutcome,
    at_the_ends,
    check_one_step,
    known_sums,
    search,
    shared_by_parts,
    sum_rows,
    sums_on,
)
from simlab.studies.optimize.space import CHAIN, PLAIN, THIRD, SearchPoint, SearchSpace, is_reference, search_space_of
from simlab.studies.optimize.trials import SEED, TRIALS, check_has_trials, run_trials
from simlab.studies.replay.run import ReplayRun, replay_trace
from simlab.studies.result import StudyResult
from simlab.traces.artefacts.optimum import ROLES, ChosenPolicy, Optimum, Scalar, write_optimum
from simlab.traces.format.lock import exclusive_lock
from simlab.traces.results.files import NotedPart, write_results
from simlab.traces.results.rows import Results, results_at
from simlab.traces.results.sums import write_sums
from simlab.tracking.tracker import Tracker, check_trackers, tracking
from simlab.workers.on_ray import ray_options, workers_on
from simlab.workers.parts import Part, parse_part

# What ``simlab optimize`` says of its choice: finalists on both sets of prompts, the verdict, the optimism.


BEST, RIVAL, REFERENCE, BOUND = ROLES

_ENDS = ("ci_low", "ci_high", "price_low", "price_high")
_SPEEDUP = ("speedup", *(f"speedup_{end}" for end in _ENDS))
_DEV = ("acceptance_length", "nodes_per_round", "tokens_per_s", *_SPEEDUP)
_EVALUATION = (*_DEV, "acceptance_length_ci_low", "acceptance_length_ci_high", "acceptance_length_macro")
_OVER = {"best_over_this": "ratio", **{f"best_over_this_{end}": f"ratio_{end}" for end in _ENDS}}
_HELD = {"measure": "measure", **_OVER, **{name: name for name in ("p_adjusted", "detectable", "differs")}}
"""Of a row of the file, the name in a comparison."""


def report_choice(
    inputs: SearchInputs,
    space: SearchSpace,
    trials: Sequence[SearchPoint],
    num_searched: int,
    dev: SearchOutcome,
    evaluation: SearchOutcome,
    options: SearchOptions,
) -> "OptimizeResult":
    """The choice on dev, reported on evaluation.

    Args:
        inputs: what was asked for.
        space: what was searched.
        trials: the best policies of trials of ranges.
        num_searched: policies that were tried.
        dev: the search on the dev prompts.
        evaluation: the same search on the evaluation prompts, which only the optimism is read from.
        options: threads.
    """
    values = objective_figures(dev.sums, inputs.objective)
    references = _references(dev, inputs.objective)
    indices = choose_finalists(dev.sums, values, [point.entry for point in dev.points], references, dev.gaps)
    finalists = [dev.points[index] for index in indices]
    rows, in_sample = zip(*(_rows(side, finalists, options) for side in (inputs.dev, inputs.evaluation)), strict=True)
    on_dev, machines = (
        [_runs(side, number, finalists, part) for number in range(len(inputs.dev.prices))]
        for side, part in zip((inputs.dev, inputs.evaluation), rows, strict=True)
    )
    standing = judge_finalists(machines, inputs.objective)
    best = ChosenPolicy(finalists[0].typed, finalists[0].policies[0].policy_id)
    cost_ids = tuple(price.cost_id for price in inputs.dev.prices if price.cost_id is not None)
    optimum = Optimum(
        simlab_version=VERSION,
        objective=inputs.objective,
        node_cap=inputs.node_cap,
        cost_ids=cost_ids,
        chosen_on=inputs.dev.read_from(),
        reported_on=inputs.evaluation.read_from(),
        searched=num_searched,
        winner=best if standing.wins else None,
        best=best,
        verdict=standing.verdict,
        optimism=_optimism(inputs, dev, evaluation, indices[0]),
        run=tuple(finalist.typed for finalist in finalists if finalist.entry != PLAIN or finalist is finalists[0]),
        rows=tuple(_finalist_rows(inputs, finalists, rows, standing)),
        share_of_draws_best=share_of_draws_best(on_dev, inputs.objective),
    )
    return OptimizeResult(
        inputs=inputs,
        space=space,
        trials=tuple(trials),
        steps=dev.steps,
        optimum=optimum,
        standing=standing,
        results=rows[1],
        in_sample=in_sample,
        not_chosen=_not_chosen(dev, values, indices[0]),
    )


def _not_chosen(dev: SearchOutcome, values: Doubles, best: int) -> tuple[str, ...]:
    """The policies whose figure on dev is larger, and which nobody timed, with the measured sizes around theirs."""
    larger = sorted((index for index in dev.gaps if values[index] > values[best]), key=lambda index: -values[index])
    return tuple(f"{dev.points[index].typed} ({dev.gaps[index][0]} to {dev.gaps[index][1]})" for index in larger)


def _references(dev: SearchOutcome, objective: str) -> list[int]:
    """Places of the best of each reference; of a chain that nobody timed the only one there is."""
    order = [*dev.ranked(objective), *dev.gaps]
    firsts = (next((index for index in order if dev.points[index].entry == at), None) for at in (CHAIN, PLAIN, THIRD))
    return [first for first in firsts if first is not None]


def _rows(side: PromptSet, finalists: Sequence[SearchPoint], options: SearchOptions) -> tuple[Results, tuple[str, ...]]:
    """Result rows of the finalists and the bounds on the prompts of a side; which finalists know its texts."""
    asked: list[PoliciesOnMachine] = []
    in_sample: list[str] = []
    for prices, artefacts in zip(side.prices, side.artefacts, strict=True):
        policies = tuple(parse_policies([finalist.typed for finalist in finalists], artefacts))
        in_sample += artefacts.in_sample(policies)
        asked.append(PoliciesOnMachine(prices, policies))
    rows = replay_trace(
        side.trace, side.draft, asked, None, ReplayRun(options.workers, options.progress, best_budgets=False)
    )
    wanted = side.sequences()
    return rows.filter(rows["sequence"].is_in(list(wanted))), tuple(dict.fromkeys(in_sample))


def _runs(side: PromptSet, machine: int, finalists: Sequence[SearchPoint], rows: Results) -> list[PolicyRun]:
    """The finalists at one machine's prices."""
    priced = results_at(rows, side.prices[machine].cost_id)
    plain = priced.filter(priced["name"] == "ar")
    labels = [finalist.policies[machine].label for finalist in finalists]
    return [PolicyRun(label, priced.filter(priced["policy"] == label), plain) for label in labels]


def _optimism(inputs: SearchInputs, dev: SearchOutcome, evaluation: SearchOutcome, best: int) -> Mapping[str, Scalar]:
    chain = next(index for index, point in enumerate(dev.points) if point.entry == CHAIN)
    before = objective_figures(dev.sums.take([best, chain]), inputs.objective).tolist()
    on_evaluation = objective_figures(evaluation.sums, inputs.objective)
    first = evaluation.ranked(inputs.objective)[0]
    known = {point.typed: float(value) for point, value in zip(evaluation.points, on_evaluation, strict=True)}
    typed = evaluation.points[first].typed
    return optimism_figures(before, [known[dev.points[index].typed] for index in (best, chain)], typed, known[typed])


def _finalist_rows(
    inputs: SearchInputs, finalists: Sequence[SearchPoint], rows: Sequence[Results], standing: FinalistVerdict
) -> list[dict[str, Scalar]]:
    """A row for each finalist and bound at each machine's prices."""
    against = {comparison.second: comparison for comparison in standing.comparisons}
    entries: list[dict[str, Scalar]] = []
    for machine, prices in enumerate(inputs.dev.prices):
        labels = {finalist.policies[machine].label: index for index, finalist in enumerate(finalists)}
        both = (summarise(results_at(part, prices.cost_id)) for part in rows)
        for dev, evaluation in zip(*both, strict=True):
            index = labels.get(evaluation.policy)
            comparison = against.get(evaluation.policy)
            held = {} if comparison is None or machine else comparison.row()
            entries.append(
                {
                    "policy": evaluation.policy if index is None else finalists[index].typed,
                    "policy_id": evaluation.policy_id,
                    "role": _role(finalists, index),
                    "cost_id": prices.cost_id,
                    **{f"dev_{name}": dev.row()[name] for name in _DEV},
                    **{f"evaluation_{name}": evaluation.row()[name] for name in _EVALUATION},
                    **{name: held.get(key) for name, key in _HELD.items()},
                }
            )
    return entries


def _role(finalists: Sequence[SearchPoint], index: int | None) -> str:
    if index is None:
        return BOUND
    if index == 0:
        return BEST
    return REFERENCE if is_reference(finalists[index]) else RIVAL


@dataclass(frozen=True, eq=False, repr=False)
class OptimizeResult(StudyResult):
    """The choice, its rivals on both sets of prompts, and the verdict.

    Attributes:
        inputs: the prompts, prices and objective.
        space: what was searched.
        trials: the best policies of trials of ranges.
        steps: policies and prompts of each step of the search on dev.
        optimum: what `write` writes and ``simlab confirm --from`` reads.
        standing: of the finalists on the evaluation prompts.
        results: result rows of the finalists there.
        in_sample: labels of finalists whose tables or counts were made from the dev texts, and from the others.
        not_chosen: policies of larger figures whose size nobody timed, with the measured node counts around it.
    """

    inputs: SearchInputs
    space: SearchSpace
    trials: tuple[SearchPoint, ...]
    steps: tuple[tuple[int, int], ...]
    optimum: Optimum
    standing: FinalistVerdict
    results: Results
    in_sample: tuple[tuple[str, ...], tuple[str, ...]]
    not_chosen: tuple[str, ...]

    PICTURES: ClassVar[str] = "simlab.studies.plot:optimize_pictures"

    @property
    def exported(self) -> Optimum:
        """The choice, which `simlab.export` makes a table of."""
        return self.optimum

    def to_json(self) -> dict[str, object]:
        """The value of ``simlab optimize --json``: the file, and what only this search knows."""
        extra: dict[str, object] = {
            "in_sample_on_dev": list(self.in_sample[0]),
            "in_sample_on_evaluation": list(self.in_sample[1]),
            "at_the_ends": self._ends(),
            "engine": self.space.engine,
            "not_chosen": list(self.not_chosen),
            "left_out": list(self.space.left_out),
            "split": self.inputs.split,
            "notes": list(dict.fromkeys(note for side in self._sides for note in notes_on(side.trace, side.prices))),
        }
        return self.optimum.to_json() | extra

    @property
    def _sides(self) -> tuple[PromptSet, PromptSet]:
        return self.inputs.dev, self.inputs.evaluation

    def text(self) -> str:
        """Which policy to take, the verdict, and the table, as ``simlab optimize`` prints them."""
        optimum, verdict = self.optimum, self.optimum.verdict
        first = within_width(
            f"{take_sentence(optimum)}\n{verdict.replace('no ', 'No ', 1) if verdict.startswith('no ') else verdict}"
        )
        parts = [first, *self._line_to_paste(), within_width(self._heading()), finalist_table(optimum), self._notes()]
        parts += [within_width("\n".join(filter(None, [price_text(optimum), optimism_text(optimum)])))]
        return "\n\n".join([*parts, *map(within_width, self._warnings())])

    def _line_to_paste(self) -> list[str]:
        policy, engine = policy_to_take(self.optimum), self.space.engine
        if engine is None or policy in (None, "ar"):
            return []
        side = self.inputs.evaluation
        return [lines_of_choice(engine, side.trace, side.draft, policy)]

    def write(self, path: str | Path) -> None:
        """Write the choice, for ``simlab confirm --from``."""
        write_optimum(Path(path), self.optimum)

    def write_results(self, path: str | Path) -> None:
        """Write the finalists' result rows on the evaluation prompts."""
        write_results(Path(path), self.results, self.inputs.evaluation.trace.sequence_counts)

    def _notes(self) -> str:
        """What to know of the numbers."""
        sentences = dict.fromkeys(
            line for price in self.inputs.evaluation.prices for line in price.speedup_note.splitlines()
        )
        of = f"Figures are of evaluation prompts unless dev is said; [95 %] over prompts. {SPEEDS['predicted']}"
        fewest = min(len(side.prompts) for side in self._sides)
        return within_width(" ".join([of, *sentences, *rough_intervals(fewest, "prompts on one side")]))

    def _heading(self) -> str:
        inputs, space = self.inputs, self.space
        objective = {
            "tokens_per_s": "tokens per second",
            "acceptance_length": "acceptance length",
            "worst_case": f"the smallest speedup with {len(inputs.dev.prices)} latency profiles",
        }[inputs.objective]
        cap = "" if inputs.node_cap is None else f", at most {inputs.node_cap} drafted tokens a round"
        lines = [
            f"chosen on    {inputs.dev.heading()}",
            f"reported on  {inputs.evaluation.heading()}",
            f"objective    {objective}{cap}",
            f"searched     {self.optimum.searched:,} policies of {len(space.entries)} entries",
            *(f"latency      {price.heading}" for price in inputs.evaluation.prices if price.cost is not None),
        ]
        lines += dict.fromkeys(f"             {side.trace.left_out}" for side in self._sides if side.trace.left_out)
        if len(self.steps) > 1:
            lines[3] += "; " + ", ".join(f"{num:,} on {prompts} prompts" for num, prompts in self.steps)
        if space.capped:
            lines.append(f"left out     {space.capped:,} policies that draft more")
        return "\n".join([*lines, *([inputs.split] if inputs.split else [])])

    def _ends(self) -> list[str]:
        points = [*self.space.points, *self.trials]
        return at_the_ends(next(point for point in points if point.typed == self.optimum.best.policy), points)

    def _warnings(self) -> list[str]:
        lines = [f"At an end: {end}; search further." for end in self._ends()]
        cost = self.inputs.dev.prices[0].cost
        if self.not_chosen and cost is not None:
            lines.append(within_width(not_chosen_note(self.not_chosen, cost)))
        on_dev, on_evaluation = self.in_sample
        if on_dev:
            lines.append(
                f"In sample on dev: {', '.join(on_dev)}. Tables or counts of theirs were made from the dev texts, so "
                "their dev figures are too high; those on evaluation prompts are not."
            )
        if on_evaluation:
            lines.append(in_sample_note(on_evaluation))
        if self.space.left_out:
            names = dict.fromkeys(label.partition(":")[0] for label in self.space.left_out)
            lines.append(f"Not searched here: {', '.join(names)}; --json has each reason.")
        return lines


@study(OptimizeOptions)
def optimize(options: OptimizeOptions) -> OptimizeResult:
    """Choose a policy and its settings on the prompts of one trace, and report the choice on those of another.

    Raises:
        SimlabError: something is not there, or does not fit the rest.
    """
    if options.shard is not None:
        raise UsageError("--shard sums up a part of a search, which `sum_part` does; leave it out")
    out, results = path_or_none(options.out), path_or_none(options.results)
    with exclusive_lock(out), exclusive_lock(results, "--results"):
        result = _optimized(options)
        if results is not None:
            result.write_results(results)
        if out is not None:
            result.write(out)
    return result


def _optimized(options: OptimizeOptions) -> OptimizeResult:
    check_trackers(options.track)
    on_ray = ray_options(options.ray, options.workers)
    inputs = _inputs(options)
    space = search_space_of(options.policies, options.engine, inputs)
    check_has_trials(space, options.trials, options.seed, options.storage)
    trials = TRIALS if options.trials is None else options.trials
    seed, known = SEED if options.seed is None else options.seed, None
    if options.sums is not None:
        check_one_step(space, options.halving, "--sums")
        known = known_sums(Path(options.sums), inputs)
    asked = {name: getattr(options, name) for name in ("engine", "halving")}
    asked |= {"policies": list(options.policies), "trials": trials, "seed": seed}
    with (
        tracking(options.track, "optimize", lambda: asked | _tracked_settings(inputs)) as tracker,
        workers_on(on_ray, options.threads) as workers,
    ):
        steps, run = itertools.count(), SearchOptions(workers, options.progress)
        noted = replace(run, note=lambda numbers: tracker.numbers(numbers, next(steps)))
        points, num_tried = run_trials(space, inputs, trials, seed, options.storage, noted)
        dev = search(space, points, inputs.dev, inputs.objective, options.halving, noted, known)
        best = dev.best(inputs.objective)
        evaluation = search(space, [*points, best], inputs.evaluation, inputs.objective, options.halving, run, known)
        num_searched = len(space.points) + num_tried
        result = report_choice(inputs, space, points, num_searched, dev, evaluation, run)
        _track(result, tracker)
    return result


def _inputs(options: OptimizeOptions) -> SearchInputs:
    costs = paths(options.cost)
    chosen_on, judged = (
        (options.trace, None) if options.dev_trace is None else (options.dev_trace, opened(options.trace, costs))
    )
    return search_inputs(
        opened(chosen_on, costs), judged, costs, options.draft_set, options.objective, options.node_cap
    )


def _tracked_settings(inputs: SearchInputs) -> dict[str, object]:
    """Everything that trackers are told of a search at its start: what it reads, by ids, and versions."""
    sides = {
        side.name: {
            "trace": side.trace.location,
            "text_id": side.trace.text_id,
            "draft_set": side.draft,
            "draft_id": side.trace.draft_ids[side.draft],
            "prompts": len(side.prompts),
        }
        for side in (inputs.dev, inputs.evaluation)
    }
    return {
        **sides,
        "objective": inputs.objective,
        "node_cap": inputs.node_cap,
        "cost_ids": [price.cost_id for price in inputs.dev.prices],
        "versions": {"simlab": VERSION},
    }


def _track(result: OptimizeResult, tracker: Tracker) -> None:
    """Give trackers the figures of the finalists, and the files that `OptimizeResult` writes."""
    if not tracker.is_asked:
        return
    tracker.results({"searched": result.optimum.searched, "rows": result.to_json()["rows"]})
    with TemporaryDirectory() as folder:
        choice, rows = Path(folder) / "optimize.json", Path(folder) / "results.parquet"
        result.write(choice)
        result.write_results(rows)
        tracker.files(choice, rows)


@dataclass(frozen=True, slots=True)
class SummedPart:
    """What one machine did of a search.

    Attributes:
        path: of the file of sums.
        part: which part of the prompts.
        policies: how many were searched.
        prompts: how many prompts of both sides this part has.
    """

    path: Path
    part: Part
    policies: int
    prompts: int

    def to_json(self) -> dict[str, object]:
        """The value of ``simlab optimize --shard --json``."""
        return {"path": str(self.path), "part": str(self.part), "policies": self.policies, "prompts": self.prompts}

    def text(self) -> str:
        """What ``simlab optimize --shard`` prints."""
        lines = [f"Sums of {self.policies:,} policies on {self.prompts:,} prompts, part {self.part}: {self.path}"]
        if not self.part.is_whole:
            lines.append("Put all parts together with `simlab merge PART PART ... --out SUMS`.")
        lines.append("Then choose: the same `simlab optimize`, with --sums SUMS in place of --shard.")
        return "\n".join(lines)


@study(OptimizeOptions)
def sum_part(options: OptimizeOptions) -> SummedPart:
    """Do one machine's part of a search: what all policies come to on some of the prompts of both sides."""
    if options.sums is None or options.shard is None:
        raise UsageError("--shard makes one part of the sums of a search; name their file with --sums FILE")
    for name in ("out", "results", "trials", "seed", "storage"):
        if getattr(options, name) is not None:
            raise UsageError(
                f"--{name} belongs to the choice, and --shard only sums up; give it with --sums afterwards"
            )
    with as_usage_error():
        part = parse_part(options.shard) if isinstance(options.shard, str) else options.shard
    with exclusive_lock(Path(options.sums), "--sums"):
        return _summed(options, part, Path(options.sums))


def _summed(options: OptimizeOptions, part: Part, path: Path) -> SummedPart:
    inputs = _inputs(options)
    space = search_space_of(options.policies, options.engine, inputs)
    on_ray = ray_options(options.ray, options.workers)
    check_one_step(space, options.halving, "--shard")
    rows, num_prompts = [], 0
    with workers_on(on_ray, options.threads) as workers:
        for side in (inputs.dev, inputs.evaluation):
            own = part.neighbours(len(side.prompts))
            sums = sums_on(space.points, side, SearchOptions(workers, options.progress), own)
            rows.append(sum_rows(side, space.points, sums))
            num_prompts += len(own)
    write_sums(path, pl.concat(rows), NotedPart(part, shared_by_parts(inputs)))
    return SummedPart(path, part, len(space.points), num_prompts)
