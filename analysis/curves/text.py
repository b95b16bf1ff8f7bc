"""Summaries of curves as the tables that a person reads."""

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import polars as pl

from simlab.analysis.curves.rows import CurveSetting
from simlab.analysis.curves.summaries import KEPT_SHARE, CurveSummary
from simlab.analysis.curves.tallies import FIRST, FIXED, NOTABLE_SHARE, PRICE, CurveMachine
from simlab.analysis.statistics.intervals import rough_intervals
from simlab.analysis.table.estimates import Estimate, Figures
from simlab.analysis.table.text import aligned, number, within_width
from simlab.policies.orders.best_first import BestFirst
from simlab.policies.rules.ratio_curves import root_curve, tokens_of_roots
from simlab.recorded import RecordedTexts

# The curve at one root, to be drawn: where the first stop lost most.


def worst_example(
    rows: pl.DataFrame,
    setting: CurveSetting,
    order: BestFirst,
    machine: CurveMachine,
    text: Callable[[int], RecordedTexts],
    most: int,
) -> Figures:
    """Where the first stop lost the largest share of the full scan's tokens per second; of several the first root.

    ``num_drafted`` is where each rule ends there, ``tokens_per_s`` the curve by the number of drafted tokens.

    Args:
        rows: of `simlab.analysis.curves.rows.curve_rows`.
        setting: one of those from there.
        order: of its edge model.
        machine: its prices.
        text: reads one sequence.
        most: drafted tokens, as the rows were made with.
    """
    own = rows.filter(pl.col("edges") == setting.edges, pl.col("cost_id") == setting.cost_id)
    first = own.filter(pl.col("rule") == FIRST)
    index = first["regret_share"].arg_max()
    sequence, position, context = first.select("sequence", "position", "context").row(index or 0)
    at_root = own.filter(pl.col("sequence") == sequence, pl.col("position") == position)
    scores = order.layer(text(sequence), most, with_scores=True).score_rows[position : position + 1]
    curve = root_curve(tokens_of_roots(scores, np.array([context], np.int64)), 0, machine.costs)
    return {
        "edges": setting.edges,
        "cost_id": setting.cost_id,
        "sequence": sequence,
        "position": position,
        "context": context,
        "num_drafted": dict(zip(at_root["rule"].to_list(), at_root["num_drafted"].to_list(), strict=True)),
        "tokens_per_s": curve.tolist(),
    }


_NOTES = (
    "A curve with one maximum is unimodal; a valley has fewer tokens/s than a smaller and a larger size, and is deep "
    f"from {100 * NOTABLE_SHARE:.0f} % on. First stop: the first size that brings no more ends the tree (caddtree); "
    "convex: it decides by the convex view of the latencies, and pays the measured ones. Full scan: the best size of "
    "each round by itself. Price: the sizes with the most tokens/s of the whole. The fixed budget and the rate of "
    "price are in sample: chosen on these very roots, one for all slices."
)
_WITH_NOISE = (
    f"A valley survives the noise of the prices where {100 * KEPT_SHARE:.0f} % of the draws of the prices have it. "
    "Intervals: over prompts, and of what rules lose also over prices drawn again from the samples of the latency "
    "profile, each with its own best; what drawing again adds by itself is taken off their lower end."
)
_WITHOUT_NOISE = (
    "Intervals are over prompts. The noise of the prices is not known: it takes two visits to each cell of the latency "
    "profile."
)


def curves_text(summaries: Sequence[CurveSummary], headings: Mapping[str, str], by: str | None = None) -> str:
    """A verdict and a table for each edge model, machine and slice, and what to know beside them.

    Args:
        summaries: the summaries.
        headings: of which latency profile, by their ids.
        by: the column of the slices.
    """
    parts: list[str] = []
    order = list(headings)
    last = None
    for summary in sorted(summaries, key=lambda summary: order.index(summary.cost_id)):
        if summary.cost_id != last:
            parts.append(within_width(f"latency  {headings[summary.cost_id]}"))
        last = summary.cost_id
        parts.append(_block(summary, by))
    notes = [_NOTES, _WITHOUT_NOISE if any(summary.kept is None for summary in summaries) else _WITH_NOISE]
    notes += rough_intervals(min(summary.prompts for summary in summaries), "prompts in a table")
    return "\n\n".join([*parts, within_width(" ".join(notes))])


def unimodality_verdict(summaries: Sequence[CurveSummary], names: Mapping[str, str]) -> str:
    """Whether curves have one maximum, and what stopping at the first fall loses: two sentences for each setting.

    Args:
        summaries: of everything, not of slices.
        names: of latency profiles by their ids.
    """
    lines = ["Is expected throughput unimodal in the number of drafted tokens?"]
    for summary in summaries:
        name = f"{summary.edges} probabilities" + (f", {names[summary.cost_id]}" if len(names) > 1 else "")
        lines.append(f"{name}: {_answer(summary)} {_loss(summary)}")
    return "\n".join(map(within_width, lines))


def _answer(summary: CurveSummary) -> str:
    if summary.kept is None:
        return f"not known; {_share(summary.several)} % of the roots have several maxima as measured, noise included."
    if summary.kept.interval.low > 0:
        return f"no, at {_share(summary.kept)} % of the roots a valley survives the noise of the prices."
    return f"not distinguishable from noise; a valley survives it at {_share(summary.kept)} % of the roots."


def _loss(summary: CurveSummary) -> str:
    lost = next(rule["behind_price_share"] for rule in summary.rules if rule["rule"] == FIRST)
    verdict = "significant" if lost.side_of(0.0) > 0 else "not significant"
    return f"Stopping at the first fall loses {_share(lost)} % of the tokens/s ({verdict})."


def _block(summary: CurveSummary, by: str | None) -> str:
    of = "" if summary.slice is None else f", {by} {summary.slice}"
    title = f"{summary.edges} probabilities{of}: {summary.roots:,} curves, {summary.prompts} prompts"
    several = f"several: {_share(summary.several)} % (deep: {_percent(summary.deep, 2)} %)"
    maxima = f"maxima as measured: {_maxima(summary.maxima)}; {several}"
    counted = within_width("\n".join([maxima, *_halves(summary.halves)]))
    cells = [
        ["rule", "drafted", "expected", "behind the price rule", "behind the full scan", "worst"],
        ["", "/round", "tokens/s", "whole, % [95 %]", "per round, % [95 %]", "%"],
    ]
    for rule in summary.rules:
        figures = number(rule["num_drafted"], 1), number(rule["tokens_per_s"], 2)
        shares = _share(rule["behind_price_share"]), _share(rule["regret_share"])
        cells.append([_name(rule["rule"], summary), *figures, *shares, _percent(rule["worst_regret_share"], 1)])
    return f"{title}\n{counted}\n\n{aligned(cells, [True, False, False, True, True, False])}"


def _halves(halves: Figures | None) -> list[str]:
    if halves is None:
        return []
    first, second = (_percent(share, 0) for share in halves["several"])
    both = f"in both at the same sizes: {_percent(halves['found_again'], 1)} %"
    deep = f"deep: {_percent(halves['deep_again'], 1)} %"
    return [f"valleys in each half of the samples: {first} % and {second} %; {both} ({deep})"]


def _maxima(counts: Sequence[int]) -> str:
    return ", ".join(f"{index}: {count:,}" for index, count in enumerate(counts, 1) if count)


def _name(rule: str, summary: CurveSummary) -> str:
    if rule == FIXED:
        return f"{FIXED}, {summary.budget}"
    return f"{PRICE}, {summary.rate:.1f} tokens/s" if rule == PRICE else rule


def _share(estimate: Estimate) -> str:
    low, high = 100 * estimate.interval.low, 100 * estimate.interval.high
    known = not math.isnan(low) and low != high
    return (
        f"{_percent(estimate.value, 2)} [{low + 0.0:.2f}, {high + 0.0:.2f}]" if known else _percent(estimate.value, 2)
    )


def _percent(share: float, digits: int) -> str:
    return number(round(100 * share, digits) + 0.0, digits)
