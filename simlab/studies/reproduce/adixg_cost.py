"""vLLM on an H100: what a verification pass costs by its tokens and its context, and serving at a corrected price.

The release is github.com/adixg/vllm-specdecode-cost-model. vLLM prices a pass by its number of tokens alone, from a
profile at one context. The release times passes by tokens and context, fits ``floor(tokens) + k * context tokens``, and
serves the same prompts with both prices in turn.
"""

import math
import re
from collections.abc import Mapping

import numpy as np
import polars as pl

from simlab.analysis.statistics.intervals import (
    UNKNOWN,
    Spread,
    finite,
    intervals_of,
    log_products,
    mean_interval,
)
from simlab.analysis.table.estimates import Estimate, ratio_estimates
from simlab.analysis.table.text import is_known, within_width
from simlab.arrays import Doubles
from simlab.studies.reproduce.options import ReproduceOptions
from simlab.studies.reproduce.released import ComparedFigure, Findings, ReleasedFiles, Row, Schema, table
from simlab.studies.reproduce.wrong_prices import SERVED, wrong_prices

README = "README.md"
EAGER, CAPTURED = "results/h100_e1.json", "results/h100_e5.json"
LOG = "logs/calibrated-ab-5865211.out"
FILES = (README, EAGER, CAPTURED, SERVED, LOG)
"""What is read; the 558 kB of single decisions behind the log, other runs, and passes of a laptop are not."""

_DECISIONS = re.compile(r"^ *(stock|corrected): n=(\d+),", re.MULTILINE)
_ROUND = re.compile(r"^ *(\d+) +(stock|corrected) +[\d.]+ +\d+ +([\d.]+)$", re.MULTILINE)

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

_CELLS: Schema = {
    **dict.fromkeys(("num_tokens", "num_reqs", "context_len", "effective_context_len"), pl.Int64),
    "forward_ms": pl.List(pl.Float64),
    "predicted_ms": pl.Float64,
}


def adixg_cost(files: ReleasedFiles, options: ReproduceOptions) -> Findings:
    """Their fit, its constants and their paired rounds, again; and what a wrong price costs by our replay."""
    files.have(FILES, options.progress)
    sweeps = pl.concat([read_cells(files, name, "context_len") for name in (EAGER, CAPTURED)])
    served = read_cells(files, SERVED, "effective_context_len")
    graphs, eager, rounds = sweeps.filter("captured"), sweeps.filter(~pl.col("captured")), read_rounds(files)
    cells = {ALL: sweeps, GRAPHS: graphs, EAGER_MODE: eager, GRAPHS_ALONE: graphs}
    fitted = {name: graphs if name == GRAPHS_ALONE else sweeps for name in cells}
    errors = {name: held_out_errors(own, additive_slope(fitted[name])) for name, own in cells.items()}
    slopes, serving = [context_slope(graphs), context_slope(served)], serving_of(rounds)
    compared = _compared(files, errors[ALL], slopes, rounds, serving)
    shown = ("by_block", "correlation_of_neighbours", "correlation_of_independent_rounds_below", "by_order")
    wrong = wrong_prices(served, options)
    passes = graphs.filter(sweep=CAPTURED).select("tokens", "context", pl.col("median_ms", "profiled_ms").round(4))
    values = {
        "held_out": _nested(errors),
        "k_us_of_graphs": slopes[0].value,
        **{name: _nested(serving[name]) for name in shown},
        "paired_percent": rounds["percent"].round(4).to_list(),
        "passes": passes.to_dicts(),
    }
    return Findings(compared, [_errors_text(errors), _serving_text(serving), *wrong.tables], values | {**wrong.values})


def read_cells(files: ReleasedFiles, name: str, context: str) -> pl.DataFrame:
    """The cells of a file of passes by size and context, a row for each; `SERVED` was timed by the engine itself.

    Args:
        files: of the release.
        name: of the file.
        context: its key of the tokens that each request has before.

    Columns: sweep (the file), tokens (of the pass), requests (whose tokens these are), context (tokens that each of
    them has before), context_tokens (of all requests), captured (whether a CUDA graph was replayed), samples_ms (of
    each pass), median_ms, profiled_ms (what vLLM's profile, at its one context, says of this size) and floor_ms (the
    median of the size without context); those that the file does not tell are null.
    """
    value = files.value(name)
    return pl.DataFrame(value["rows"], schema=dict(_CELLS)).select(
        sweep=pl.lit(name),
        tokens="num_tokens",
        requests="num_reqs",
        context=context,
        context_tokens=pl.col("num_reqs") * pl.col(context),
        captured=pl.col("num_tokens") <= value.get("cudagraph_limit", math.inf),
        samples_ms="forward_ms",
        median_ms=pl.col("forward_ms").list.median(),
        profiled_ms="predicted_ms",
        floor_ms=pl.col("forward_ms").list.median().filter(pl.col(context) == 0).last().over("num_tokens"),
    )


def read_rounds(files: ReleasedFiles) -> pl.DataFrame:
    """Rounds of serving the same prompts at both prices, to a tenth of a token per second, as the log prints them.

    Columns: stock and corrected, tokens per second at vLLM's price and at the corrected price; stock_first, which
    began; percent, by how much the corrected price is faster.
    """
    lines = pl.DataFrame(_ROUND.findall(files.text(LOG)), schema=["round", "mode", "speed"], orient="row")
    rounds = lines.group_by("round", maintain_order=True).agg(
        *(pl.col("speed").cast(pl.Float64).filter(mode=mode).last().alias(mode) for mode in ("stock", "corrected")),
        stock_first=pl.col("mode").first() == "stock",
    )
    return rounds.with_columns(percent=100 * (pl.col("corrected") / pl.col("stock") - 1))


def additive_slope(cells: pl.DataFrame) -> float:
    """Milliseconds per context token, by least squares on medians over each size's pass without context.

    The contexts of `HELD_OUT` are left out of the fit.
    """
    x, y = pl.col("context_tokens"), pl.col("median_ms") - pl.col("floor_ms")
    return float(cells.filter(~pl.col("context").is_in(HELD_OUT)).select((x * y).sum() / (x * x).sum()).item())


def held_out_errors(cells: pl.DataFrame, k_ms: float) -> Row:
    """The errors of both prices on the contexts that were left out, with so many milliseconds for a context token.

    Returns:
        k_us: microseconds of one context token; cells: how many; sizes: of a pass, over which the interval is;
        profile_ms and additive_ms: root mean squared errors of vLLM's one price for each size, and of the floor of the
        size with ``k`` times the context; reduction: the first over the second, with its interval over sizes, which is
        unknown where these tell nothing.
    """
    left = cells.filter(pl.col("context").is_in(HELD_OUT))
    prices = {"profile": pl.col("profiled_ms"), "additive": pl.col("floor_ms") + k_ms * pl.col("context_tokens")}
    squares = {name: ((price - pl.col("median_ms")) ** 2).sum() for name, price in prices.items()}
    by_size = (
        left.sort("sweep", "tokens", maintain_order=True)
        .group_by("sweep", "tokens", maintain_order=True)
        .agg(**squares)
    )
    sums = np.ascontiguousarray(by_size.select(*prices).to_numpy())
    profile, additive = np.sqrt(sums.sum(axis=0) / left.height).tolist()
    (reduction,) = ratio_estimates(log_products(sums, np.array([[0.5, -0.5]])))
    ends = reduction.interval
    counted = {"k_us": 1000 * k_ms, "cells": left.height, "sizes": len(sums)}
    errors = {"profile_ms": profile, "additive_ms": additive}
    return (
        counted
        | errors
        | {"reduction": Estimate(profile / additive, ends if ends.high <= _WIDEST * ends.low else UNKNOWN)}
    )


def context_slope(cells: pl.DataFrame) -> Estimate:
    """Microseconds per context token: least squares on all samples, a level of its own for each size.

    The interval is over sizes of a pass: samples of a size share what is special to it.
    """
    samples = cells.select("tokens", x=pl.col("context_tokens").cast(pl.Float64), y="samples_ms").explode("y")
    x, y = ((pl.col(name) - pl.col(name).mean()) for name in ("x", "y"))
    by_size = samples.group_by("tokens", maintain_order=True).agg(products=(x * y).sum(), squares=(x * x).sum())
    by_size = by_size.sort("tokens")
    sums = by_size.select("products", "squares").to_numpy()
    total, shares = sums.sum(axis=0), sums[:, 1] / sums[:, 1].sum()
    without = total - sums
    slope = 1000 * total[:1] / total[1:]
    spread = Spread(slope, 1000 * (without[:, :1] / without[:, 1:]), np.array([1 / (shares**2).sum()]))
    return Estimate(float(slope[0]), intervals_of(spread)[0])


def serving_of(rounds: pl.DataFrame) -> Row:
    """How much faster serving is at the corrected price, in per cent, in rounds as `read_rounds` has them.

    Returns:
        mean: with Student's interval over rounds, as if these were independent; by_block: the same over blocks of so
        many neighbouring rounds; by_order: the same of the rounds in which either price went first; standard_errors:
        the mean over its standard error; correlation_of_neighbours: of a round with the next; and what that of
        independent rounds stays below, either way, in 95 % of cases.
    """
    percent, first = rounds["percent"].to_numpy(), rounds["stock_first"].to_numpy()
    about = percent - percent.mean()
    by_order = {"vLLM's price first": percent[first], "corrected price first": percent[~first]}
    return {
        "mean": over_blocks(percent, 1),
        "by_block": {f"over blocks of {size} rounds": over_blocks(percent, size) for size in _BLOCKS},
        "by_order": {name: over_blocks(own, 1) for name, own in by_order.items()},
        "standard_errors": float(percent.mean() / (percent.std(ddof=1) / math.sqrt(len(percent)))),
        "correlation_of_neighbours": float((about[1:] * about[:-1]).sum() / (about**2).sum()),
        "correlation_of_independent_rounds_below": _WHITE / math.sqrt(len(percent)),
    }


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
    files: ReleasedFiles, errors: Row, slopes: list[Estimate], rounds: pl.DataFrame, serving: Row
) -> list[ComparedFigure]:
    """Theirs of README and log beside ours; of their decisions we check only how many the log counts."""
    counted = {mode: int(num) for mode, num in _DECISIONS.findall(files.text(LOG))}
    more, deviations = counted["corrected"] - counted["stock"], serving["standard_errors"]
    stock, corrected = rounds.select(pl.median("stock", "corrected")).row(0)
    error, ceiling = "held-out contexts, error in ms", "% of decode decisions at the ceiling"
    slope, of_slope = "us for a context token", r"`([\d.]+) us/KV-token` for "
    fell, per_s = "ceiling selection fell from ", r"median throughput +([\d,.]+)"
    shown: list[tuple[str, Estimate | float, str, int]] = [
        (f"{error}, one price for each size", errors["profile_ms"], r"reduces RMSE from `([\d.]+) ms`", 3),
        (f"{error}, with the context", errors["additive_ms"], r"to `([\d.]+) ms`", 3),
        ("the first over the second", errors["reduction"], r"\*\*([\d.]+)× reduction", 1),
        (f"{slope}, Qwen3-1.7B", slopes[0], f"{of_slope}Qwen3", 4),
        (f"{slope}, MiniCPM5-2B", slopes[1], f"{of_slope}MiniCPM", 4),
        ("median tokens/s, vLLM's price", stock, f"stock {per_s}", 1),
        ("median tokens/s, corrected", corrected, f"corrected {per_s}", 1),
        ("% faster with the corrected price", serving["mean"], r"paired mean delta +(-?[\d.]+)%", 3),
        ("that mean over its standard error", deviations, r"mean is (-?[\d.]+) SE from zero", 1),
        ("more batches with the corrected price", more, r"^additional decode batches +(\d+)", 0),
        (f"{ceiling}, vLLM's price", math.nan, rf"{fell}`([\d.]+)%`", 2),
        (f"{ceiling}, corrected", math.nan, rf"{fell}`[\d.]+%` to `([\d.]+)%`", 2),
    ]
    figures = []
    for what, ours, pattern, digits in shown:
        theirs = files.quoted_pattern(LOG if "SE from zero" in pattern else README, pattern)
        figures.append(ComparedFigure(what, ours if isinstance(ours, Estimate) else Estimate(ours), theirs, digits))
    return figures


def _errors_text(errors: Mapping[str, Row]) -> str:
    rows = []
    for name, error in errors.items():
        ends, known = error["reduction"].interval, is_known(error["reduction"].interval)
        more = {"factor": f"{error['reduction'].value:.1f}" if known else "-"}
        more["ends"] = f"[{ends.low:.3g}, {ends.high:.3g}]" if known else f"not known: {error['sizes']} sizes"
        rows.append({"name": name, **error, **more})
    above = within_width(
        f"Errors in ms on contexts {HELD_OUT[0]:,} and {HELD_OUT[1]:,}, which no fit saw; [95 %] over sizes of a pass."
    )
    shown = (
        "= {name} | k, us = {k_us:.4f} | cells = {cells} | one price = {profile_ms:.3f} | "
        "with context = {additive_ms:.3f} | factor = {factor} | [95 %] = {ends}"
    )
    return f"{above}\n\n{table('lrrrrrl', shown, rows)}"


def _serving_text(serving: Row) -> str:
    """The means and their intervals, and how alike neighbours are."""
    named = {"over rounds": serving["mean"], **serving["by_block"], **serving["by_order"]}
    shown = "% faster with the corrected price = {name} | mean = {mean:v3} | [95 %] = {mean:i3}"
    note = (
        f"Correlation of a round with the next: {serving['correlation_of_neighbours']:.2f}; independent rounds stay "
        f"below {serving['correlation_of_independent_rounds_below']:.2f} in 19 cases of 20. Where rounds are alike "
        "the interval over blocks is the better one, though of fewer values. All rounds serve the same prompts: the "
        "intervals are of timings, not of prompts."
    )
    rows = [{"name": name, "mean": estimate} for name, estimate in named.items()]
    return f"{table('lrl', shown, rows)}\n\n{within_width(note)}"


def _nested(value: object) -> object:
    """A value with estimates as objects of their own: the value and the ends of its interval."""
    if isinstance(value, Estimate):
        return {"value": finite(value.value), **value.interval.row("ci")}
    return {name: _nested(own) for name, own in value.items()} if isinstance(value, dict) else value
