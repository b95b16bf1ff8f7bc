"""Figures that need traces of our own: acceptance lengths, both means, and budgets that are chosen on dev prompts."""

import math
from collections.abc import Sequence, Set
from dataclasses import asdict

from simlab.analysis.compare.averaging import (
    MACRO,
    POOLED,
    BothMeans,
    RankingFlip,
    both_means,
    find_ranking_flips,
)
from simlab.analysis.compare.verdicts import measure_name
from simlab.analysis.statistics.intervals import finite, rough_intervals
from simlab.analysis.table.estimates import Estimate
from simlab.analysis.table.prompt_sums import PolicyRun
from simlab.analysis.table.summaries import BASELINE, speed_of, summarise
from simlab.analysis.table.text import is_known, number, with_interval
from simlab.errors import CostError, TraceError, UsageError
from simlab.options import path_or_none
from simlab.policies.parsing.parse import NamedPolicy, parse_policies
from simlab.studies.inputs.artefacts import PoliciesOnMachine, TraceArtefacts, in_sample_note, largest_budget
from simlab.studies.inputs.prices import Prices, no_prices, prices_for_trace
from simlab.studies.inputs.trace import first_prompts, opened, prompt_of, sample_trace
from simlab.studies.replay.run import ReplayRun, replay_trace
from simlab.studies.reproduce.ddtreepp_rounds import read_released, run_of_rounds
from simlab.studies.reproduce.options import ReproduceOptions
from simlab.studies.reproduce.published import AVERAGING, POOLED_OF_PRINTED, PublishedStudy
from simlab.studies.reproduce.released import Row, columns, table
from simlab.traces.format.manifest import Manifest
from simlab.traces.format.manifest_entries import DraftSet
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
    traces = {trace.location: trace for trace in [sample_trace(), *map(opened, options.traces)]}
    for trace in traces.values():
        draft = trace.draft_name(options.draft_set)
        artefacts = TraceArtefacts(prices_for_trace(None, trace, draft, options.limit), trace, draft)
        policies = parse_policies(options.policies or _AVERAGED, artefacts)
        replayed = _replayed(trace, draft, policies, options)
        rows_of = {policy.label: replayed.filter(policy=policy.label) for policy in policies}
        runs = [PolicyRun(label, own, own.clear()) for label, own in rows_of.items()]
        means, flips = [both_means(run) for run in runs], find_ranking_flips(runs)
        parts.append(_averaging_text(trace.label, means, flips))
        place: Row = {"place": trace.location, "text_id": trace.text_id}
        rows += [place | mean.row() for mean in means]
        turned += [place | flip.row() for flip in flips]
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
    figures, figures_text = reproduced_figures(study, rows, {"chain": "chain"})
    checks, checks_text = _checked(checks_of_trace(study, trace.manifest, draft, _prompts(trace, options.limit)))
    text = "\n\n".join([f"{study.heading}\n{_ours(trace)}", figures_text, checks_text])
    return text, {"text_id": trace.text_id, "rows": figures, **checks}


def trees_of_traces(options: ReproduceOptions, study: PublishedStudy) -> tuple[str, Row]:
    """The chain and the tree whose budget was fastest on dev prompts, beside published figures."""
    if not options.traces or options.dev_trace is None:
        raise study.refusal(*study.commands)
    places = [(own, own.draft_name(options.draft_set)) for own in map(opened, (options.traces[0], options.dev_trace))]
    (trace, draft), (dev, _) = places
    draft_sets = [own.manifest.draft_sets[name] for own, name in places]
    _check_pair(trace, dev, draft_sets, options.limit)
    prices = [prices_for_trace(path_or_none(options.cost), *place, options.limit) for place in places]
    if prices[0].cost is None:
        reason = prices[0].no_latency_reason
        raise CostError(f"the budget is chosen by its speed, which needs a latency profile. {reason}")
    reach = min(*(draft_set.exact_budget for draft_set in draft_sets), prices[0].cost.most_drafted)
    grid = [budget for budget in GRID if budget <= reach]
    if not grid:
        raise UsageError(f"the smallest budget is {GRID[0]}; traces and latency profile reach {reach} drafted tokens")
    trees = [f"ddtree:budget={budget}" for budget in grid]
    policies = parse_policies(["ar", "chain", *trees])
    largest = [largest_budget(policies, draft_set.depth) for draft_set in draft_sets]
    reaching = [own.reaching(budget) for own, budget in zip(prices, largest, strict=True)]
    if any(own.cost is None for own in reaching):
        raise CostError(reaching[0].no_latency_reason or reaching[1].no_latency_reason)
    rows, dev_rows = (_replayed(*place, policies, options, own) for place, own in zip(places, reaching, strict=True))
    here, on_dev = _budgets(rows, trees), _budgets(dev_rows, trees)
    # The smaller of equal budgets, since these stand first.
    chosen, optimistic = (max(own, key=lambda row: row["tokens_per_s"])["policy"] for own in (on_dev, here))
    figures, figures_text = reproduced_figures(study, rows, {"chain": "chain", "ddtree": chosen})
    tried = ["/".join(map(str, sizes)) for sizes in (GRID, grid)]
    of_grid = {"what": "budgets tried", "theirs": tried[0], "ours": tried[1], "state": _state("budgets", *tried)}
    must_be_equal = checks_of_trace(study, trace.manifest, draft, _prompts(trace, options.limit))
    checks, checks_text = _checked([*must_be_equal, of_grid])
    same = "the same budget" if chosen == optimistic else optimistic
    latency = reaching[0]
    parts = [
        f"{study.heading}\n{_ours(trace)}\ndev      {dev.label} (text {dev.text_id})\nlatency  {latency.heading}",
        figures_text,
        _budgets_text(on_dev, "on dev prompts", chosen),
        _budgets_text(here, "on evaluation prompts", chosen),
        f"Chosen on the evaluation prompts, as theirs was, it would be {same}.",
        checks_text,
    ]
    values = {
        "text_id": trace.text_id,
        "dev_text_id": dev.text_id,
        "cost": latency.cost_id,
        "chosen": chosen,
        "chosen_on_evaluation": optimistic,
        "rows": figures,
        "dev_budgets": on_dev,
        "budgets": here,
    }
    return "\n\n".join(parts), values | checks


def _replayed(
    trace: Trace, draft: str, policies: Sequence[NamedPolicy], options: ReproduceOptions, prices: Prices | None = None
) -> Results:
    if not any(len(record.text) > 1 for record in trace.sequences()):
        raise TraceError(f"{trace.location} holds no rounds, so there is nothing to reproduce")
    asked = PoliciesOnMachine(no_prices() if prices is None else prices, tuple(policies))
    replay = ReplayRun(progress=options.progress, best_budgets=False)
    return replay_trace(trace, draft, [asked], options.limit, replay)


def _check_pair(trace: Trace, dev: Trace, draft_sets: Sequence[DraftSet], limit: int | None) -> None:
    """Refuse a budget that is chosen on prompts on which it is reported, or of other models."""
    judged, chosen_on = (
        {tuple(recording.texts[index].prompt.token_ids.tolist()) for index in first_prompts(recording, limit)}
        for recording in (trace, dev)
    )
    if judged & chosen_on:
        raise UsageError(
            f"{len(judged & chosen_on)} prompts of --dev-trace are among those of --trace; choose the budget on others "
            "than those on which it is reported"
        )
    first, second = draft_sets
    is_same = trace.manifest.target.is_same(dev.manifest.target) and first.model.is_same(second.model)
    if not is_same or first.block_size != second.block_size:
        raise UsageError(
            f"{trace.location} and {dev.location} are of different models or blocks; expected the same of both"
        )


def reproduced_figures(published: PublishedStudy, rows: Results, policies: dict[str, str]) -> tuple[list[Row], str]:
    """Each published figure beside that of our rows, and whether our interval holds theirs as it is rounded.

    Args:
        published: what they say.
        rows: result rows of autoregressive decoding and the policies.
        policies: which policy of the rows stands for each of theirs, by its name there.

    Returns:
        rows for scripts, and the table for people.
    """
    figures, cells = [], []
    for figure in published.figures:
        own, plain = rows.filter(policy=policies[figure.policy]), rows.filter(name=BASELINE)
        means, speed = both_means(PolicyRun(figure.policy, own, plain)), speed_of(own, plain)
        speedup = Estimate(speed.speedup, speed.interval)
        ours = {POOLED: means.pooled, MACRO: means.macro, "speedup": speedup}[figure.measure]
        ends, share = ours.interval, ours.value / figure.value - 1
        within = ends.low - 0.005 <= figure.value <= ends.high + 0.005 if is_known(ends) else None
        row: Row = {"policy": policies[figure.policy], "measure": figure.measure, "theirs": figure.value}
        row |= {"theirs_note": figure.note, **ours.row("ours", digits=None)}
        figures.append(row | {"difference_share": finite(share), "within_interval": within})
        shown = {"named": measure_name(figure.measure), "shown": with_interval(ours.value, ends).rstrip()}
        shown["share"] = "-" if math.isnan(share) else f"{100 * share:+.1f} %"
        cells.append(row | shown | {"within": {None: "-", True: "yes", False: "no"}[within]})
    shown_columns = (
        "= {named} | of = {policy} | theirs = {theirs:.2f} | ours [95 %] = {shown} | difference = {share} | "
        "theirs within it = {within} | theirs is = {theirs_note}"
    )
    return figures, table("llrlrrl", shown_columns, cells)


def checks_of_trace(
    published: PublishedStudy, manifest: Manifest, draft: str, prompts: Set[tuple[str, str]]
) -> list[Row]:
    """What must be equal, read from the manifest of a trace; then what no manifest shows.

    Args:
        published: with a setup.
        manifest: of the trace.
        draft: the draft set.
        prompts: dataset and name of each.

    Returns:
        what, theirs, ours and state of each: `EQUAL`, `DIFFERS`, `NOT_KNOWN` or `ON_PURPOSE`.
    """
    setup = published.setup
    if not setup:
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
        "dataset": ", ".join(sorted({dataset for dataset, _ in prompts})),
        "number of prompts": str(len(prompts)),
    }
    checks = [(what, theirs, "-", NOT_KNOWN) for what, theirs in published.not_known.items()]
    checks += [(what, *both, ON_PURPOSE) for what, both in published.on_purpose.items()]
    rows = [
        (what, theirs or "not said", ours[what], _state(what, theirs, ours[what])) for what, theirs in setup.items()
    ]
    return [dict(zip(("what", "theirs", "ours", "state"), check, strict=True)) for check in (*rows, *checks)]


def _state(what: str, theirs: str | None, ours: str) -> str:
    """Models are compared by the last part of their names, since a folder holds what a hub does."""
    if theirs is not None and what in ("target", "drafter"):
        theirs, ours = theirs.lower(), ours.rstrip("/").rsplit("/", 1)[-1].lower()
    return NOT_KNOWN if theirs is None else EQUAL if ours == theirs else DIFFERS


def _prompts(trace: Trace, limit: int | None) -> set[tuple[str, str]]:
    return {prompt_of(trace.texts[index]) for index in first_prompts(trace, limit)}


def _checked(checks: list[Row]) -> tuple[Row, str]:
    """What must be equal and what of it differs, for scripts; and with a verdict on it, for people."""
    differing, unknown = (
        [check["what"] for check in checks if check["state"] == state] for state in (DIFFERS, NOT_KNOWN)
    )
    verdict = "All that the trace can show is equal."
    if differing:
        verdict = f"Not a reproduction. Of what must be equal differ: {', '.join(differing)}."
    if unknown:
        verdict += f" Not known: {', '.join(unknown)}."
    shown = "must be equal = {what} | theirs = {theirs} | ours = {ours} | = {state}"
    return {"checks": checks, "differing": differing}, f"{table('l', shown, checks)}\n\n{verdict}"


def _ours(trace: Trace) -> str:
    return f"ours     {trace.label} (text {trace.text_id})"


def _budgets(rows: Results, trees: Sequence[str]) -> list[Row]:
    """Both means and the predicted speed of each fixed budget; what is not known is None."""
    known = [summary.row() for summary in summarise(rows) if summary.policy in trees]
    return [{name: row[name] for name in ("policy", POOLED, MACRO, "tokens_per_s")} for row in known]


def _budgets_text(budgets: Sequence[Row], title: str, chosen: str) -> str:
    """A grid of budgets, the chosen budget marked."""
    shown = [(title, "{policy}")]
    shown += columns(
        f"acceptance length = {{{POOLED}}} | macro avg = {{{MACRO}}} | tokens/s = {{tokens_per_s}} | = {{mark}}"
    )
    rows = []
    for row in budgets:
        numbers = {name: value if name == "policy" else number(value or math.nan, 2) for name, value in row.items()}
        rows.append(numbers | {"mark": "chosen" if row["policy"] == chosen else ""})
    return table("lrrrl", shown, rows)


def _published_means_text() -> str:
    """The published pairs of means."""
    shown = "theirs = {policy} | printed = {value:.2f} | pooled = {pooled:.2f} | larger by = {percent:.1f} % | = {note}"
    rows = []
    for figure in AVERAGING.figures:
        pooled = POOLED_OF_PRINTED[figure.policy]
        rows.append(asdict(figure) | {"pooled": pooled, "percent": 100 * (figure.value / pooled - 1)})
    return table("lrrrl", shown, rows)


def _averaging_text(label: str, means: Sequence[BothMeans], flips: Sequence[RankingFlip]) -> str:
    """Both means of each policy of a trace, and the pairs that they rank differently."""
    rows = []
    for both in means:
        ends = both.over.interval
        known = is_known(ends) and ends.low != ends.high
        interval = f" [{100 * (ends.low - 1):+.1f}, {100 * (ends.high - 1):+.1f}]" if known else ""
        pooled, macro = (with_interval(estimate.value, estimate.interval) for estimate in (both.pooled, both.macro))
        over = f"{100 * (both.over.value - 1):+.1f} %{interval}"
        rows.append({"run": both.run, "pooled": pooled, "macro": macro, "over": over})
    shown = [(f"{label}, {means[0].prompts} prompts", "{run}")]
    shown += columns("pooled [95 %] = {pooled} | macro avg [95 %] = {macro} | larger by, paired [95 %] = {over}")
    parts = [table("l", shown, rows), _flips_text(len(means) * (len(means) - 1) // 2, flips)]
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
