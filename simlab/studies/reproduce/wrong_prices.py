"""What a wrong price costs: a policy is chosen at wrong prices, and evaluated at the right ones.

Two settings, both on a trace of ours: one text with trees, at the prices of an H100 that come with simlab; and 64 texts
with chains, at the prices that the released serving engine timed. What is right in them is that a pass costs by its
context; vLLM profiles at one, and somebody may use the prices of another machine.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl

from simlab.analysis.compare.comparisons import compare_runs
from simlab.analysis.statistics.intervals import finite
from simlab.analysis.table.prompt_sums import PolicyRun
from simlab.analysis.table.summaries import summarise
from simlab.analysis.table.text import within_width
from simlab.cost import CostTable
from simlab.errors import CostError, UsageError
from simlab.ids import content_id
from simlab.policies.parsing.parse import NamedPolicy, parse_policies
from simlab.studies.inputs.artefacts import PoliciesOnMachine, TraceArtefacts
from simlab.studies.inputs.prices import Prices, cost_table_of, prices_for_trace, prices_of_file
from simlab.studies.inputs.trace import longest_context, sample_trace
from simlab.studies.replay.run import ReplayRun, replay_trace
from simlab.studies.reproduce.options import ReproduceOptions
from simlab.studies.reproduce.released import Findings, Row, table
from simlab.traces.artefacts.cost import UNKNOWN
from simlab.traces.artefacts.cost_import import ImportedFor, imported_cost_file
from simlab.traces.artefacts.timings import ROOT_INCLUDED, PassTiming, PassTimings
from simlab.traces.format.manifest_entries import ModelInfo
from simlab.traces.reader import Trace
from simlab.traces.results.rows import Results

H100 = "h100-vllm-graphs"
"""The packaged cost file whose prices are the right ones of one text."""

CPU = "smollm2-135m-epyc-float32"
"""The packaged cost file whose prices are those of another machine."""

RIGHT, ONE_CONTEXT, PACKAGED = "right", "of one context", "of a CPU"
"""Which prices a policy is chosen by."""

SERVED = "results/minicpm_h100_dspark_k_spec7.json"
"""Where the release has them."""

Halves = tuple[Sequence[str], Sequence[str]]
"""Names of the prompts that a choice is made on, and of those that it is evaluated on."""

_PROMPT = pl.format("{}/{}", "dataset", "prompt_id")
_BUDGETS = (4, 8, 12, 16, 24, 32, 48, 63)
_READS_PRICES = "caddtree:look_ahead=0,budget="
"""Best-first trees that weigh tokens against the prices that they are given, up to a budget."""


def wrong_prices(served: pl.DataFrame, options: ReproduceOptions) -> Findings:
    """Replay the packaged trace at right and wrong prices: trees and chains at some prices, chains at the engine's.

    Args:
        served: what the released engine timed with all its requests: tokens, requests, context and median_ms of each
            size of a pass at each context.
        options: a cost file of right prices in place of the packaged one's of an H100; how many prompts.
    """
    trace = sample_trace()
    draft = trace.draft_name(None)
    depth = trace.manifest.draft_sets[draft].depth
    packaged, asked = (
        prices_for_trace(Path(file), trace, draft, options.limit)
        for file in (CPU, H100 if options.cost is None else options.cost)
    )
    many = _served_prices(served, trace, draft, options.limit)
    tables: list[str] = []
    choices: list[Row] = []
    speeds: Row = {}
    for what, right, grid in (
        ("trees and chains", asked, _trees(asked, depth)),
        ("chains", many, [f"chain:length={length}" for length in range(1, depth + 1)]),
    ):
        setting = f"{'One text' if right.batch == 1 else f'{right.batch:,} texts at a time'}, {what}"
        rows, policies = _replayed(trace, draft, right, packaged, grid, options)
        halves = halves_of(rows[RIGHT])
        own = compared_choices(setting, rows, policies, halves)
        choices += own
        on_all = _speeds(rows[RIGHT], [*halves[0], *halves[1]])
        speeds[setting] = {label: on_all[label] for label in policies[RIGHT]}
        tables += [within_width(f"{setting}. Right prices: {right.heading}"), choices_text(own)]
    choosing, evaluated = map(len, halves)
    above = within_width(
        f"What a wrong price costs, by our replay of the packaged trace: the fastest policy by some prices on "
        f"{choosing} prompts, compared on the {evaluated} others with the fastest by the right prices, both at "
        "the right prices:"
    )
    values = {"wrong_prices": choices, "tokens_per_s_at_right_prices": speeds}
    return Findings((), [above, *tables], values)


def choices_text(choices: Sequence[Row]) -> str:
    """The choices of a setting and what they cost, for people."""
    shown = (
        "chosen by the prices = {chosen_by} | fastest by them = {policy} | "
        "% faster than the right choice = {faster} | [95 %] = {ends}"
    )
    cells = []
    for row in choices:
        faster, ends = f"{row['faster_percent']:+.2f}", "-"
        if row["same"]:
            faster, ends = "" if row["chosen_by"] == RIGHT else "same choice", ""
        elif row["ci_low"] is not None:
            ends = f"[{row['ci_low']:.2f}, {row['ci_high']:.2f}]"
        cells.append(row | {"faster": faster, "ends": ends})
    return table("llrl", shown, cells)


def halves_of(rows: Results) -> Halves:
    """Every other prompt, by name, to choose on, and the others to evaluate on.

    No prompt is in both: a choice that is judged on its own prompts looks too good.
    """
    names = rows.select(_PROMPT.alias("name"))["name"].unique().sort().to_list()
    if len(names) < 4:
        raise UsageError(
            f"a choice is made on half of the prompts and evaluated on the others; got {len(names)}, take 4 or more"
        )
    return names[::2], names[1::2]


def compared_choices(
    setting: str, rows: Mapping[str, Results], policies: Mapping[str, Sequence[str]], halves: Halves
) -> list[Row]:
    """What each price chooses, and how fast that is at the right prices beside their own choice.

    Args:
        setting: of texts and machine.
        rows: at each of the prices; at the right ones those of every policy.
        policies: labels of those that are chosen among by each of the prices, `RIGHT` among them.
        halves: the prompts to choose on, and those to evaluate on.

    Returns:
        setting; chosen_by: whose prices; policy: the fastest by them, on the prompts to choose on; same: whether it is
        the choice of the right prices; faster_percent: by how much it is faster than that, on the others at the right
        prices, paired, with the ends of its interval, ci_low and ci_high.
    """
    speeds = {by: _speeds(rows[by], halves[0]) for by in policies}
    chosen = {by: max(labels, key=lambda label: speeds[by][label]) for by, labels in policies.items()}
    shown = rows[RIGHT].filter(_PROMPT.is_in(halves[1]))
    choices = []
    for by, policy in chosen.items():
        row: Row = {"setting": setting, "chosen_by": by, "policy": policy, "same": policy == chosen[RIGHT]}
        row |= {"faster_percent": 0.0, "ci_low": 0.0, "ci_high": 0.0}
        if not row["same"]:
            own = {label: shown.filter(policy=label) for label in (policy, chosen[RIGHT])}
            runs = [PolicyRun(label, frame, frame.clear()) for label, frame in own.items()]
            (ratio,) = (pair for pair in compare_runs(runs, [(0, 1)]) if pair.measure == "tokens_per_s")
            ends = ratio.ratio_interval
            row |= {"faster_percent": finite(100 * (ratio.ratio - 1)), "ci_low": finite(100 * (ends.low - 1))}
            row["ci_high"] = finite(100 * (ends.high - 1))
        choices.append(row)
    return choices


def at_one_context(prices: Prices) -> Prices:
    """Prices as a profile at one context says them: those of the longest one, whatever the context of a round."""
    cost = prices.cost
    if cost is None:
        raise CostError(f"a profile at one context needs a latency profile. {prices.no_latency_reason}")
    seconds = {stage: np.repeat(rows[-1:], len(rows), axis=0) for stage, rows in cost.seconds.items()}
    name = content_id({"cost": cost.cost_id, "at_context": cost.longest_context})
    wrong = CostTable(name, cost.contexts, seconds, block_size=cost.block_size, origin=cost.origin)
    return replace(prices, cost=wrong)


def _trees(prices: Prices, depth: int) -> list[str]:
    reach = 0 if prices.cost is None else prices.cost.most_drafted
    chains = [f"chain:length={length}" for length in (1, 3, 5, depth) if length <= reach]
    return [*chains, *(f"ddtree:budget={budget}" for budget in _BUDGETS if budget <= reach)]


def _served_prices(served: pl.DataFrame, trace: Trace, draft: str, limit: int | None) -> Prices:
    """The engine's own passes as a latency profile of so many texts at a time; its longest contexts stand for 4,096.

    At the longest context the engine leaves room for the tokens of the pass.
    """
    per_request, before = pl.col("tokens") // pl.col("requests"), pl.col("context")
    is_longest = before > before.max() - per_request
    context = pl.when(is_longest).then(before.max() + 1).otherwise(pl.max_horizontal(before, pl.lit(1)))
    timings = served.select(per_request, context.alias("context"), "median_ms").iter_rows()
    target, drafter = (ModelInfo(name, "", UNKNOWN) for name in ("MiniCPM5-2B", "none timed"))
    about = ImportedFor(target, drafter, 1, 0.0, 0, 1.0, "NVIDIA H100, vLLM", "bfloat16")
    requests = served["requests"][0]
    rows = tuple(PassTiming(tokens, before, requests, ms / 1000) for tokens, before, ms in timings)
    file = imported_cost_file(PassTimings(SERVED, (), rows), ROOT_INCLUDED, about, {})
    return prices_of_file(file, cost_table_of(file), trace, draft, longest_context(trace, limit))


def _replayed(
    trace: Trace, draft: str, right: Prices, packaged: Prices, grid: Sequence[str], options: ReproduceOptions
) -> tuple[dict[str, Results], dict[str, list[str]]]:
    """Rows at each of the prices, and the labels of the policies that are chosen among by each.

    Rows name their prices by an id alone, so where the packaged prices are the right ones they stand there once.
    """
    every = {RIGHT: right, ONE_CONTEXT: at_one_context(right)}
    if packaged.cost_id != right.cost_id:
        every[PACKAGED] = packaged
    fixed = parse_policies(grid, None)
    # A rule that reads prices weighs those of one text; its label says whose it reads.
    rules: dict[str, list[NamedPolicy]] = {by: [] for by in every}
    if right.batch == 1 and right.cost is not None and right.cost.most_drafted:
        for by, prices in every.items():
            artefacts = TraceArtefacts(prices, trace, draft)
            (policy,) = parse_policies([f"{_READS_PRICES}{right.cost.most_drafted}"], artefacts)
            rules[by].append(replace(policy, label=f"caddtree with prices {by}"))
    chosen_by_any = [rule for own in rules.values() for rule in own]
    asked = [
        PoliciesOnMachine(prices, (*fixed, *(chosen_by_any if by == RIGHT else rules[by])))
        for by, prices in every.items()
    ]
    results = replay_trace(trace, draft, asked, options.limit, ReplayRun(progress=options.progress, best_budgets=False))
    rows = {by: results.filter(cost_id=prices.cost_id) for by, prices in every.items()}
    return rows, {by: [policy.label for policy in (*fixed, *rules[by])] for by in every}


def _speeds(rows: Results, prompts: Sequence[str]) -> dict[str, float]:
    """Tokens per second of each policy on some prompts."""
    return {own.policy: own.speed.tokens_per_s for own in summarise(rows.filter(_PROMPT.is_in(prompts)))}
