"""Figures that need traces of our own: acceptance lengths, both means, and budgets that are chosen on dev prompts."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict

import polars as pl

from simlab.analysis.compare.averaging import (
    MACRO,
    POOLED,
    BothMeans,
    RankingFlip,
    both_means,
    find_ranking_flips,
)
from simlab.analysis.compare.verdicts import measure_name
from simlab.analysis.statistics.intervals import Interval, finite, rough_intervals
from simlab.analysis.table.estimates import Estimate
from simlab.analysis.table.prompt_sums import PolicyRun
from simlab.analysis.table.summaries import BASELINE, speed_of
from simlab.analysis.table.text import is_known, number, with_interval
from simlab.errors import CostError, TraceError, UsageError
from simlab.options import path_or_none
from simlab.policies.parsing.parse import NamedPolicy, parse_policies
from simlab.studies.inputs.artefacts import PoliciesOnMachine, TraceArtefacts, in_sample_note, largest_budget
from simlab.studies.inputs.prices import Prices, no_prices, prices_for_trace
from simlab.studies.inputs.trace import first_prompts, opened, sample_trace
from simlab.studies.replay.run import ReplayRun, replay_trace
from simlab.studies.reproduce.ddtreepp_rounds import read_released, run_of_rounds
from simlab.studies.reproduce.options import ReproduceOptions
from simlab.studies.reproduce.published import AVERAGING, POOLED_OF_PRINTED, PublishedStudy
from simlab.studies.reproduce.released import Row, table
from simlab.traces.format.manifest import Manifest
from simlab.traces.reader import Trace
from simlab.traces.results.rows import Results

GRID = (16, 32, 64, 128, 256, 512, 1024)
"""The budgets that DDTree tries."""

EQUAL, DIFFERS, NOT_KNOWN, ON_PURPOSE = "equal", "differs", "not known", "on purpose"
"""Whether what must be equal is; on purpose: ours is meant to be another."""

_AVERAGED = (
    "chain",
    "adaflash",
    "spine-gap:budget=8/16",
    "expand-parent:budget=8/16",
    "survival:budget=64",
    "ddtree:budget=8/16/32/64",
)
"""Policies whose two means are taken where none is named; none needs a fitted table."""


def averaging(options: ReproduceOptions, study: PublishedStudy) -> tuple[str, Row]:
    """Both means of policies on each trace, and of the released rounds, as text and as values."""
    parts, rows, turned = [study.heading, _published_means_text()], [], []
    sampled: list[str] = []
    for trace in [sample_trace(), *map(opened, options.traces)]:
        draft = trace.draft_name(options.draft_set)
        artefacts = TraceArtefacts(prices_for_trace(None, trace, draft, options.limit), trace, draft)
        policies = parse_policies(options.policies or _AVERAGED, artefacts)
        replayed = _replayed(trace, draft, policies, options)
        runs = [_run(replayed, policy.label) for policy in policies]
        means, flips = [both_means(run) for run in runs], find_ranking_flips(runs)
        parts.append(_averaging_text(trace.location, means, flips))
        rows += [{"place": trace.location, "text_id": trace.text_id, **mean.row()} for mean in means]
        turned += [{"place": trace.location, "text_id": trace.text_id, **flip.row()} for flip in flips]
        sampled += artefacts.in_sample(policies)
    released = both_means(run_of_rounds(read_released(), "as released"))
    parts.append(_averaging_text("rounds of DDTree++", [released], []).rstrip())
    rows.append({"place": "ddtreepp-rounds", "text_id": None, **released.row()})
    in_sample = list(dict.fromkeys(sampled))
    parts += [in_sample_note(tuple(in_sample))] if in_sample else []
    return "\n\n".join(parts), {"rows": rows, "flips": turned, "in_sample": in_sample}


def chain_of_trace(options: ReproduceOptions, study: PublishedStudy) -> tuple[str, Row]:
    """The whole chain on a trace, beside a published figure, as text and as values."""
    if not options.traces:
        raise study.refusal(*study.commands)
    trace = opened(options.traces[0])
    draft = trace.draft_name(options.draft_set)
    rows = _replayed(trace, draft, parse_policies(["ar", "chain"]), options)
    figures = reproduced_figures(study, rows, {"chain": "chain"})
    checks = _checks(study, trace, draft, options.limit)
    parts = [f"{study.heading}\n{_ours(trace)}", _figures_text(figures), _checks_text(checks)]
    return "\n\n".join(parts), {"text_id": trace.text_id, "rows": figures, **_checked(checks)}


def trees_of_traces(options: ReproduceOptions, study: PublishedStudy) -> tuple[str, Row]:
    """The chain and the tree whose budget was fastest on dev prompts, beside published figures."""
    if not options.traces or options.dev_trace is None:
        raise study.refusal(*study.commands)
    trace, dev = opened(options.traces[0]), opened(options.dev_trace)
    draft, dev_draft = trace.draft_name(options.draft_set), dev.draft_name(options.draft_set)
    _check_disjoint(trace, dev, options.limit)
    _check_alike(trace, draft, dev, dev_draft)
    prices = prices_for_trace(path_or_none(options.cost), trace, draft, options.limit)
    if prices.cost is None:
        raise CostError(f"the budget is chosen by its speed, which needs a latency profile. {prices.no_latency_reason}")
    exact = min(
        recording.manifest.draft_sets[name].exact_budget for recording, name in ((trace, draft), (dev, dev_draft))
    )
    reach = min(exact, prices.cost.most_drafted)
    grid = [budget for budget in GRID if budget <= reach]
    if not grid:
        raise UsageError(f"the smallest budget is {GRID[0]}; traces and latency profile reach {reach} drafted tokens")
    trees = [f"ddtree:budget={budget}" for budget in grid]
    policies = parse_policies(["ar", "chain", *trees])
    prices = prices.reaching(largest_budget(policies, trace.manifest.draft_sets[draft].depth))
    dev_prices = prices_for_trace(path_or_none(options.cost), dev, dev_draft, options.limit)
    dev_prices = dev_prices.reaching(largest_budget(policies, dev.manifest.draft_sets[dev_draft].depth))
    if prices.cost is None or dev_prices.cost is None:
        raise CostError(prices.no_latency_reason or dev_prices.no_latency_reason)
    on_dev = [_budget_row(_replayed(dev, dev_draft, policies, options, dev_prices), tree) for tree in trees]
    rows = _replayed(trace, draft, policies, options, prices)
    here = [_budget_row(rows, tree) for tree in trees]
    # The smaller of equal budgets, since these stand first.
    chosen, optimistic = (max(rows, key=lambda row: row["tokens_per_s"])["policy"] for rows in (on_dev, here))
    figures = reproduced_figures(study, rows, {"chain": "chain", "ddtree": chosen})
    tried = ["/".join(map(str, sizes)) for sizes in (GRID, grid)]
    checks = [*_checks(study, trace, draft, options.limit), _check("budgets tried", *tried)]
    same = "the same budget" if chosen == optimistic else optimistic
    parts = [
        f"{study.heading}\n{_ours(trace)}\ndev      {dev.location} (text {dev.text_id})\nlatency  {prices.heading}",
        _figures_text(figures),
        _budgets_text(on_dev, "on dev prompts", chosen),
        _budgets_text(here, "on evaluation prompts", chosen),
        f"Chosen on the evaluation prompts, as theirs was, it would be {same}.",
        _checks_text(checks),
    ]
    values = {
        "text_id": trace.text_id,
        "dev_text_id": dev.text_id,
        "cost": prices.cost_id,
        "chosen": chosen,
        "chosen_on_evaluation": optimistic,
        "rows": figures,
        "dev_budgets": on_dev,
        "budgets": here,
        **_checked(checks),
    }
    return "\n\n".join(parts), values


def _replayed(
    trace: Trace, draft: str, policies: Sequence[NamedPolicy], options: ReproduceOptions, prices: Prices | None = None
) -> Results:
    if not any(len(record.text) > 1 for record in trace.sequences()):
        raise TraceError(f"{trace.location} holds no rounds, so there is nothing to reproduce")
    asked = PoliciesOnMachine(no_prices() if prices is None else prices, tuple(policies))
    replay = ReplayRun(progress=options.progress, best_budgets=False)
    return replay_trace(trace, draft, [asked], options.limit, replay)


def _run(rows: Results, label: str, plain: Results | None = None) -> PolicyRun:
    own = rows.filter(pl.col("policy") == label)
    return PolicyRun(label, own, own.clear() if plain is None else plain)


def _budget_row(rows: Results, policy: str) -> Row:
    """Both means and the predicted speed of a fixed budget; what is not known is None."""
    run = _run(rows, policy)
    means, speed = both_means(run), speed_of(run.rows, run.plain)
    numbers = {POOLED: means.pooled.value, MACRO: means.macro.value, "tokens_per_s": speed.tokens_per_s}
    return {"policy": policy, **{name: finite(value) for name, value in numbers.items()}}


def reproduced_figures(published: PublishedStudy, rows: Results, policies: dict[str, str]) -> list[Row]:
    """Each published figure beside that of our rows, and whether our interval holds theirs as it is rounded.

    Args:
        published: what they say.
        rows: result rows of autoregressive decoding and the policies.
        policies: which policy of the rows stands for each of theirs, by its name there.
    """
    figures = []
    for figure in published.figures:
        label = policies[figure.policy]
        run = _run(rows, label, rows.filter(pl.col("name") == BASELINE))
        means, speed = both_means(run), speed_of(run.rows, run.plain)
        ours = {
            POOLED: means.pooled,
            MACRO: means.macro,
            "speedup": Estimate(speed.speedup, speed.interval) if not math.isnan(speed.speedup) else Estimate(math.nan),
        }[figure.measure]
        ends = ours.interval
        within = ends.low - 0.005 <= figure.value <= ends.high + 0.005
        figures.append(
            {
                "policy": label,
                "measure": figure.measure,
                "theirs": figure.value,
                "theirs_note": figure.note,
                **ours.row("ours", digits=None),
                "difference_share": finite(ours.value / figure.value - 1),
                "within_interval": within if is_known(ends) else None,
            }
        )
    return figures


def checks_of_trace(
    published: PublishedStudy, manifest: Manifest, draft: str, datasets: Iterable[str], num_prompts: int
) -> list[Row]:
    """What must be equal, read from the manifest of a trace; then what no manifest shows.

    Args:
        published: with a setup.
        manifest: of the trace.
        draft: the draft set.
        datasets: those of its prompts.
        num_prompts: turns and samples of one count once.

    Returns:
        what, theirs, ours and state of each: `EQUAL`, `DIFFERS`, `NOT_KNOWN` or `ON_PURPOSE`.
    """
    if not published.setup:
        raise ValueError(f"{published.name} is of no trace")
    draft_set, thinking = manifest.draft_sets[draft], manifest.chat_template_kwargs.get("enable_thinking")
    ours = {
        "target": manifest.target.name,
        "drafter": draft_set.model.name,
        "block": str(draft_set.block_size),
        "dtype": str(manifest.dtype),
        "temperature": f"{manifest.sampling.temperature:g}",
        "thinking": ("on" if thinking else "off") if isinstance(thinking, bool) else "not set",
        "text": manifest.gt_mode,
        "new tokens, at most": str(manifest.max_new_tokens),
        "dataset": ", ".join(sorted(set(datasets))),
        "number of prompts": str(num_prompts),
    }
    checks = [_check(what, theirs, ours[what]) for what, theirs in published.setup.items()]
    checks += [_check_row(what, theirs, "-", NOT_KNOWN) for what, theirs in published.not_known.items()]
    return checks + [_check_row(what, *both, ON_PURPOSE) for what, both in published.on_purpose.items()]


def _check(what: str, theirs: str | None, ours: str) -> Row:
    """Names of models by their last part, since a folder holds what a hub does."""
    if theirs is None:
        return _check_row(what, "not said", ours, NOT_KNOWN)
    last = ours.rstrip("/").rsplit("/", 1)[-1].lower() if what in ("target", "drafter") else ours
    is_equal = last == (theirs.lower() if what in ("target", "drafter") else theirs)
    return _check_row(what, theirs, ours, EQUAL if is_equal else DIFFERS)


def _check_row(what: str, theirs: str, ours: str, state: str) -> Row:
    return {"what": what, "theirs": theirs, "ours": ours, "state": state}


def _checks(study: PublishedStudy, trace: Trace, draft: str, limit: int | None) -> list[Row]:
    prompts = [trace.texts[index].prompt for index in first_prompts(trace, limit)]
    names = {(prompt.dataset, prompt.prompt_id) for prompt in prompts}
    return checks_of_trace(study, trace.manifest, draft, (prompt.dataset for prompt in prompts), len(names))


def _checked(checks: Sequence[Row]) -> Row:
    return {"checks": list(checks), "differing": [check["what"] for check in checks if check["state"] == DIFFERS]}


def _check_disjoint(trace: Trace, dev: Trace, limit: int | None) -> None:
    """Refuse a budget that is chosen on prompts on which it is reported."""
    judged, chosen_on = (
        {tuple(recording.texts[index].prompt.token_ids.tolist()) for index in first_prompts(recording, limit)}
        for recording in (trace, dev)
    )
    shared = len(judged & chosen_on)
    if shared:
        raise UsageError(
            f"{shared} prompts of --dev-trace are among those of --trace; choose the budget on others than those on "
            "which it is reported"
        )


def _check_alike(trace: Trace, draft: str, dev: Trace, dev_draft: str) -> None:
    first, second = trace.manifest, dev.manifest
    draft_set, other = first.draft_sets[draft], second.draft_sets[dev_draft]
    is_same = first.target.is_same(second.target) and draft_set.model.is_same(other.model)
    if not is_same or draft_set.block_size != other.block_size:
        raise UsageError(
            f"{trace.location} and {dev.location} are of different models or blocks; expected the same of both"
        )


def _ours(trace: Trace) -> str:
    return f"ours     {trace.label} (text {trace.text_id})"


def _figures_text(figures: Sequence[Row]) -> str:
    """Theirs, ours and the difference."""
    columns = [
        ("", "{named}"),
        ("of", "{policy}"),
        ("theirs", "{theirs:.2f}"),
        ("ours [95 %]", "{shown}"),
        ("difference", "{share}"),
        ("theirs within it", "{within}"),
        ("theirs is", "{theirs_note}"),
    ]
    rows = []
    for figure in figures:
        ends = (math.nan if figure[name] is None else figure[name] for name in ("ours_ci_low", "ours_ci_high"))
        ours = math.nan if figure["ours"] is None else figure["ours"]
        more = {"named": measure_name(figure["measure"]), "shown": with_interval(ours, Interval(*ends)).rstrip()}
        more["share"] = "-" if figure["ours"] is None else f"{100 * figure['difference_share']:+.1f} %"
        rows.append(figure | more | {"within": {None: "-", True: "yes", False: "no"}[figure["within_interval"]]})
    return table("llrlrrl", columns, rows)


def _checks_text(checks: Sequence[Row]) -> str:
    """What must be equal, and a verdict on it."""
    differing, unknown = (
        [check["what"] for check in checks if check["state"] == state] for state in (DIFFERS, NOT_KNOWN)
    )
    verdict = "All that the trace can show is equal."
    if differing:
        verdict = f"Not a reproduction: {len(differing)} of what must be equal differs: {', '.join(differing)}."
    if unknown:
        verdict += f" Not known: {', '.join(unknown)}."
    columns = [("must be equal", "{what}"), ("theirs", "{theirs}"), ("ours", "{ours}"), ("", "{state}")]
    return f"{table('l', columns, checks)}\n\n{verdict}"


def _budgets_text(budgets: Sequence[Row], title: str, chosen: str) -> str:
    """A grid of budgets, the chosen budget marked."""
    names = {POOLED: "acceptance length", MACRO: "macro avg", "tokens_per_s": "tokens/s"}
    columns = [(title, "{policy}"), *((heading, f"{{{name}}}") for name, heading in names.items()), ("", "{mark}")]
    rows = [
        row
        | {name: number(math.nan if row[name] is None else row[name], 2) for name in names}
        | {"mark": "chosen" if row["policy"] == chosen else ""}
        for row in budgets
    ]
    return table("lrrrl", columns, rows)


def _published_means_text() -> str:
    """The published pairs of means."""
    columns = [("theirs", "{policy}"), ("printed", "{value:.2f}"), ("pooled", "{pooled:.2f}")]
    columns += [("larger by", "{percent:.1f} %"), ("", "{note}")]
    rows = []
    for figure in AVERAGING.figures:
        pooled = POOLED_OF_PRINTED[figure.policy]
        rows.append(asdict(figure) | {"pooled": pooled, "percent": 100 * (figure.value / pooled - 1)})
    return table("lrrrl", columns, rows)


def _averaging_text(location: str, means: Sequence[BothMeans], flips: Sequence[RankingFlip]) -> str:
    """Both means of each policy of a trace, and the pairs that they rank differently."""
    rows = []
    for both in means:
        ends = both.over.interval
        known = is_known(ends) and ends.low != ends.high
        interval = f" [{100 * (ends.low - 1):+.1f}, {100 * (ends.high - 1):+.1f}]" if known else ""
        pooled, macro = (with_interval(estimate.value, estimate.interval) for estimate in (both.pooled, both.macro))
        over = f"{100 * (both.over.value - 1):+.1f} %{interval}"
        rows.append({"run": both.run, "pooled": pooled, "macro": macro, "over": over})
    columns = [(f"{location}, {means[0].prompts} prompts", "{run}"), ("pooled [95 %]", "{pooled}")]
    columns += [("macro avg [95 %]", "{macro}"), ("larger by, paired [95 %]", "{over}")]
    parts = [table("l", columns, rows), _flips_text(len(means) * (len(means) - 1) // 2, flips)]
    return "\n".join([*parts, *rough_intervals(means[0].prompts)])


def _flips_text(pairs: int, flips: Sequence[RankingFlip]) -> str:
    """Which rankings turn round."""
    if not flips:
        return f"No ranking flips among {pairs} pairs." if pairs else ""
    num_certain = sum(flip.is_certain for flip in flips)
    lines = [
        f"{len(flips)} of {pairs} pairs are ranked the other way round; both means tell {num_certain} of them apart:"
    ]
    for flip in flips:
        ratios = [f"{100 * (comparison.ratio - 1):+.2f} %" for comparison in (flip.pooled, flip.macro)]
        names = f"{flip.pooled.first} over {flip.pooled.second}"
        lines.append(f"  {names}: pooled {ratios[0]}, macro average {ratios[1]}")
    return "\n".join(lines)
