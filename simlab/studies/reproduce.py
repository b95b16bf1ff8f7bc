"""Reproductions that replay a trace."""

import argparse
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from simlab.errors import CostError, TraceError, UsageError
from simlab.studies.inputs.asked import Asked, first_prompts, replay_prices
from simlab.studies.inputs.shelf import CommandShelf, in_sample_note
from simlab.studies.replay.run import Manner, replay_trace

if TYPE_CHECKING:
    from simlab.analysis.reproduce.checks import SetupCheck
    from simlab.analysis.reproduce.published import PublishedStudy
    from simlab.analysis.table.prompt_sums import PolicyRun
    from simlab.policies.parsing.parse import NamedPolicy
    from simlab.studies.inputs.prices import Prices
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


def averaging(options: argparse.Namespace, one: "PublishedStudy") -> tuple[str, Mapping[str, object]]:
    """Both means of policies on each trace, and of the released rounds."""
    from simlab.analysis.compare.averaging import both_means, find_ranking_flips
    from simlab.analysis.reproduce.released_rounds import read_released, run_of_rounds
    from simlab.analysis.reproduce.text import averaging_text, published_means_text, study_heading
    from simlab.traces.reader import open_trace, packaged_trace

    parts, rows, turned = [study_heading(one), published_means_text()], [], []
    sampled: list[str] = []
    for trace in [open_trace(packaged_trace()), *(open_trace(place) for place in options.trace or ())]:
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


def _runs(trace: "Trace", options: argparse.Namespace) -> "tuple[list[PolicyRun], tuple[str, ...]]":
    from simlab.analysis.table.prompt_sums import PolicyRun
    from simlab.policies.parsing.parse import parse_policies

    draft = trace.draft_name(options.draft)
    shelf = CommandShelf(replay_prices(None, trace, draft, [], options.limit), trace, draft)
    policies = parse_policies(options.policy or _AVERAGED, shelf)
    rows = _replayed(trace, draft, policies, options, None)
    found = [rows.filter(rows["policy"] == one.label) for one in policies]
    runs = [PolicyRun(one.label, own, own.clear()) for one, own in zip(policies, found, strict=True)]
    return runs, shelf.in_sample(policies)


def chain_of_trace(options: argparse.Namespace, one: "PublishedStudy") -> tuple[str, Mapping[str, object]]:
    """The whole chain on a trace, beside a published figure."""
    from simlab.analysis.reproduce.rows import reproduce_figures
    from simlab.analysis.reproduce.text import checks_text, figures_text, study_heading
    from simlab.policies.parsing.parse import parse_policies
    from simlab.traces.reader import open_trace

    trace = open_trace(options.trace[0])
    draft = trace.draft_name(options.draft)
    rows = _replayed(trace, draft, parse_policies(["ar", "chain"]), options, None)
    figures = reproduce_figures(one, rows, {"chain": "chain"})
    checks = _checks(one, trace, draft, options.limit)
    parts = [f"{study_heading(one)}\n{_ours(trace)}", figures_text(figures), checks_text(checks)]
    values = {"text_id": trace.text_id, "rows": [each.row() for each in figures], **_checked(checks)}
    return "\n\n".join(parts), values


def trees_of_traces(options: argparse.Namespace, one: "PublishedStudy") -> tuple[str, Mapping[str, object]]:
    """The chain and the tree whose budget was fastest on dev prompts, beside published figures."""
    from simlab.analysis.reproduce.rows import GRID, budget_figures, fastest_budget, reproduce_figures
    from simlab.analysis.reproduce.text import budgets_text, checks_text, figures_text, study_heading
    from simlab.policies.parsing.parse import parse_policies
    from simlab.traces.reader import open_trace

    trace, dev = open_trace(options.trace[0]), open_trace(options.dev_trace)
    draft, dev_draft = trace.draft_name(options.draft), dev.draft_name(options.draft)
    _check_disjoint(trace, dev, options.limit)
    _check_alike(trace, draft, dev, dev_draft)
    prices = replay_prices(options.cost, trace, draft, [], options.limit)
    if prices.cost is None:
        raise CostError(f"the budget is chosen by its speed, which needs prices. {prices.why_none}")
    exact = min(each.manifest.draft_sets[name].exact_budget for each, name in ((trace, draft), (dev, dev_draft)))
    reach = min(exact, prices.cost.most_drafted)
    grid = [budget for budget in GRID if budget <= reach]
    if not grid:
        raise UsageError(f"the smallest budget is {GRID[0]}; traces and prices reach {reach} drafted tokens")
    trees = [f"ddtree:budget={budget}" for budget in grid]
    policies = parse_policies(["ar", "chain", *trees])
    prices = replay_prices(options.cost, trace, draft, policies, options.limit)
    dev_prices = replay_prices(options.cost, dev, dev_draft, policies, options.limit)
    if prices.cost is None or dev_prices.cost is None:
        raise CostError(prices.why_none or dev_prices.why_none)
    on_dev = budget_figures(_replayed(dev, dev_draft, policies, options, dev_prices), trees)
    rows = _replayed(trace, draft, policies, options, prices)
    here = budget_figures(rows, trees)
    chosen, optimistic = fastest_budget(on_dev).policy, fastest_budget(here).policy
    figures = reproduce_figures(one, rows, {"chain": "chain", "ddtree": chosen})
    checks = [*_checks(one, trace, draft, options.limit), _grid_check(grid, GRID)]
    parts = [
        f"{study_heading(one)}\n{_ours(trace)}\ndev      {dev.place} (text {dev.text_id})\nprices   {prices.heading}",
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
    trace: "Trace", draft: str, policies: "Sequence[NamedPolicy]", options: argparse.Namespace, prices: "Prices | None"
) -> "Results":
    from simlab.studies.inputs.prices import Prices

    if not any(len(record.text) > 1 for record in trace.sequences()):
        raise TraceError(f"{trace.place} holds no rounds, so there is nothing to reproduce")
    asked = Asked(Prices(None, "none", "") if prices is None else prices, tuple(policies))
    return replay_trace(trace, draft, [asked], options.limit, Manner(None, options.progress, best_budgets=False))


def _checks(one: "PublishedStudy", trace: "Trace", draft: str, limit: int | None) -> "list[SetupCheck]":
    from simlab.analysis.reproduce.checks import checks_of_trace

    prompts = [trace.sequences()[index].prompt for index in first_prompts(trace, limit)]
    names = {(prompt.dataset, prompt.prompt_id) for prompt in prompts}
    return checks_of_trace(one, trace.manifest, draft, (prompt.dataset for prompt in prompts), len(names))


def _grid_check(grid: Sequence[int], theirs: Sequence[int]) -> "SetupCheck":
    from simlab.analysis.reproduce.checks import DIFFERS, EQUAL, SetupCheck

    shown = ["/".join(map(str, some)) for some in (theirs, grid)]
    return SetupCheck("budgets tried", shown[0], shown[1], EQUAL if shown[0] == shown[1] else DIFFERS)


def _checked(checks: "Sequence[SetupCheck]") -> dict[str, object]:
    from simlab.analysis.reproduce.checks import DIFFERS

    return {
        "checks": [each.row() for each in checks],
        "differing": [each.what for each in checks if each.state == DIFFERS],
    }


def _check_disjoint(trace: "Trace", dev: "Trace", limit: int | None) -> None:
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


def _check_alike(trace: "Trace", draft: str, dev: "Trace", dev_draft: str) -> None:
    first, second = trace.manifest, dev.manifest
    kept, other = first.draft_sets[draft], second.draft_sets[dev_draft]
    is_same = first.target.is_same(second.target) and kept.model.is_same(other.model)
    if not is_same or kept.block_size != other.block_size:
        raise UsageError(f"{trace.place} and {dev.place} are of different models or blocks; expected the same of both")


def _optimism(chosen: str, optimistic: str) -> str:
    if chosen == optimistic:
        return "Chosen on the evaluation prompts, as theirs was, it would be the same budget."
    return f"Chosen on the evaluation prompts, as theirs was, it would be {optimistic}."


def _ours(trace: "Trace") -> str:
    return f"ours     {trace.place} (text {trace.text_id})"
