"""vLLM on an H100: what a verification pass costs by its tokens and its context, and serving at a corrected price.

vLLM prices a pass by its number of tokens alone, from a profile at one context. The release times passes by tokens and
context, fits ``floor(tokens) + k * context tokens``, and serves the same prompts with both prices in turn.
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median

import numpy as np

from simlab.analysis.released.compared import ComparedFigure, Findings
from simlab.analysis.released.files import Quoted, ReleasedFiles
from simlab.analysis.statistics.intervals import Interval, intervals_of
from simlab.analysis.statistics.jackknife import Spread, log_products
from simlab.analysis.table.text import aligned
from simlab.arrays import Bools, Doubles
from simlab.errors import SimlabError
from simlab.untrusted.json_text import parse_json

README = "README.md"
EAGER, CAPTURED = "results/h100_e1.json", "results/h100_e5.json"
SERVED, LOG = "results/minicpm_h100_dspark_k_spec7.json", "logs/calibrated-ab-5865211.out"
FILES = (README, EAGER, CAPTURED, SERVED, LOG)
"""What is read; the 558 kB of single decisions behind the log, other models and a laptop's passes are not."""

HELD_OUT = (1024, 4096)
"""Contexts that they leave out of the fit."""

_ROUND = re.compile(r"^ *(\d+) +(stock|corrected) +[\d.]+ +(\d+) +([\d.]+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class PassCell:
    """Passes of one size at one context.

    Attributes:
        sweep: the file that they are of.
        tokens: of the pass.
        requests: whose tokens these are.
        context: tokens that each request has before.
        captured: whether a CUDA graph was replayed.
        samples_ms: of each pass.
        profiled_ms: what vLLM's profile, at its one context, says of this size; NaN where it was not asked.
    """

    sweep: str
    tokens: int
    requests: int
    context: int
    captured: bool
    samples_ms: tuple[float, ...]
    profiled_ms: float = math.nan

    @property
    def median_ms(self) -> float:
        """Their summary of the samples."""
        return median(self.samples_ms)

    @property
    def context_tokens(self) -> int:
        """Tokens of all requests that the pass reads."""
        return self.requests * self.context


@dataclass(frozen=True, slots=True)
class ValueWithInterval:
    """A number of ours, and its 95 % interval."""

    value: float
    interval: Interval


@dataclass(frozen=True, slots=True)
class HeldOutErrors:
    """Root mean squared errors on the contexts that were left out of the fit, in ms.

    Attributes:
        cells: how many.
        profile: of vLLM's one price for each size.
        additive: of the floor of the size and ``k`` times the context.
        reduction: the first over the second, with its interval over sizes of a pass.
    """

    cells: int
    profile: float
    additive: float
    reduction: ValueWithInterval


@dataclass(frozen=True, slots=True)
class PairedRounds:
    """Rounds of serving the same prompts at vLLM's price and at the corrected one, in turn.

    Attributes:
        stock: float64 ``[rounds]``, tokens per second at vLLM's price.
        corrected: float64 ``[rounds]``, at the corrected one, of the same rounds.
        stock_first: bool ``[rounds]``, which of them began.
    """

    stock: Doubles
    corrected: Doubles
    stock_first: Bools

    @property
    def percent(self) -> Doubles:
        """By how much the corrected price is faster, in per cent, float64 ``[rounds]``."""
        return 100 * (self.corrected / self.stock - 1)


def adixg_cost(files: ReleasedFiles) -> Findings:
    """Their fit, its constants and their paired rounds, worked out again from samples and rounds.

    Raises:
        SimlabError: a file cannot be had, or does not hold what it should.
    """
    sweeps = [*read_sweep(files, EAGER), *read_sweep(files, CAPTURED)]
    captured = [cell for cell in sweeps if cell.captured]
    k_ms = additive_slope([cell for cell in sweeps if cell.context not in HELD_OUT])
    parts = {
        "all": held_out_errors(sweeps, k_ms),
        "CUDA graphs": held_out_errors(captured, k_ms),
        "eager": held_out_errors([cell for cell in sweeps if not cell.captured], k_ms),
    }
    graphs = context_slope(captured)
    served, rounds = context_slope(read_served(files)), read_rounds(files)
    mean = mean_with_interval(rounds.percent)
    compared = _compared(files, parts["all"], graphs, served, rounds, mean)
    orders = {
        name: mean_with_interval(rounds.percent[rounds.stock_first == first])
        for name, first in (("vLLM's price first", True), ("corrected price first", False))
    }
    return Findings(
        compared,
        _follows(parts, mean, len(rounds.percent)),
        (_errors_text(parts, k_ms), _orders_text(orders)),
        {
            "k_us_of_both_modes": 1000 * k_ms,
            "held_out": {name: _errors_row(one) for name, one in parts.items()},
            "paired_percent": [round(float(one), 4) for one in rounds.percent],
            "by_order": {name: _row(one) for name, one in orders.items()},
            "passes": [_pass_row(cell) for cell in captured if cell.sweep == CAPTURED],
            "k_us_of_graphs": graphs.value,
        },
    )


def read_sweep(files: ReleasedFiles, name: str) -> list[PassCell]:
    """The cells of a sweep of sizes and contexts.

    Raises:
        SimlabError: it holds something else.
    """
    found = _object(files, name)
    limit, rows = found.get("cudagraph_limit"), found.get("rows")
    if not isinstance(limit, int) or not isinstance(rows, list):
        raise SimlabError(f"{name} has no sweep: expected cudagraph_limit and rows")
    cells = []
    for row in rows:
        tokens = _whole(row, "num_tokens", name)
        samples, profiled = _samples(row, name), _number(row, "predicted_ms", name)
        requests, context = _whole(row, "num_reqs", name), _whole(row, "context_len", name)
        cells.append(PassCell(name, tokens, requests, context, tokens <= limit, samples, profiled))
    return cells


def read_served(files: ReleasedFiles) -> list[PassCell]:
    """The cells that the serving engine itself timed before the paired rounds; all are captured sizes.

    Raises:
        SimlabError: it holds something else.
    """
    rows = _object(files, SERVED).get("rows")
    if not isinstance(rows, list):
        raise SimlabError(f"{SERVED} has no rows")
    return [
        PassCell(
            SERVED,
            _whole(row, "num_tokens", SERVED),
            _whole(row, "num_reqs", SERVED),
            _whole(row, "effective_context_len", SERVED),
            True,
            _samples(row, SERVED),
        )
        for row in rows
    ]


def read_rounds(files: ReleasedFiles) -> PairedRounds:
    """The rounds as the log prints them, to a tenth of a token per second.

    Raises:
        SimlabError: a round lacks one of the two, or wrote another number of tokens.
    """
    speeds: dict[int, dict[str, float]] = {}
    tokens = set()
    for number, mode, written, speed in _ROUND.findall(files.text(LOG)):
        speeds.setdefault(int(number), {})[mode] = float(speed)
        tokens.add(written)
    if not speeds or any(len(one) != 2 for one in speeds.values()) or len(tokens) != 1:
        raise SimlabError(f"{LOG} has no paired rounds of equally many tokens; expected both prices in each round")
    stock, corrected = (np.array([one[mode] for one in speeds.values()]) for mode in ("stock", "corrected"))
    return PairedRounds(stock, corrected, np.array([next(iter(one)) == "stock" for one in speeds.values()]))


def additive_slope(cells: Sequence[PassCell]) -> float:
    """Milliseconds per context token, by least squares on medians over each size's pass without context."""
    floors = floors_of(cells)
    over = [(cell.context_tokens, cell.median_ms - floors[cell.sweep, cell.tokens]) for cell in cells]
    return sum(x * y for x, y in over) / sum(x * x for x, _ in over)


def floors_of(cells: Iterable[PassCell]) -> dict[tuple[str, int], float]:
    """The median without context, by sweep and size."""
    return {(cell.sweep, cell.tokens): cell.median_ms for cell in cells if cell.context == 0}


def held_out_errors(cells: Sequence[PassCell], k_ms: float) -> HeldOutErrors:
    """The errors of both prices on the contexts that were left out.

    Args:
        cells: those without context among them.
        k_ms: of one context token.
    """
    floors = floors_of(cells)
    left = [cell for cell in cells if cell.context in HELD_OUT]
    sizes = sorted({(cell.sweep, cell.tokens) for cell in left})
    sums = np.zeros((len(sizes), 2))
    for cell in left:
        additive = floors[cell.sweep, cell.tokens] + k_ms * cell.context_tokens
        place = sizes.index((cell.sweep, cell.tokens))
        sums[place] += (cell.profiled_ms - cell.median_ms) ** 2, (additive - cell.median_ms) ** 2
    profile, additive = np.sqrt(sums.sum(axis=0) / len(left))
    (ends,) = intervals_of(log_products(sums, np.array([[0.5, -0.5]])))
    interval = Interval(math.exp(ends.low), math.exp(ends.high))
    return HeldOutErrors(
        len(left), float(profile), float(additive), ValueWithInterval(float(profile / additive), interval)
    )


def context_slope(cells: Sequence[PassCell]) -> ValueWithInterval:
    """Microseconds per context token: least squares on all samples, a level of its own for each size.

    The interval is over sizes of a pass: samples of a size share what is special to it.
    """
    sizes = sorted({cell.tokens for cell in cells})
    sums = np.array([_cross_sums([cell for cell in cells if cell.tokens == size]) for size in sizes])
    total = sums.sum(axis=0)
    without = total - sums
    shares = sums[:, 1] / total[1]
    spread = Spread(
        np.array([1000 * total[0] / total[1]]),
        1000 * (without[:, :1] / without[:, 1:]),
        np.array([1 / (shares**2).sum()]),
    )
    return ValueWithInterval(float(spread.whole[0]), intervals_of(spread)[0])


def _cross_sums(cells: Sequence[PassCell]) -> tuple[float, float]:
    """Sums of products of context and time, and of squares of the context, about the means of one size."""
    x = np.concatenate([np.full(len(cell.samples_ms), cell.context_tokens, np.float64) for cell in cells])
    y = np.concatenate([np.array(cell.samples_ms) for cell in cells])
    return float(((x - x.mean()) * (y - y.mean())).sum()), float(((x - x.mean()) ** 2).sum())


def mean_with_interval(values: Doubles) -> ValueWithInterval:
    """The mean of some rounds, with Student's interval over them.

    Args:
        values: float64 ``[rounds]``.
    """
    number = len(values)
    without = ((values.sum() - values) / (number - 1))[:, None]
    spread = Spread(np.array([values.mean()]), without, np.array([float(number)]))
    return ValueWithInterval(fmean(values), intervals_of(spread)[0])


def quoted_pattern(files: ReleasedFiles, name: str, pattern: str) -> Quoted:
    """A number that a text file prints, found by what stands around it.

    Args:
        files: of the release.
        name: of the file.
        pattern: a regular expression for a part of a line, whose one group is the number.

    Raises:
        SimlabError: no line matches.
    """
    for number, line in enumerate(files.text(name).split("\n"), 1):
        if match := re.search(pattern, line):
            return files.quoted(name, float(match[1].replace(",", "")), f"line {number}")
    raise SimlabError(f"{name} has no line that matches {pattern!r}")


def _compared(
    files: ReleasedFiles,
    errors: HeldOutErrors,
    graphs: ValueWithInterval,
    served: ValueWithInterval,
    rounds: PairedRounds,
    mean: ValueWithInterval,
) -> tuple[ComparedFigure, ...]:

    def theirs(pattern: str) -> Quoted:
        return quoted_pattern(files, README, pattern)

    reduction, error = errors.reduction, "held-out contexts, error in ms, "
    rmse = r"reduces RMSE from `([\d.]+) ms`", r"to `([\d.]+) ms`"
    return (
        ComparedFigure(f"{error}one price for each size", errors.profile, theirs(rmse[0]), digits=3),
        ComparedFigure(f"{error}with the context", errors.additive, theirs(rmse[1]), digits=3),
        ComparedFigure(
            "the first over the second", reduction.value, theirs(r"\*\*([\d.]+)× reduction"), reduction.interval, 1
        ),
        ComparedFigure(
            "us for a context token, Qwen3-1.7B",
            graphs.value,
            theirs(r"`([\d.]+) us/KV-token` for Qwen3"),
            graphs.interval,
            4,
        ),
        ComparedFigure(
            "us for a context token, MiniCPM5-2B",
            served.value,
            theirs(r"`([\d.]+) us/KV-token` for MiniCPM"),
            served.interval,
            4,
        ),
        ComparedFigure(
            "median tokens/s, vLLM's price",
            median(rounds.stock),
            theirs(r"stock median throughput +([\d,.]+)"),
            digits=1,
        ),
        ComparedFigure(
            "median tokens/s, corrected",
            median(rounds.corrected),
            theirs(r"corrected median throughput +([\d,.]+)"),
            digits=1,
        ),
        ComparedFigure(
            "% faster with the corrected price",
            mean.value,
            theirs(r"paired mean delta +(-?[\d.]+)%"),
            mean.interval,
            3,
        ),
    )


def _follows(parts: Mapping[str, HeldOutErrors], mean: ValueWithInterval, num_rounds: int) -> str:
    graphs, eager = parts["CUDA graphs"].reduction, parts["eager"].reduction
    no_gain = eager.interval.low <= 1 <= eager.interval.high
    in_eager = "shows no gain" if no_gain else f"errs {eager.value:.1f} times less"
    low, high = mean.interval.low, mean.interval.high
    differs = not low <= 0 <= high
    verdict = f"was {abs(mean.value):.2f} % {'slower' if mean.value < 0 else 'faster'}"
    served = verdict if differs else f"made no difference that {num_rounds} rounds show"
    return (
        f"a price with the context errs {graphs.value:.0f} times less where CUDA graphs are replayed and {in_eager} in "
        f"eager mode, so their one factor depends on how many cells of each were timed; in serving, the better price "
        f"{served}, on one set of prompts, timed again and again: the interval is of timings, not of prompts."
    )


def _errors_text(parts: Mapping[str, HeldOutErrors], k_ms: float) -> str:
    cells = [["", "cells", "one price", "with context", "factor", "[95 %]"]]
    for name, one in parts.items():
        ends = one.reduction.interval
        shown = f"[{ends.low:.3g}, {ends.high:.3g}]"
        numbers = [str(one.cells), f"{one.profile:.3f}", f"{one.additive:.3f}", f"{one.reduction.value:.1f}", shown]
        cells.append([name, *numbers])
    heading = (
        f"Errors in ms on contexts {HELD_OUT[0]:,} and {HELD_OUT[1]:,}, which the fit of one k to all other cells "
        f"({1000 * k_ms:.4f} us)\ndid not see; [95 %] over sizes of a pass:"
    )
    return f"{heading}\n\n{aligned(cells, [True, False, False, False, False, True])}"


def _orders_text(orders: Mapping[str, ValueWithInterval]) -> str:
    cells = [["% faster with the corrected price, by which went first", "mean", "[95 %]"]]
    for name, one in orders.items():
        cells.append([name, f"{one.value:.3f}", f"[{one.interval.low:.3f}, {one.interval.high:.3f}]"])
    return aligned(cells, [True, False, True])


def _errors_row(one: HeldOutErrors) -> dict[str, object]:
    return {
        "cells": one.cells,
        "profile_ms": one.profile,
        "additive_ms": one.additive,
        "reduction": _row(one.reduction),
    }


def _row(one: ValueWithInterval) -> dict[str, float]:
    return {"value": one.value, "ci_low": one.interval.low, "ci_high": one.interval.high}


def _pass_row(cell: PassCell) -> dict[str, float]:
    return {
        "tokens": cell.tokens,
        "context": cell.context,
        "median_ms": round(cell.median_ms, 4),
        "profiled_ms": round(cell.profiled_ms, 4),
    }


def _object(files: ReleasedFiles, name: str) -> Mapping[str, object]:
    try:
        found = parse_json(files.text(name))
    except ValueError as error:
        raise SimlabError(f"{name} is not JSON as simlab reads it ({error})") from error
    if not isinstance(found, dict):
        raise SimlabError(f"{name}: expected a JSON object; got {type(found).__name__}")
    return found


def _whole(row: Mapping[str, object], name: str, where: str) -> int:
    value = row.get(name)
    if not isinstance(value, int) or value < 0:
        raise SimlabError(f"{where}: expected a whole number as {name}; got {value!r}")
    return value


def _number(row: Mapping[str, object], name: str, where: str) -> float:
    value = row.get(name)
    if not isinstance(value, (int, float)) or value <= 0:
        raise SimlabError(f"{where}: expected a number above 0 as {name}; got {value!r}")
    return float(value)


def _samples(row: Mapping[str, object], where: str) -> tuple[float, ...]:
    values = row.get("forward_ms")
    if not isinstance(values, list) or not values or not all(isinstance(one, float) and one > 0 for one in values):
        raise SimlabError(f"{where}: expected times of passes as forward_ms; got {str(values)[:40]}")
    return tuple(values)
