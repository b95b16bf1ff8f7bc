"""vLLM on an H100: what a verification pass costs by its tokens and its context, and serving at a corrected price.

The release is github.com/adixg/vllm-specdecode-cost-model. vLLM prices a pass by its number of tokens alone, from a
profile at one context. The release times passes by tokens and context, fits ``floor(tokens) + k * context tokens``, and
serves the same prompts with both prices in turn.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median

import numpy as np
import polars as pl

from simlab.analysis.statistics.intervals import (
    UNKNOWN,
    Interval,
    Spread,
    finite,
    intervals_of,
    log_products,
    mean_interval,
)
from simlab.analysis.table.estimates import Estimate
from simlab.analysis.table.text import is_known, within_width
from simlab.arrays import Doubles
from simlab.errors import SimlabError
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
    serving, wrong = Serving.of_rounds(rounds), wrong_prices(served, options)
    passes = graphs.filter(pl.col("sweep") == CAPTURED).select("tokens", "context", "median_ms", "profiled_ms")
    return Findings(
        _compared(files, errors[ALL], {"Qwen3-1.7B": slope, "MiniCPM5-2B": context_slope(served)}, rounds, serving),
        f"{_errors_follow(errors)} In their log, {serving.follows()} All rounds serve the same prompts: the interval "
        f"is of timings, not of prompts. {wrong.follows()}",
        [_errors_text(errors), serving.text(), wrong.text()],
        {
            "held_out": {name: error.row() for name, error in errors.items()},
            "k_us_of_graphs": slope.value,
            **serving.values(),
            "paired_percent": [round(one, 4) for one in rounds["percent"]],
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
    value = _object(files, name)
    limit, rows = value.get("cudagraph_limit"), value.get("rows")
    if not isinstance(limit, int) or not isinstance(rows, list):
        raise SimlabError(f"{name} has no sweep: expected cudagraph_limit and rows")
    cells = _cells(rows, name, "context_len").with_columns(
        (pl.col("tokens") <= limit).alias("captured"),
        pl.Series("profiled_ms", [_number(row, "predicted_ms", name) for row in rows], pl.Float64),
        pl.col("median_ms").filter(pl.col("context") == 0).last().over("tokens").alias("floor_ms"),
    )
    if cells["floor_ms"].null_count():
        raise SimlabError(f"{name} has no pass without context of some size; expected context_len 0 of each")
    return cells


def read_served(files: ReleasedFiles) -> pl.DataFrame:
    """The cells that the serving engine itself timed before the paired rounds, as those of `read_sweep`."""
    rows = _object(files, SERVED).get("rows")
    if not isinstance(rows, list):
        raise SimlabError(f"{SERVED} has no rows")
    return _cells(rows, SERVED, "effective_context_len")


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
    if rounds.is_empty() or any(rounds.null_count().row(0)) or lines["tokens"].n_unique() != 1:
        raise SimlabError(f"{LOG} has no paired rounds of equally many tokens; expected both prices in each round")
    return rounds.with_columns((100 * (pl.col("corrected") / pl.col("stock") - 1)).alias("percent"))


def additive_slope(cells: pl.DataFrame) -> float:
    """Milliseconds per context token, by least squares on medians over each size's pass without context.

    The contexts of `HELD_OUT` are left out of the fit.
    """
    fitted = cells.filter(~pl.col("context").is_in(HELD_OUT))
    over = fitted.select("context_tokens", pl.col("median_ms") - pl.col("floor_ms")).rows()
    return float(sum(x * y for x, y in over) / sum(x * x for x, _ in over))


@dataclass(frozen=True, slots=True)
class HeldOutErrors:
    """Root mean squared errors on the contexts that were left out of a fit, in ms.

    Attributes:
        k_ms: what the fit says of one context token.
        cells: how many.
        sizes: of a pass, over which the interval is.
        profile: the error of vLLM's one price for each size.
        additive: that of the floor of the size and ``k`` times the context.
        reduction: the first over the second, with its interval over sizes; unknown where these tell nothing.
    """

    k_ms: float
    cells: int
    sizes: int
    profile: float
    additive: float
    reduction: Estimate

    @property
    def in_words(self) -> str:
        """How much smaller or larger the error of the price with the context is, in a clause."""
        factor, side = self.reduction.value, self.reduction.side_of(1)
        if not is_known(self.reduction.interval):
            errors = f"errors are {self.profile:.2f} ms at one price and {self.additive:.2f} ms with the context"
            return f"{errors} ({self.sizes} sizes do not tell the factor)"
        if side == 0:
            return f"shows no difference ({self.profile:.2f} and {self.additive:.2f} ms)"
        digits = 0 if max(factor, 1 / factor) >= 10 else 1
        return f"errs {factor:.{digits}f} times less" if side > 0 else f"errs {1 / factor:.{digits}f} times more"

    def row(self) -> Row:
        """As a script reads it; what is not known is None."""
        sizes = {"k_us": 1000 * self.k_ms, "cells": self.cells, "sizes": self.sizes}
        errors = {"profile_ms": self.profile, "additive_ms": self.additive}
        return sizes | errors | {"reduction": _nested(self.reduction)}


def held_out_errors(cells: pl.DataFrame, k_ms: float) -> HeldOutErrors:
    """The errors of both prices on the contexts that were left out, with so many milliseconds for a context token."""
    additive_ms = pl.col("floor_ms") + k_ms * pl.col("context_tokens")
    left = cells.filter(pl.col("context").is_in(HELD_OUT))
    squares = [
        ((price - pl.col("median_ms")) ** 2).sum().alias(name)
        for name, price in (("profile", pl.col("profiled_ms")), ("additive", additive_ms))
    ]
    by_size = left.group_by("sweep", "tokens").agg(squares).sort("sweep", "tokens")
    sums = np.ascontiguousarray(by_size.select("profile", "additive").to_numpy())
    profile, additive = (float(one) for one in np.sqrt(sums.sum(axis=0) / left.height))
    (ends,) = intervals_of(log_products(sums, np.array([[0.5, -0.5]])))
    told = is_known(ends) and ends.high - ends.low <= math.log(_WIDEST)
    interval = Interval(math.exp(ends.low), math.exp(ends.high)) if told else UNKNOWN
    reduction = Estimate(profile / additive if additive > 0 else math.nan, interval)
    return HeldOutErrors(k_ms, left.height, len(sums), profile, additive, reduction)


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


@dataclass(frozen=True, slots=True)
class Serving:
    """How much faster serving is at the corrected price, in per cent.

    Attributes:
        rounds: how many.
        mean: with Student's interval over rounds, as if these were independent.
        by_block: the same over blocks of so many neighbouring rounds.
        by_order: the same of the rounds in which either price went first, by which.
        standard_errors: the mean over its standard error; NaN of fewer than two rounds, or of equal ones.
        correlation: of a round with the next; NaN where all are equal.
    """

    rounds: int
    mean: Estimate
    by_block: Mapping[int, Estimate]
    by_order: Mapping[str, Estimate]
    standard_errors: float
    correlation: float

    @classmethod
    def of_rounds(cls, rounds: pl.DataFrame) -> "Serving":
        """The difference in rounds as `read_rounds` has them, in the order in which they ran."""
        percent, first = rounds["percent"].to_numpy(), rounds["stock_first"].to_numpy()
        about = percent - percent.mean()
        squares, has_error = float((about**2).sum()), len(percent) > 1 and np.ptp(percent) > 0
        error = percent.std(ddof=1) / math.sqrt(len(percent)) if has_error else math.nan
        return cls(
            len(percent),
            over_blocks(percent, 1),
            {size: over_blocks(percent, size) for size in _BLOCKS},
            {
                "vLLM's price first": over_blocks(percent[first], 1),
                "corrected price first": over_blocks(percent[~first], 1),
            },
            float(percent.mean() / error),
            float((about[1:] * about[:-1]).sum()) / squares if squares > 0 else math.nan,
        )

    @property
    def correlation_limit(self) -> float:
        """What the correlation of independent rounds stays below, either way, in 95 % of cases."""
        return _WHITE / math.sqrt(self.rounds)

    def follows(self) -> str:
        """What serving comes to, in a sentence."""
        if self.mean.side_of(0) == 0:
            return f"serving at the corrected price made no difference that {self.rounds} rounds show."
        direction = "slower" if self.mean.value < 0 else "faster"
        said = f"serving at the corrected price was {abs(self.mean.value):.2f} % {direction} over rounds"
        unsure = {size: self.rounds // size for size, estimate in self.by_block.items() if not estimate.side_of(0)}
        if not unsure:
            return f"{said}, and over blocks of {' and '.join(map(str, self.by_block))} rounds too."
        blocks = [f"{num} block{'' if num == 1 else 's'} of {size}" for size, num in unsure.items()]
        alike = "are" if abs(self.correlation) > self.correlation_limit else "may be"
        verb = "does" if list(unsure.values()) == [1] else "do"
        taken = f"if neighbouring rounds are taken together, as they {alike} alike"
        return f"{said}; {taken}, {' and '.join(blocks)} {verb} not show it."

    def text(self) -> str:
        """The means and their intervals, and how alike neighbours are."""
        blocks = {f"over blocks of {size} rounds": estimate for size, estimate in self.by_block.items()}
        named = {"over rounds": self.mean, **blocks, **self.by_order}
        rows = [{"name": name, "mean": estimate, "ends": f"{estimate:i3}" or "-"} for name, estimate in named.items()]
        columns = [("% faster with the corrected price", "{name}"), ("mean", "{mean:v3}"), ("[95 %]", "{ends}")]
        text = table("lrl", columns, rows)
        if math.isnan(self.correlation):
            return text
        shown = "more" if abs(self.correlation) > self.correlation_limit else "no more"
        note = (
            f"Correlation of a round with the next: {self.correlation:.2f}, {shown} than the "
            f"{self.correlation_limit:.2f} that independent rounds reach in one case of 20. Where rounds are alike the "
            "interval over blocks is the better one, though of fewer values."
        )
        return f"{text}\n\n{within_width(note)}"

    def values(self) -> Row:
        """What ``--json`` prints of it; what is not known is None."""
        return {
            "by_block": {
                f"over blocks of {size} rounds": _nested(estimate) for size, estimate in self.by_block.items()
            },
            "correlation_of_neighbours": finite(self.correlation),
            "correlation_of_independent_rounds_below": self.correlation_limit,
            "by_order": {name: _nested(estimate) for name, estimate in self.by_order.items()},
        }


def over_blocks(values: Doubles, size: int) -> Estimate:
    """The mean of rounds with its interval over blocks of neighbours; rounds that fill no block are left out.

    Args:
        values: float64 ``[rounds]``, in the order in which they ran.
        size: rounds of a block.

    Returns:
        NaN where no block is full; without an interval where only one is.
    """
    means = values[: len(values) // size * size].reshape(-1, size).mean(axis=1)
    return Estimate(float(means.mean()) if len(means) else math.nan, mean_interval(means))


def _compared(
    files: ReleasedFiles, errors: HeldOutErrors, slopes: Mapping[str, Estimate], rounds: pl.DataFrame, serving: Serving
) -> list[ComparedFigure]:
    """Theirs of README and log beside ours; of their decisions we check only how many the log counts."""

    def theirs(pattern: str, name: str = README) -> Quoted:
        return files.quoted_pattern(name, pattern)

    counted = {mode: int(num) for mode, num in _DECISIONS.findall(files.text(LOG))}
    if len(counted) != 2:
        raise SimlabError(f"{LOG} does not count the decisions at both prices")
    qwen, minicpm = slopes.values()
    medians = [Estimate(median(rounds[mode].to_list())) for mode in ("stock", "corrected")]
    error, slope = "held-out contexts, error in ms, ", "us for a context token, "
    fell, unknown = "ceiling selection fell from ", Estimate(math.nan)
    ceiling = "% of decode decisions at the ceiling, "
    shown: list[tuple[str, Estimate, Quoted, int]] = [
        (f"{error}one price for each size", Estimate(errors.profile), theirs(r"reduces RMSE from `([\d.]+) ms`"), 3),
        (f"{error}with the context", Estimate(errors.additive), theirs(r"to `([\d.]+) ms`"), 3),
        ("the first over the second", errors.reduction, theirs(r"\*\*([\d.]+)× reduction"), 1),
        (f"{slope}Qwen3-1.7B", qwen, theirs(r"`([\d.]+) us/KV-token` for Qwen3"), 4),
        (f"{slope}MiniCPM5-2B", minicpm, theirs(r"`([\d.]+) us/KV-token` for MiniCPM"), 4),
        ("median tokens/s, vLLM's price", medians[0], theirs(r"stock median throughput +([\d,.]+)"), 1),
        ("median tokens/s, corrected", medians[1], theirs(r"corrected median throughput +([\d,.]+)"), 1),
        ("% faster with the corrected price", serving.mean, theirs(r"paired mean delta +(-?[\d.]+)%"), 3),
        (
            "that mean over its standard error",
            Estimate(serving.standard_errors),
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
    return [ComparedFigure(*one) for one in shown]


def _errors_follow(errors: Mapping[str, HeldOutErrors]) -> str:
    graphs, alone, eager = (errors[name] for name in (GRAPHS, GRAPHS_ALONE, EAGER_MODE))
    own = f" ({alone.in_words} with k of these alone)" if alone.in_words != graphs.in_words else ""
    return (
        f"on the contexts left out, a price with the context {graphs.in_words} where CUDA graphs are replayed{own}; in "
        f"eager mode {'it ' if is_known(eager.reduction.interval) else ''}{eager.in_words}."
    )


def _errors_text(errors: Mapping[str, HeldOutErrors]) -> str:
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
        ends, told = error.reduction.interval, is_known(error.reduction.interval)
        shown = f"[{ends.low:.3g}, {ends.high:.3g}]" if told else f"not told: {error.sizes} sizes"
        rows.append(
            {"name": name, **error.row(), "factor": f"{error.reduction.value:.1f}" if told else "-", "ends": shown}
        )
    above = within_width(
        f"Errors in ms on contexts {HELD_OUT[0]:,} and {HELD_OUT[1]:,}, which no fit saw; [95 %] over sizes of a pass. "
        "The authors print such errors of each mode, with one k of both, in FINDINGS.md (E4), and conclude that no one "
        "equation holds in both modes; the README limits the claim to CUDA graphs."
    )
    return f"{above}\n\n{table('lrrrrrl', columns, rows)}"


def _nested(estimate: Estimate) -> Row:
    """An estimate as a value of its own: its value and the ends of its interval."""
    return {key.removeprefix("value_"): value for key, value in estimate.row("value", digits=None).items()}


def _object(files: ReleasedFiles, name: str) -> Row:
    value = files.value(name)
    if not isinstance(value, dict):
        raise SimlabError(f"{name}: expected a JSON object; got {type(value).__name__}")
    return value


def _cells(rows: list[Row], name: str, context: str) -> pl.DataFrame:
    cells = []
    for row in rows:
        tokens, requests, before = (_whole(row, key, name) for key in ("num_tokens", "num_reqs", context))
        cells.append((name, tokens, requests, before, requests * before, True, _samples(row, name)))
    numbers = ("tokens", "requests", "context", "context_tokens")
    schema: Schema = {
        "sweep": pl.String,
        **dict.fromkeys(numbers, pl.Int64),
        "captured": pl.Boolean,
        "samples_ms": pl.List(pl.Float64),
    }
    medians = pl.Series("median_ms", [median(cell[-1]) for cell in cells], pl.Float64)
    return pl.DataFrame(cells, schema=dict(schema), orient="row").with_columns(medians)


def _whole(row: Row, name: str, where: str) -> int:
    value = row.get(name)
    if not isinstance(value, int) or value < 0:
        raise SimlabError(f"{where}: expected a whole number as {name}; got {value!r}")
    return value


def _number(row: Row, name: str, where: str) -> float:
    value = row.get(name)
    if not isinstance(value, (int, float)) or value <= 0:
        raise SimlabError(f"{where}: expected a number above 0 as {name}; got {value!r}")
    return float(value)


def _samples(row: Row, where: str) -> list[float]:
    values = row.get("forward_ms")
    if (
        not isinstance(values, list)
        or not values
        or not all(isinstance(value, float) and value > 0 for value in values)
    ):
        raise SimlabError(f"{where}: expected times of passes as forward_ms; got {str(values)[:40]}")
    return values
