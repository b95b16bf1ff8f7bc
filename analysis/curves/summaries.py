"""From rows of curves to one summary per edge model, machine and slice, with intervals over prompts."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import polars as pl

from simlab.analysis.curves.rows import CurveSetting, DrawnSums
from simlab.analysis.curves.tallies import NOTABLE_SHARE, PRICE, SCAN
from simlab.analysis.statistics.intervals import Interval, ratio_interval, speedup_interval
from simlab.analysis.statistics.slices import Slice, split_by_slice
from simlab.analysis.table.estimates import NO_FIGURE, Estimate, Figures, Row, flat
from simlab.arrays import Doubles
from simlab.policies.costs.cell_prices import half_width

# Intervals that hold the noise of prices beside that of prompts.

KEPT_SHARE = 0.95
"""A valley that stays in at least this share of the draws is told from the noise of prices."""


def with_price_noise(value: float, prompts: Interval, drawn: Doubles) -> Interval:
    """An interval over prompts made wide enough for prices.

    The two are independent, so each end is as far away as the root of the summed squares. Noise makes hollows and
    peaks of its own, so at drawn prices regret is larger than at those they are drawn from, and at measured prices
    larger than at true ones, by about as much. So the interval reaches from the value with this taken off to the value
    without, and beyond each by the noise.

    Args:
        value: at the prices as measured, a share that prices alone cannot bring below 0.
        prompts: the interval over prompts.
        drawn: float64 ``[B]``, the same at each draw of the prices.

    Returns:
        at most 1, and below 0 only where the prompts' is.
    """
    if math.isnan(prompts.low):
        return prompts
    corrected, reach = 2 * value - float(drawn.mean()), float(half_width(drawn))
    low = min(value, corrected) - math.hypot(value - prompts.low, reach)
    high = max(value, corrected) + math.hypot(prompts.high - value, reach)
    return Interval(max(low, min(prompts.low, 0.0)), min(high, 1.0))


def drawn_regrets(drawn: DrawnSums, rule: str) -> Doubles:
    """The mean regret of a round at each draw, float64 ``[B]``."""
    regrets: Doubles = drawn.sums[rule][:, :, 2].sum(axis=0) / drawn.roots.sum()
    return regrets


def drawn_behind_price(drawn: DrawnSums, rule: str) -> Doubles:
    """What the rule's tokens per second of the whole lack of the price rule's at each draw, float64 ``[B]``."""
    tokens, seconds, _ = drawn.sums[rule].sum(axis=0).T
    base_tokens, base_seconds, _ = drawn.sums[PRICE].sum(axis=0).T
    behind: Doubles = 1.0 - (tokens / seconds) / (base_tokens / base_seconds)
    return behind


_PROMPT = ("dataset", "prompt_id")


@dataclass(frozen=True, slots=True)
class CurveSummary:
    """The curves of one edge model on one machine.

    Attributes:
        slice: the dataset, turn or range of contexts; None for everything.
        edges: the edge model's name.
        cost_id: of the machine's prices.
        prompts: how many.
        roots: how many, a curve each.
        maxima: how many roots have one local maximum, two, and so on; the last counts the most there are.
        several: the share of roots with more than one.
        deep: the share with several of which each two are apart by a fall and a rise above `NOTABLE_SHARE`.
        kept: the share with a valley that stays in `KEPT_SHARE` of the draws of the prices; None: their noise is not
            known.
        kept_deep: the share with one that stays deeper than `NOTABLE_SHARE`.
        halves: the curves by each half of the samples, of the whole; None: of a slice, or they cannot be halved.
        budget: the best fixed one of the whole.
        rate: the price rule's price, tokens per second, of the whole.
        rules: figures of each, by the keys of the JSON.
    """

    slice: Slice
    edges: str
    cost_id: str
    prompts: int
    roots: int
    maxima: tuple[int, ...]
    several: Estimate
    deep: float
    kept: Estimate | None
    kept_deep: float | None
    halves: Figures | None
    budget: int
    rate: float
    rules: tuple[Figures, ...]

    def rows(self) -> list[Row]:
        """Flat scalars, one row a rule, as a script reads them; what is not known is None."""
        first: Figures = {
            **({} if self.slice is None else {"slice": self.slice}),
            "edges": self.edges,
            "cost_id": self.cost_id,
            "prompts": self.prompts,
            "roots": self.roots,
            "several_maxima_share": self.several,
            "several_deep_maxima_share": self.deep,
            "kept_valley_share": self.kept or NO_FIGURE,
            "kept_deep_valley_share": self.kept_deep,
            "most_maxima": len(self.maxima),
            "best_fixed_budget": self.budget,
            "price_tokens_per_s": self.rate,
        }
        return [flat(first | rule) for rule in self.rules]


def curve_summaries(rows: pl.DataFrame, settings: Iterable[CurveSetting], by: str | None = None) -> list[CurveSummary]:
    """One summary per setting; with ``by`` one per setting and slice.

    Args:
        rows: of `simlab.analysis.curves.rows.curve_rows`.
        settings: from there as well.
        by: one of `simlab.analysis.statistics.slices.SLICES`; a root's context is that of its text, the length of the
            prompt.
    """
    summaries = []
    for setting in settings:
        of_setting = rows.filter(pl.col("edges") == setting.edges, pl.col("cost_id") == setting.cost_id)
        of_setting = of_setting.with_columns((pl.col("context") - pl.col("position")).alias("context_length"))
        parts = split_by_slice(of_setting, by)
        summaries += [_summary(part, value, setting) for value, part in parts]
    return summaries


def _summary(rows: pl.DataFrame, value: Slice, setting: CurveSetting) -> CurveSummary:
    rules = {part["rule"][0]: part for part in rows.partition_by("rule", maintain_order=True)}
    scan = rules[SCAN]
    maxima = np.bincount(scan["num_maxima"].to_numpy())[1:]
    kept = _share_of_roots(scan, pl.col("kept_valley_share") >= KEPT_SHARE)
    kept_deep = _share_of_roots(scan, pl.col("kept_deep_valley_share") >= KEPT_SHARE)
    known = setting.drawn is not None
    drawn = None if setting.drawn is None else _of_texts(setting.drawn, scan)
    price = _by_prompt(rules[PRICE])
    return CurveSummary(
        slice=value,
        edges=setting.edges,
        cost_id=setting.cost_id,
        prompts=price.height,
        roots=scan.height,
        maxima=tuple(maxima.tolist()),
        several=_share_of_roots(scan, pl.col("num_maxima") > 1),
        deep=float(np.mean(_column(scan, "num_deep_maxima") > 1)),
        kept=kept if known else None,
        kept_deep=kept_deep.value if known else None,
        halves=setting.halves if value is None else None,
        budget=setting.budget,
        rate=setting.rate,
        rules=tuple(_rule(rule, part, scan, price, drawn) for rule, part in rules.items()),
    )


def _of_texts(drawn: DrawnSums, rows: pl.DataFrame) -> DrawnSums:
    """The sums of the texts that rows are of."""
    kept = np.isin(drawn.sequences, rows["sequence"].unique().to_numpy())
    sums = {rule: array[kept] for rule, array in drawn.sums.items()}
    return DrawnSums(drawn.sequences[kept], drawn.roots[kept], sums)


def _share_of_roots(scan: pl.DataFrame, condition: pl.Expr) -> Estimate:
    """The share of roots for which something holds, and its interval over prompts."""
    prompts = _by_prompt(scan, condition.sum().alias("held"))
    held, roots = _column(prompts, "held"), _column(prompts, "roots")
    return Estimate(float(held.sum() / roots.sum()), _share_interval(held, roots))


def _rule(rule: str, rows: pl.DataFrame, scan: pl.DataFrame, price: pl.DataFrame, drawn: DrawnSums | None) -> Figures:
    """What one rule came to.

    ``behind_price_share`` is the share of the price rule's tokens per second of the whole that it lacks; below 0 where
    it is faster, which only a slice allows. Its interval is over prompts, paired, with price and budget held as they
    are; and over prices, where their noise is known, with both chosen anew. ``regret_share`` is the share of the full
    scan's tokens per second that a round lacks, mean over roots, with an interval over prompts and prices; at
    ``notable_regret_share`` of the roots it is above `NOTABLE_SHARE`.
    """
    prompts = _by_prompt(rows, pl.col("regret_share").sum())
    tokens, seconds = _column(prompts, "tokens"), _column(prompts, "seconds")
    base_tokens, base_seconds = _column(price, "tokens"), _column(price, "seconds")
    ratio = speedup_interval(tokens, seconds, base_tokens, base_seconds)
    rate, base_rate = tokens.sum() / seconds.sum(), base_tokens.sum() / base_seconds.sum()
    sizes, best_sizes, regret = rows["num_drafted"], scan["num_drafted"], _column(rows, "regret_share")
    behind, behind_ends = float(1.0 - rate / base_rate), Interval(1.0 - ratio.high, 1.0 - ratio.low)
    mean, mean_ends = float(regret.mean()), _share_interval(_column(prompts, "regret_share"), _column(prompts, "roots"))
    if drawn is not None:
        behind_ends = with_price_noise(behind, behind_ends, drawn_behind_price(drawn, rule))
        mean_ends = with_price_noise(mean, mean_ends, drawn_regrets(drawn, rule))
    return {
        "rule": rule,
        "num_drafted": float(_column(rows, "num_drafted").mean()),
        "tokens_per_s": float(rate),
        "behind_price_share": Estimate(behind, behind_ends),
        "regret_share": Estimate(mean, mean_ends),
        "worst_regret_share": float(regret.max()),
        "notable_regret_share": float((regret > NOTABLE_SHARE).mean()),
        "shorter_than_scan_share": float(np.mean((sizes < best_sizes).to_numpy())),
        "longer_than_scan_share": float(np.mean((sizes > best_sizes).to_numpy())),
    }


def _share_interval(parts: Doubles, wholes: Doubles) -> Interval:
    """Where a share of many more prompts would lie, from 0 to 1.

    Ratios are judged by their logarithms, which a share near 0 does not suit; so it is the larger of the two that is,
    the share or what it leaves.
    """
    if 2 * parts.sum() >= wholes.sum():
        interval = ratio_interval(parts, wholes)
        return Interval(interval.low, min(interval.high, 1.0))
    rest = ratio_interval(wholes - parts, wholes)
    return Interval(max(1.0 - rest.high, 0.0), 1.0 - rest.low)


def _by_prompt(rows: pl.DataFrame, *more: pl.Expr) -> pl.DataFrame:
    """Sums of each prompt, in an order that depends on the prompts alone."""
    sums = (pl.col("expected_tokens").sum().alias("tokens"), pl.col("round_s").sum().alias("seconds"))
    return rows.group_by(_PROMPT, maintain_order=True).agg(pl.len().alias("roots"), *sums, *more).sort(_PROMPT)


def _column(rows: pl.DataFrame, name: str) -> Doubles:
    values: Doubles = rows[name].to_numpy().astype(np.float64)
    return values
