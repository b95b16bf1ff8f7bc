"""A policy and its settings, chosen on some prompts and reported once on others."""

import itertools
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from tempfile import TemporaryDirectory

import polars as pl

from simlab.analysis.optimize.text import finalist_table, optimism_text, price_text
from simlab.analysis.table.text import summary_notes, summary_table, within_width
from simlab.errors import UsageError, as_usage_error
from simlab.options import paths, study
from simlab.studies.inputs.artefacts import in_sample_note
from simlab.studies.inputs.trace import opened
from simlab.studies.optimize.inputs import SearchInputs, search_inputs
from simlab.studies.optimize.options import OptimizeOptions
from simlab.studies.optimize.report import PolicyChoice, report_choice
from simlab.studies.optimize.search import SearchOptions, SumsOfPolicies, at_the_ends, search
from simlab.studies.optimize.space import SearchPoint, SearchSpace, search_space_of
from simlab.studies.optimize.sums import check_one_step, known_sums, searched_part, sum_rows
from simlab.studies.optimize.trials import plan_of, run_trials
from simlab.studies.result import StudyResult
from simlab.traces.artefacts.optimum import Optimum, write_optimum
from simlab.traces.results.files import write_results
from simlab.traces.results.rows import Results
from simlab.traces.results.sums import write_sums
from simlab.tracking.tracker import Tracker, check_trackers, tracking
from simlab.workers.on_ray import ray_options, workers_on
from simlab.workers.parts import Part, parse_part


@dataclass(frozen=True, eq=False, repr=False)
class OptimizeResult(StudyResult):
    """The choice, its rivals on both sets of prompts, and the verdict.

    Attributes:
        inputs: the prompts, prices and objective.
        space: what was searched.
        trials: the best policies of trials of ranges.
        choice: what came out.
        steps: policies and prompts of each step of the search on dev.
    """

    inputs: SearchInputs
    space: SearchSpace
    trials: tuple[SearchPoint, ...]
    choice: PolicyChoice
    steps: tuple[tuple[int, int], ...]

    @property
    def optimum(self) -> Optimum:
        """What `write` writes and ``simlab confirm --from`` reads."""
        return self.choice.optimum

    @property
    def results(self) -> Results:
        """Result rows of the finalists on the evaluation prompts."""
        return self.choice.results

    def to_json(self) -> dict[str, object]:
        """The value of ``simlab optimize --json``: the file, and what only this search knows."""
        extra: dict[str, object] = {
            "in_sample_on_dev": list(self.choice.in_sample[0]),
            "in_sample_on_evaluation": list(self.choice.in_sample[1]),
            "at_the_ends": self._ends(),
            "left_out": list(self.space.left_out),
            "split": self.inputs.split,
        }
        return self.optimum.to_json() | extra

    def text(self) -> str:
        """The verdict and the tables as ``simlab optimize`` prints them."""
        evaluation, choice = self.inputs.evaluation, self.choice
        parts = [within_width(self._heading()), self.optimum.verdict, finalist_table(self.optimum)]
        parts += filter(None, [price_text(self.optimum)])
        for prices, summaries in zip(evaluation.prices, choice.summaries, strict=True):
            heading = within_width(f"evaluation prompts, latency profile {prices.heading}")
            parts.append(f"{heading}\n{summary_table(summaries)}")
        parts.append(optimism_text(self.optimum))
        parts.append(self._notes())
        return "\n\n".join([*parts, *self._warnings()])

    def write(self, path: str | Path) -> None:
        """Write the choice, for ``simlab confirm --from``."""
        write_optimum(Path(path), self.optimum)

    def write_results(self, path: str | Path) -> None:
        """Write the finalists' result rows on the evaluation prompts."""
        write_results(Path(path), self.results, self.inputs.evaluation.trace.sequence_counts)

    def _notes(self) -> str:
        """What to know of the numbers of all machines."""
        prices = self.inputs.evaluation.prices
        said = {one.speedup_note for one in prices}
        each = "\n".join(f"{one.cost_id}: {one.speedup_note}" for one in prices)
        return summary_notes(self.choice.summaries[0], prices[0].why_none, said.pop() if len(said) == 1 else each)

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
        ]
        if len(self.steps) > 1:
            lines[-1] += "; " + ", ".join(f"{num:,} on {prompts} prompts" for num, prompts in self.steps)
        if space.capped:
            lines.append(f"left out     {space.capped:,} policies that draft more")
        return "\n".join([*lines, *([inputs.split] if inputs.split else [])])

    def _ends(self) -> list[str]:
        points = [*self.space.points, *self.trials]
        return at_the_ends(next(one for one in points if one.typed == self.optimum.best.policy), points)

    def _warnings(self) -> list[str]:
        lines = [f"At an end: {one}; search further." for one in self._ends()]
        on_dev, on_evaluation = self.choice.in_sample
        if on_dev:
            lines.append(
                f"In sample on dev: {', '.join(on_dev)}. Tables or counts of theirs were made from the dev texts, so "
                "their dev figures are too high; those on evaluation prompts are not."
            )
        if on_evaluation:
            lines.append(in_sample_note(on_evaluation))
        if self.space.left_out:
            lines.append("Not searched:\n" + "\n".join(f"  {one}" for one in self.space.left_out))
        return lines


@study(OptimizeOptions)
def optimize(options: OptimizeOptions) -> OptimizeResult:
    """Choose a policy and its settings on the prompts of one trace, and report the choice on those of another.

    Raises:
        SimlabError: something is not there, or does not fit the rest.
    """
    if options.shard is not None:
        raise UsageError("--shard sums up a part of a search, which `sum_part` does; leave it out")
    check_trackers(options.track)
    on_ray = ray_options(options.ray, options.workers)
    inputs = _inputs(options)
    space = search_space_of(options.policies, inputs)
    plan, known = plan_of(options.trials, options.seed, options.storage, space), None
    if options.sums is not None:
        check_one_step(space, options.halving, "--sums")
        known = known_sums(Path(options.sums), inputs)
    asked = {"policies": list(options.policies), "halving": options.halving, "trials": plan.trials, "seed": plan.seed}
    with (
        tracking(options.track, "optimize", lambda: asked | _tracked_settings(inputs)) as tracker,
        workers_on(on_ray, options.threads) as what,
    ):
        steps, run = itertools.count(), SearchOptions(what, options.progress)
        noted = replace(run, note=lambda numbers: tracker.numbers(numbers, next(steps)))
        points, num_tried = run_trials(space, inputs, plan, noted)
        dev = search(space, points, inputs.dev, inputs.objective, options.halving, noted, known)
        best = dev.best(inputs.objective)
        evaluation = search(space, [*points, best], inputs.evaluation, inputs.objective, options.halving, run, known)
        choice = report_choice(inputs, dev, evaluation, len(space.points) + num_tried, run)
        result = OptimizeResult(inputs, space, tuple(points), choice, dev.steps)
        _track(result, tracker)
    if options.results is not None:
        result.write_results(options.results)
    if options.out is not None:
        result.write(options.out)
    return result


def _inputs(options: OptimizeOptions) -> SearchInputs:
    chosen_on, judged = (
        (options.trace, None) if options.dev_trace is None else (options.dev_trace, opened(options.trace))
    )
    costs = paths(options.cost)
    return search_inputs(opened(chosen_on), judged, costs, options.draft_set, options.objective, options.node_cap)


def _tracked_settings(inputs: SearchInputs) -> dict[str, object]:
    """Everything that trackers are told of a search at its start: what it reads, by ids, and versions."""
    sides = {
        side.name: {
            "trace": side.trace.place,
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
        "cost_ids": [one.cost_id for one in inputs.dev.prices],
        "versions": {"simlab": metadata.version("simlab")},
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
    inputs = _inputs(options)
    space, on_ray = search_space_of(options.policies, inputs), ray_options(options.ray, options.workers)
    check_one_step(space, options.halving, "--shard")
    everything, rows, num_prompts = range(len(space.points)), [], 0
    with workers_on(on_ray, options.threads) as what:
        for side in (inputs.dev, inputs.evaluation):
            own = part.neighbours(len(side.prompts))
            found = SumsOfPolicies(space.points, side, SearchOptions(what, options.progress))(everything, own)
            rows.append(sum_rows(side, space.points, found))
            num_prompts += len(own)
    write_sums(Path(options.sums), pl.concat(rows), searched_part(part, inputs))
    return SummedPart(Path(options.sums), part, len(space.points), num_prompts)
