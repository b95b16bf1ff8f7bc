"""What ``simlab optimize`` says of its choice: finalists on both sets of prompts, the verdict, the optimism."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata

from simlab.analysis.optimize.candidate_sums import best_places, objective_figures
from simlab.analysis.optimize.finalists import (
    FinalistFigures,
    FinalistVerdict,
    choose_finalists,
    judge_finalists,
    optimism_figures,
    share_of_draws_best,
)
from simlab.analysis.table.prompt_sums import PolicyRun
from simlab.analysis.table.summaries import Summary, summarise
from simlab.arrays import Doubles
from simlab.policies.parsing.parse import parse_policies
from simlab.studies.inputs.priced_policies import PricedPolicies
from simlab.studies.optimize.inputs import PromptSet, SearchInputs
from simlab.studies.optimize.search import SearchOptions, SearchOutcome
from simlab.studies.optimize.space import CHAIN, PLAIN, TREES, SearchPoint, is_reference
from simlab.studies.replay.run import ReplayRun, replay_trace
from simlab.traces.artefacts.optimum import ChosenPolicy, Optimum, Scalar
from simlab.traces.results.rows import Results, results_at

BEST, RIVAL, REFERENCE, BOUND = "best", "rival", "reference", "bound"

_SPEEDUP = ("speedup", "speedup_ci_low", "speedup_ci_high", "speedup_price_low", "speedup_price_high")
_DEV = ("acceptance_length", "nodes_per_round", "tokens_per_s", *_SPEEDUP)
_EVALUATION = (
    "acceptance_length",
    "acceptance_length_ci_low",
    "acceptance_length_ci_high",
    "acceptance_length_macro",
    "nodes_per_round",
    "tokens_per_s",
    *_SPEEDUP,
)


@dataclass(frozen=True, slots=True)
class PolicyChoice:
    """The choice, and what its tables are made of.

    Attributes:
        optimum: for the file.
        standing: on the evaluation prompts.
        results: result rows of the finalists there.
        summaries: of these, for each machine.
        in_sample: labels of finalists whose tables or counts were made from the dev texts, and from the others.
    """

    optimum: Optimum
    standing: FinalistVerdict
    results: Results
    summaries: tuple[tuple[Summary, ...], ...]
    in_sample: tuple[tuple[str, ...], tuple[str, ...]]


def report_choice(
    inputs: SearchInputs, dev: SearchOutcome, evaluation: SearchOutcome, num_searched: int, options: SearchOptions
) -> PolicyChoice:
    """The choice on dev, reported on evaluation.

    Args:
        inputs: what was asked for.
        dev: the search on the dev prompts.
        evaluation: the same search on the evaluation prompts, which only the optimism is read from.
        num_searched: policies that were tried.
        options: threads.
    """
    values = objective_figures(dev.sums, inputs.objective)
    references = _references(dev, values)
    places = choose_finalists(dev.sums, values, [one.entry for one in dev.points], references)
    finalists = [dev.points[place] for place in places]
    rows, in_sample = zip(*(_rows(side, finalists, options) for side in (inputs.dev, inputs.evaluation)), strict=True)
    on_dev, machines = (
        [_runs(side, number, finalists, part) for number in range(len(inputs.dev.prices))]
        for side, part in zip((inputs.dev, inputs.evaluation), rows, strict=True)
    )
    standing = judge_finalists(machines, inputs.objective)
    best = ChosenPolicy(finalists[0].typed, finalists[0].policies[0].policy_id)
    cost_ids = tuple(one.cost_id for one in inputs.dev.prices if one.cost_id is not None)
    optimum = Optimum(
        simlab_version=metadata.version("simlab"),
        objective=inputs.objective,
        node_cap=inputs.node_cap,
        cost_ids=cost_ids,
        chosen_on=inputs.dev.read_from(),
        reported_on=inputs.evaluation.read_from(),
        searched=num_searched,
        winner=best if standing.wins else None,
        best=best,
        verdict=standing.verdict,
        optimism=_optimism(inputs, dev, evaluation, places[0]),
        run=tuple(one.typed for one in finalists if one.entry != PLAIN or one is finalists[0]),
        rows=tuple(_finalist_rows(inputs, finalists, rows, standing)),
        share_of_draws_best=share_of_draws_best(on_dev, inputs.objective),
    )
    summaries = tuple(tuple(_summaries(rows[1], one.cost_id)) for one in inputs.evaluation.prices)
    return PolicyChoice(optimum, standing, rows[1], summaries, in_sample)


def _references(dev: SearchOutcome, values: Doubles) -> list[int]:
    """Places of the best of each reference."""
    order = best_places(dev.sums, values)
    firsts = (next((place for place in order if dev.points[place].entry == at), None) for at in (CHAIN, PLAIN, TREES))
    return [place for place in firsts if place is not None]


def _rows(side: PromptSet, finalists: Sequence[SearchPoint], options: SearchOptions) -> tuple[Results, tuple[str, ...]]:
    """Result rows of the finalists and the bounds on the prompts of a side; which finalists know its texts."""
    asked: list[PricedPolicies] = []
    in_sample: list[str] = []
    for prices, artefacts in zip(side.prices, side.artefacts, strict=True):
        policies = tuple(parse_policies([one.typed for one in finalists], artefacts))
        in_sample += artefacts.in_sample(policies)
        asked.append(PricedPolicies(prices, policies))
    rows = replay_trace(
        side.trace, side.draft, asked, None, ReplayRun(options.workers, options.progress, best_budgets=False)
    )
    wanted = side.sequences()
    return rows.filter(rows["sequence"].is_in(list(wanted))), tuple(dict.fromkeys(in_sample))


def _runs(side: PromptSet, machine: int, finalists: Sequence[SearchPoint], rows: Results) -> list[PolicyRun]:
    """The finalists at one machine's prices."""
    priced = results_at(rows, side.prices[machine].cost_id)
    plain = priced.filter(priced["name"] == "ar")
    labels = [one.policies[machine].label for one in finalists]
    return [PolicyRun(label, priced.filter(priced["policy"] == label), plain) for label in labels]


def _summaries(rows: Results, cost_id: str | None) -> list[Summary]:

    return summarise(results_at(rows, cost_id))


def _optimism(inputs: SearchInputs, dev: SearchOutcome, evaluation: SearchOutcome, best: int) -> Mapping[str, Scalar]:

    chain = next(place for place, one in enumerate(dev.points) if one.entry == CHAIN)
    own = SearchOutcome((dev.points[best], dev.points[chain]), dev.sums.take([best, chain]), ())
    dev_values = objective_figures(own.sums, inputs.objective)
    there = objective_figures(evaluation.sums, inputs.objective)
    first = best_places(evaluation.sums, there)[0]
    known = {one.typed: float(value) for one, value in zip(evaluation.points, there, strict=True)}
    chosen, reference = (
        FinalistFigures(one.typed, float(value), known[one.typed])
        for one, value in zip(own.points, dev_values, strict=True)
    )
    typed = evaluation.points[first].typed
    return optimism_figures(chosen, reference, FinalistFigures(typed, float("nan"), known[typed]))


def _finalist_rows(
    inputs: SearchInputs, finalists: Sequence[SearchPoint], rows: Sequence[Results], standing: FinalistVerdict
) -> list[dict[str, Scalar]]:
    """A row for each finalist and bound at each machine's prices."""
    against = {one.second: one for one in standing.comparisons}
    found: list[dict[str, Scalar]] = []
    for machine, prices in enumerate(inputs.dev.prices):
        labels = {one.policies[machine].label: place for place, one in enumerate(finalists)}
        both = zip(*(_summaries(part, prices.cost_id) for part in rows), strict=True)
        for dev, evaluation in both:
            place = labels.get(evaluation.policy)
            one = against.get(evaluation.policy)
            held = {} if one is None or machine else one.row()
            found.append(
                {
                    "policy": evaluation.policy if place is None else finalists[place].typed,
                    "policy_id": evaluation.policy_id,
                    "role": _role(finalists, place),
                    "cost_id": prices.cost_id,
                    **{f"dev_{name}": dev.row()[name] for name in _DEV},
                    **{f"evaluation_{name}": evaluation.row()[name] for name in _EVALUATION},
                    "measure": held.get("measure"),
                    "best_over_this": held.get("ratio"),
                    "best_over_this_ci_low": held.get("ratio_ci_low"),
                    "best_over_this_ci_high": held.get("ratio_ci_high"),
                    "best_over_this_price_low": held.get("ratio_price_low"),
                    "best_over_this_price_high": held.get("ratio_price_high"),
                    "p_adjusted": held.get("p_adjusted"),
                    "detectable": held.get("detectable"),
                    "differs": held.get("differs"),
                }
            )
    return found


def _role(finalists: Sequence[SearchPoint], place: int | None) -> str:
    if place is None:
        return BOUND
    if place == 0:
        return BEST
    return REFERENCE if is_reference(finalists[place]) else RIVAL
