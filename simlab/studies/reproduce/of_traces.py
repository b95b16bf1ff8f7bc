"""Figures that need traces of our own: acceptance lengths, both means, and budgets that are chosen on dev prompts."""

from collections.abc import Mapping, Sequence

from simlab.analysis.compare.averaging import both_means, find_ranking_flips
from simlab.analysis.reproduce.checks import DIFFERS, EQUAL, SetupCheck, checks_of_trace
from simlab.analysis.reproduce.published import PublishedStudy
from simlab.analysis.reproduce.released_rounds import read_released, run_of_rounds
from simlab.analysis.reproduce.rows import GRID, budget_figures, fastest_budget, reproduce_figures
from simlab.analysis.reproduce.text import (
    averaging_text,
    budgets_text,
    checks_text,
    figures_text,
    missing_text,
    published_means_text,
    study_heading,
)
from simlab.analysis.table.prompt_sums import PolicyRun
from simlab.errors import CostError, TraceError, UsageError
from simlab.policies.parsing.parse import NamedPolicy, parse_policies
from simlab.studies.inputs.artefacts import PricedPolicies, TraceArtefacts, in_sample_note, largest_budget
from simlab.studies.inputs.prices import Prices, no_prices, prices_for_trace
from simlab.studies.inputs.trace import first_prompts, opened, sample_trace
from simlab.studies.replay.run import ReplayRun, replay_trace
from simlab.studies.reproduce.options import ReproduceOptions
from simlab.traces.reader import Trace
from simlab.traces.results.rows import Results

_AVERAGED = (
    "chain",
    "adaflash",
    "spine-gap:budget=8/16",
    "expand-parent:budget=8/16",
    "survival:budget=64",
    "ddtree:budget=8/16/32/64",
)
"""Policies whose two means are taken where none is named; none needs a fitted table."""


def of_trace(options: ReproduceOptions, one: PublishedStudy) -> tuple[str, Mapping[str, object]]:
    """A figure that needs a trace of its models, as text and as values.

    Raises:
        UsageError: there is none; its notes say what makes one.
    """
    if not options.traces or (one.name != "zlab-166" and options.dev_trace is None):
        refusal = UsageError(missing_text(one))
        for command in one.commands:
            refusal.add_note(command)
        raise refusal
    return _chain_of_trace(options, one) if one.name == "zlab-166" else _trees_of_traces(options, one)


def averaging(options: ReproduceOptions, one: PublishedStudy) -> tuple[str, Mapping[str, object]]:
    """Both means of policies on each trace, and of the released rounds, as text and as values."""
    parts, rows, turned = [study_heading(one), published_means_text()], [], []
    sampled: list[str] = []
    for trace in [sample_trace(), *(opened(one) for one in options.traces)]:
        runs, in_sample = _runs(trace, options)
        means, flipped = [both_means(run) for run in runs], find_ranking_flips(runs)
        parts.append(averaging_text(trace.place, means, flipped))
        rows += [{"place": trace.place, "text_id": trace.text_id, **each.row()} for each in means]
        turned += [{"place": trace.place, "text_id": trace.text_id, **each.row()} for each in flipped]
        sampled += in_sample
    released = both_means(run_of_rounds(read_released(), "as released"))
    parts.append(averaging_text("rounds of DDTree++", [released], []).rstrip())
    rows.append({"place": "ddtreepp-rounds", "text_id": None, **released.row()})
    if sampled:
        parts.append(in_sample_note(tuple(dict.fromkeys(sampled))))
    return "\n\n".join(parts), {"rows": rows, "flips": turned, "in_sample": list(dict.fromkeys(sampled))}


def _runs(trace: Trace, options: ReproduceOptions) -> tuple[list[PolicyRun], tuple[str, ...]]:

    draft = trace.draft_name(options.draft)
    artefacts = TraceArtefacts(prices_for_trace(None, trace, draft, options.limit), trace, draft)
    policies = parse_policies(options.policies or _AVERAGED, artefacts)
    rows = _replayed(trace, draft, policies, options, None)
    found = [rows.filter(rows["policy"] == one.label) for one in policies]
    runs = [PolicyRun(one.label, own, own.clear()) for one, own in zip(policies, found, strict=True)]
    return runs, artefacts.in_sample(policies)


def _chain_of_trace(options: ReproduceOptions, one: PublishedStudy) -> tuple[str, Mapping[str, object]]:
    """The whole chain on a trace, beside a published figure."""
    trace = opened(options.traces[0])
    draft = trace.draft_name(options.draft)
    rows = _replayed(trace, draft, parse_policies(["ar", "chain"]), options, None)
    figures = reproduce_figures(one, rows, {"chain": "chain"})
    checks = _checks(one, trace, draft, options.limit)
    parts = [f"{study_heading(one)}\n{_ours(trace)}", figures_text(figures), checks_text(checks)]
    values = {"text_id": trace.text_id, "rows": [each.row() for each in figures], **_checked(checks)}
    return "\n\n".join(parts), values


def _trees_of_traces(options: ReproduceOptions, one: PublishedStudy) -> tuple[str, Mapping[str, object]]:
    """The chain and the tree whose budget was fastest on dev prompts, beside published figures."""
    trace, dev = opened(options.traces[0]), opened(options.dev_trace)
    draft, dev_draft = trace.draft_name(options.draft), dev.draft_name(options.draft)
    _check_disjoint(trace, dev, options.limit)
    _check_alike(trace, draft, dev, dev_draft)
    prices = prices_for_trace(options.cost, trace, draft, options.limit)
    if prices.cost is None:
        raise CostError(f"the budget is chosen by its speed, which needs a latency profile. {prices.why_none}")
    exact = min(each.manifest.draft_sets[name].exact_budget for each, name in ((trace, draft), (dev, dev_draft)))
    reach = min(exact, prices.cost.most_drafted)
    grid = [budget for budget in GRID if budget <= reach]
    if not grid:
        raise UsageError(f"the smallest budget is {GRID[0]}; traces and latency profile reach {reach} drafted tokens")
    trees = [f"ddtree:budget={budget}" for budget in grid]
    policies = parse_policies(["ar", "chain", *trees])
    prices = prices.reaching(largest_budget(policies, trace.manifest.draft_sets[draft].depth))
    dev_prices = prices_for_trace(options.cost, dev, dev_draft, options.limit)
    dev_prices = dev_prices.reaching(largest_budget(policies, dev.manifest.draft_sets[dev_draft].depth))
    if prices.cost is None or dev_prices.cost is None:
        raise CostError(prices.why_none or dev_prices.why_none)
    on_dev = budget_figures(_replayed(dev, dev_draft, policies, options, dev_prices), trees)
    rows = _replayed(trace, draft, policies, options, prices)
    here = budget_figures(rows, trees)
    chosen, optimistic = fastest_budget(on_dev).policy, fastest_budget(here).policy
    figures = reproduce_figures(one, rows, {"chain": "chain", "ddtree": chosen})
    checks = [*_checks(one, trace, draft, options.limit), _grid_check(grid, GRID)]
    parts = [
        f"{study_heading(one)}\n{_ours(trace)}\ndev      {dev.place} (text {dev.text_id})\nlatency  {prices.heading}",
        figures_text(figures),
        budgets_text(on_dev, "on dev prompts", chosen),
        budgets_text(here, "on evaluation prompts", chosen),
        _optimism(chosen, optimistic),
        checks_text(checks),
    ]
    values = {
        "text_id": trace.text_id,
        "dev_text_id": dev.text_id,
        "cost": prices.cost_id,
        "chosen": chosen,
        "chosen_on_evaluation": optimistic,
        "rows": [each.row() for each in figures],
        "dev_budgets": [each.row() for each in on_dev],
        "budgets": [each.row() for each in here],
        **_checked(checks),
    }
    return "\n\n".join(parts), values


def _replayed(
    trace: Trace, draft: str, policies: Sequence[NamedPolicy], options: ReproduceOptions, prices: Prices | None
) -> Results:

    if not any(len(record.text) > 1 for record in trace.sequences()):
        raise TraceError(f"{trace.place} holds no rounds, so there is nothing to reproduce")
    asked = PricedPolicies(no_prices() if prices is None else prices, tuple(policies))
    return replay_trace(trace, draft, [asked], options.limit, ReplayRun(progress=options.progress, best_budgets=False))


def _checks(one: PublishedStudy, trace: Trace, draft: str, limit: int | None) -> list[SetupCheck]:

    prompts = [trace.sequences()[index].prompt for index in first_prompts(trace, limit)]
    names = {(prompt.dataset, prompt.prompt_id) for prompt in prompts}
    return checks_of_trace(one, trace.manifest, draft, (prompt.dataset for prompt in prompts), len(names))


def _grid_check(grid: Sequence[int], theirs: Sequence[int]) -> SetupCheck:

    shown = ["/".join(map(str, some)) for some in (theirs, grid)]
    return SetupCheck("budgets tried", shown[0], shown[1], EQUAL if shown[0] == shown[1] else DIFFERS)


def _checked(checks: Sequence[SetupCheck]) -> dict[str, object]:

    return {
        "checks": [each.row() for each in checks],
        "differing": [each.what for each in checks if each.state == DIFFERS],
    }


def _check_disjoint(trace: Trace, dev: Trace, limit: int | None) -> None:
    """Refuse a budget that is chosen on prompts on which it is reported."""
    here, there = (
        {tuple(one.sequences()[index].prompt.token_ids.tolist()) for index in first_prompts(one, limit)}
        for one in (trace, dev)
    )
    shared = len(here & there)
    if shared:
        raise UsageError(
            f"{shared} prompts of --dev-trace are among those of --trace; choose the budget on others than those on "
            "which it is reported"
        )


def _check_alike(trace: Trace, draft: str, dev: Trace, dev_draft: str) -> None:
    first, second = trace.manifest, dev.manifest
    kept, other = first.draft_sets[draft], second.draft_sets[dev_draft]
    is_same = first.target.is_same(second.target) and kept.model.is_same(other.model)
    if not is_same or kept.block_size != other.block_size:
        raise UsageError(f"{trace.place} and {dev.place} are of different models or blocks; expected the same of both")


def _optimism(chosen: str, optimistic: str) -> str:
    if chosen == optimistic:
        return "Chosen on the evaluation prompts, as theirs was, it would be the same budget."
    return f"Chosen on the evaluation prompts, as theirs was, it would be {optimistic}."


def _ours(trace: Trace) -> str:
    return f"ours     {trace.place} (text {trace.text_id})"
