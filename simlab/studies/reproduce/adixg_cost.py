"""vLLM on an H100: what a verification pass costs by its tokens and its context, and serving at a corrected price.

The release is github.com/adixg/vllm-specdecode-cost-model. vLLM prices a pass by its number of tokens alone, from a
profile at one context. The release times passes by tokens and context, fits ``floor(tokens) + k * context tokens``, and
serves the same prompts with both prices in turn.
"""

import math
import re
from collections.abc import Mapping
from statistics import median

import numpy as np
import polars as pl

from simlab.analysis.statistics.intervals import (
    UNKNOWN,
    Interval,
    Spread,
    intervals_of,
    log_products,
    mean_interval,
)
from simlab.analysis.table.estimates import Estimate
from simlab.analysis.table.text import is_known, within_width
from simlab.arrays import Doubles
from simlab.studies.reproduce.options import ReproduceOptions
from simlab.studies.reproduce.released import ComparedFigure, Findings, Quoted, ReleasedFiles, Row, Schema, table
from simlab.studies.reproduce.wrong_prices import SERVED, wrong_prices

README = "README.md"
EAGER, CAPTURED = "results/h100_e1.json", "results/h100_e5.json"
LOG = "logs/calibrated-ab-5865211.out"
FILES = (README, EAGER, CAPTURED, SERVED, LOG)
"""What is read; the 558 kB of single decisions behind the log, other runs, and passes of a laptop are not."""

_DECISIONS = re.compile(r"^ *(stock|corrected): n=(\d+),", re.MULTILINE)
_ROUND = re.compile(r"^ *(\d+) +(stock|corrected) +[\d.]+ +(\d+) +([\d.]+)$", re.MULTILINE)

ALL, GRAPHS, EAGER_MODE, GRAPHS_ALONE = "all", "CUDA graphs", "eager", "CUDA graphs, k of these alone"
"""Cells on which errors are taken; the first three with one k of both modes, as they do."""

HELD_OUT = (1024, 4096)
"""Contexts that they leave out of the fit."""

_WIDEST = 100.0
"""An interval of a factor whose ends are further apart than this many times tells nothing, and is left out."""

_BLOCKS = (2, 4)
"""Rounds of serving that are taken together, since neighbours may be alike; with an even number each price goes first
as often."""

_WHITE = 1.96
"""Of white noise, the correlation of N rounds with the next lies within this over the root of N in 95 % of cases."""


def adixg_cost(files: ReleasedFiles, options: ReproduceOptions) -> Findings:
    """Their fit, its constants and their paired rounds, again; and what a wrong price costs by our replay."""
    files.have(FILES, options.progress)
    sweeps = pl.concat([read_sweep(files, EAGER), read_sweep(files, CAPTURED)])
    graphs, served = sweeps.filter("captured"), read_served(files)
    k_ms = additive_slope(sweeps)
    errors = {
        ALL: held_out_errors(sweeps, k_ms),
        GRAPHS: held_out_errors(graphs, k_ms),
        EAGER_MODE: held_out_errors(sweeps.filter(~pl.col("captured")), k_ms),
        GRAPHS_ALONE: held_out_errors(graphs, additive_slope(graphs)),
    }
    slope, rounds = context_slope(graphs), read_rounds(files)
    serving, wrong = serving_of(rounds), wrong_prices(served, options)
    passes = graphs.filter(pl.col("sweep") == CAPTURED).select("tokens", "context", "median_ms", "profiled_ms")
    return Findings(
        _compared(files, errors[ALL], {"Qwen3-1.7B": slope, "MiniCPM5-2B": context_slope(served)}, rounds, serving),
        [_errors_text(errors), _serving_text(serving), wrong.text()],
        {
            "held_out": {
                name: {key: _nested(value) if isinstance(value, Estimate) else value for key, value in error.items()}
                for name, error in errors.items()
            },
            "k_us_of_graphs": slope.value,
            "by_block": {name: _nested(estimate) for name, estimate in serving["by_block"].items()},
            "correlation_of_neighbours": serving["correlation"],
            "correlation_of_independent_rounds_below": serving["correlation_limit"],
            "by_order": {name: _nested(estimate) for name, estimate in serving["by_order"].items()},
            "paired_percent": [round(value, 4) for value in rounds["percent"]],
            "passes": [
                row | {name: round(row[name], 4) for name in ("median_ms", "profiled_ms")} for row in passes.to_dicts()
            ],
            **wrong.values(),
        },
    )


def read_sweep(files: ReleasedFiles, name: str) -> pl.DataFrame:
    """The cells of a sweep of sizes and contexts, a row for each.

    Columns: sweep (the file), tokens (of the pass), requests (whose tokens these are), context (tokens that each of
    them has before), context_tokens (of all requests), captured (whether a CUDA graph was replayed), samples_ms (of
    each pass), median_ms, profiled_ms (what vLLM's profile, at its one context, says of this size) and floor_ms (the
    median of the size without context).
    """
    value = files.value(name)
    return _cells(value["rows"], name, "context_len").with_columns(
        (pl.col("tokens") <= value["cudagraph_limit"]).alias("captured"),
        pl.Series("profiled_ms", [row["predicted_ms"] for row in value["rows"]], pl.Float64),
        pl.col("median_ms").filter(pl.col("context") == 0).last().over("tokens").alias("floor_ms"),
    )


def read_served(files: ReleasedFiles) -> pl.DataFrame:
    """The cells that the serving engine itself timed before the paired rounds, as those of `read_sweep`."""
    return _cells(files.value(SERVED)["rows"], SERVED, "effective_context_len")


def read_rounds(files: ReleasedFiles) -> pl.DataFrame:
    """Rounds of serving the same prompts at both prices, to a tenth of a token per second, as the log prints them.

    Columns: stock and corrected, tokens per second at vLLM's price and at the corrected price; stock_first, which
    began; percent, by how much the corrected price is faster.
    """
    matches = _ROUND.findall(files.text(LOG))
    lines = pl.DataFrame(matches, schema=["round", "mode", "tokens", "speed"], orient="row")
    rounds = (
        lines.with_columns(pl.col("speed").cast(pl.Float64))
        .group_by("round", maintain_order=True)
        .agg(
            *(pl.col("speed").filter(pl.col("mode") == mode).last().alias(mode) for mode in ("stock", "corrected")),
            (pl.col("mode").first() == "stock").alias("stock_first"),
        )
    )
    return rounds.with_columns((100 * (pl.col("corrected") / pl.col("stock") - 1)).alias("percent"))


def additive_slope(cells: pl.DataFrame) -> float:
    """Milliseconds per context token, by least squares on medians over each size's pass without context.

    The contexts of `HELD_OUT` are left out of the fit.
    """
    fitted = cells.filter(~pl.col("context").is_in(HELD_OUT))
    over = fitted.select("context_tokens", pl.col("median_ms") - pl.col("floor_ms")).rows()
    return float(sum(x * y for x, y in over) / sum(x * x for x, _ in over))


def held_out_errors(cells: pl.DataFrame, k_ms: float) -> Row:
    """The errors of both prices on the contexts that were left out, with so many milliseconds for a context token.

    Returns:
        k_us: microseconds of one context token; cells: how many; sizes: of a pass, over which the interval is;
        profile_ms and additive_ms: root mean squared errors of vLLM's one price for each size, and of the floor of the
        size with ``k`` times the context; reduction: the first over the second, with its interval over sizes, which is
        unknown where these tell nothing.
    """
    additive_ms = pl.col("floor_ms") + k_ms * pl.col("context_tokens")
    left = cells.filter(pl.col("context").is_in(HELD_OUT))
    squares = [
        ((price - pl.col("median_ms")) ** 2).sum().alias(name)
        for name, price in (("profile", pl.col("profiled_ms")), ("additive", additive_ms))
    ]
    by_size = left.group_by("sweep", "tokens", maintain_order=True).agg(squares).sort("sweep", "tokens")
    sums = np.ascontiguousarray(by_size.select("profile", "additive").to_numpy())
    profile, additive = (float(error) for error in np.sqrt(sums.sum(axis=0) / left.height))
    (ends,) = intervals_of(log_products(sums, np.array([[0.5, -0.5]])))
    is_narrow = is_known(ends) and ends.high - ends.low <= math.log(_WIDEST)
    interval = Interval(math.exp(ends.low), math.exp(ends.high)) if is_narrow else UNKNOWN
    counted = {"k_us": 1000 * k_ms, "cells": left.height, "sizes": len(sums)}
    errors = {"profile_ms": profile, "additive_ms": additive}
    return counted | errors | {"reduction": Estimate(profile / additive, interval)}


def context_slope(cells: pl.DataFrame) -> Estimate:
    """Microseconds per context token: least squares on all samples, a level of its own for each size.

    The interval is over sizes of a pass: samples of a size share what is special to it.
    """
    sums = np.array([_cross_sums(own) for own in cells.sort("tokens").partition_by("tokens", maintain_order=True)])
    total = sums.sum(axis=0)
    without, shares = total - sums, sums[:, 1] / total[1]
    spread = Spread(
        np.array([1000 * total[0] / total[1]]),
        1000 * (without[:, :1] / without[:, 1:]),
        np.array([1 / (shares**2).sum()]),
    )
    return Estimate(float(spread.whole[0]), intervals_of(spread)[0])


def _cross_sums(cells: pl.DataFrame) -> tuple[float, float]:
    """Sums of products of context and time, and of squares of the context, about the means of one size."""
    samples = cells.select("context_tokens", "samples_ms").explode("samples_ms")
    x, y = samples["context_tokens"].to_numpy().astype(np.float64), samples["samples_ms"].to_numpy()
    return float(((x - x.mean()) * (y - y.mean())).sum()), float(((x - x.mean()) ** 2).sum())


def serving_of(rounds: pl.DataFrame) -> Row:
    """How much faster serving is at the corrected price, in per cent, in rounds as `read_rounds` has them.

    Returns:
        mean: with Student's interval over rounds, as if these were independent; by_block: the same over blocks of so
        many neighbouring rounds; by_order: the same of the rounds in which either price went first; standard_errors:
        the mean over its standard error; correlation: of a round with the next; correlation_limit: what that of
        independent rounds stays below, either way, in 95 % of cases.
    """
    percent, first = rounds["percent"].to_numpy(), rounds["stock_first"].to_numpy()
    about = percent - percent.mean()
    return {
        "mean": over_blocks(percent, 1),
        "by_block": {f"over blocks of {size} rounds": over_blocks(percent, size) for size in _BLOCKS},
        "by_order": {
            "vLLM's price first": over_blocks(percent[first], 1),
            "corrected price first": over_blocks(percent[~first], 1),
        },
        "standard_errors": float(percent.mean() / (percent.std(ddof=1) / math.sqrt(len(percent)))),
        "correlation": float((about[1:] * about[:-1]).sum() / (about**2).sum()),
        "correlation_limit": _WHITE / math.sqrt(len(percent)),
    }


def _serving_text(serving: Row) -> str:
    """The means and their intervals, and how alike neighbours are."""
    named = {"over rounds": serving["mean"], **serving["by_block"], **serving["by_order"]}
    columns = [("% faster with the corrected price", "{name}"), ("mean", "{mean:v3}"), ("[95 %]", "{mean:i3}")]
    note = (
        f"Correlation of a round with the next: {serving['correlation']:.2f}; independent rounds stay below "
        f"{serving['correlation_limit']:.2f} in 19 cases of 20. Where rounds are alike the interval over blocks is the "
        "better one, though of fewer values. All rounds serve the same prompts: the intervals are of timings, not of "
        "prompts."
    )
    rows = [{"name": name, "mean": estimate} for name, estimate in named.items()]
    return f"{table('lrl', columns, rows)}\n\n{within_width(note)}"


def over_blocks(values: Doubles, size: int) -> Estimate:
    """The mean of rounds with its interval over blocks of neighbours; rounds that fill no block are left out.

    Args:
        values: float64 ``[rounds]``, in the order in which they ran.
        size: rounds of a block.

    Returns:
        without an interval where only one block is full.
    """
    means = values[: len(values) // size * size].reshape(-1, size).mean(axis=1)
    return Estimate(float(means.mean()), mean_interval(means))


def _compared(
    files: ReleasedFiles, errors: Row, slopes: Mapping[str, Estimate], rounds: pl.DataFrame, serving: Row
) -> list[ComparedFigure]:
    """Theirs of README and log beside ours; of their decisions we check only how many the log counts."""

    def theirs(pattern: str, name: str = README) -> Quoted:
        return files.quoted_pattern(name, pattern)

    counted = {mode: int(num) for mode, num in _DECISIONS.findall(files.text(LOG))}
    qwen, minicpm = slopes.values()
    medians = [Estimate(median(rounds[mode].to_list())) for mode in ("stock", "corrected")]
    error, slope = "held-out contexts, error in ms, ", "us for a context token, "
    profile, additive = (Estimate(errors[name]) for name in ("profile_ms", "additive_ms"))
    fell, unknown = "ceiling selection fell from ", Estimate(math.nan)
    ceiling = "% of decode decisions at the ceiling, "
    shown: list[tuple[str, Estimate, Quoted, int]] = [
        (
            f"{error}one price for each size",
            profile,
            theirs(r"reduces RMSE from `([\d.]+) ms`"),
            3,
        ),
        (f"{error}with the context", additive, theirs(r"to `([\d.]+) ms`"), 3),
        ("the first over the second", errors["reduction"], theirs(r"\*\*([\d.]+)× reduction"), 1),
        (f"{slope}Qwen3-1.7B", qwen, theirs(r"`([\d.]+) us/KV-token` for Qwen3"), 4),
        (f"{slope}MiniCPM5-2B", minicpm, theirs(r"`([\d.]+) us/KV-token` for MiniCPM"), 4),
        ("median tokens/s, vLLM's price", medians[0], theirs(r"stock median throughput +([\d,.]+)"), 1),
        ("median tokens/s, corrected", medians[1], theirs(r"corrected median throughput +([\d,.]+)"), 1),
        ("% faster with the corrected price", serving["mean"], theirs(r"paired mean delta +(-?[\d.]+)%"), 3),
        (
            "that mean over its standard error",
            Estimate(serving["standard_errors"]),
            theirs(r"mean is (-?[\d.]+) SE from zero", LOG),
            1,
        ),
        (
            "more batches with the corrected price",
            Estimate(counted["corrected"] - counted["stock"]),
            theirs(r"^additional decode batches +(\d+)"),
            0,
        ),
        (f"{ceiling}vLLM's price", unknown, theirs(rf"{fell}`([\d.]+)%`"), 2),
        (f"{ceiling}corrected", unknown, theirs(rf"{fell}`[\d.]+%` to `([\d.]+)%`"), 2),
    ]
    return [ComparedFigure(*figure) for figure in shown]


def _errors_text(errors: Mapping[str, Row]) -> str:
    columns = [
        ("", "{name}"),
        ("k, us", "{k_us:.4f}"),
        ("cells", "{cells}"),
        ("one price", "{profile_ms:.3f}"),
        ("with context", "{additive_ms:.3f}"),
        ("factor", "{factor}"),
        ("[95 %]", "{ends}"),
    ]
    rows = []
    for name, error in errors.items():
        ends = error["reduction"].interval
        shown = f"[{ends.low:.3g}, {ends.high:.3g}]" if is_known(ends) else f"not known: {error['sizes']} sizes"
        factor = f"{error['reduction'].value:.1f}" if is_known(ends) else "-"
        rows.append({"name": name, **error, "factor": factor, "ends": shown})
    above = within_width(
        f"Errors in ms on contexts {HELD_OUT[0]:,} and {HELD_OUT[1]:,}, which no fit saw; [95 %] over sizes of a pass. "
        "The authors print such errors of each mode, with one k of both, in FINDINGS.md (E4), and conclude that no one "
        "equation holds in both modes; the README limits the claim to CUDA graphs."
    )
    return f"{above}\n\n{table('lrrrrrl', columns, rows)}"


def _nested(estimate: Estimate) -> Row:
    """An estimate as a value of its own: its value and the ends of its interval."""
    return {key.removeprefix("value_"): value for key, value in estimate.row("value", digits=None).items()}


def _cells(rows: list[Row], name: str, context: str) -> pl.DataFrame:
    cells = [
        (
            name,
            row["num_tokens"],
            row["num_reqs"],
            row[context],
            row["num_reqs"] * row[context],
            True,
            row["forward_ms"],
            median(row["forward_ms"]),
        )
        for row in rows
    ]
    numbers = ("tokens", "requests", "context", "context_tokens")
    schema: Schema = {
        "sweep": pl.String,
        **dict.fromkeys(numbers, pl.Int64),
        "captured": pl.Boolean,
        "samples_ms": pl.List(pl.Float64),
        "median_ms": pl.Float64,
    }
    return pl.DataFrame(cells, schema=dict(schema), orient="row")
