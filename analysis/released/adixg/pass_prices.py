"""vLLM on an H100: what a verification pass costs by its tokens and its context, and serving at a corrected price.

vLLM prices a pass by its number of tokens alone, from a profile at one context. The release times passes by tokens and
context, fits ``floor(tokens) + k * context tokens``, and serves the same prompts with both prices in turn.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median

import numpy as np

from simlab.analysis.released.adixg.records import (
    CAPTURED,
    EAGER,
    README,
    PairedRounds,
    PassCell,
    read_rounds,
    read_served,
    read_sweep,
)
from simlab.analysis.released.compared import ComparedFigure, Findings
from simlab.analysis.released.files import Quoted, ReleasedFiles
from simlab.analysis.statistics.intervals import Interval, intervals_of
from simlab.analysis.statistics.jackknife import Spread, log_products
from simlab.analysis.table.text import aligned
from simlab.arrays import Doubles

HELD_OUT = (1024, 4096)
"""Contexts that they leave out of the fit."""

BLOCKS = (2, 4)
"""Rounds of serving that are taken together, since neighbours are alike; with an even number each price goes first as
often."""


@dataclass(frozen=True, slots=True)
class ValueWithInterval:
    """A number of ours, and its 95 % interval."""

    value: float
    interval: Interval

    def differs_from(self, other: float) -> bool:
        """Whether the interval is known and leaves a value out."""
        return self.interval.low > other or self.interval.high < other


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
    blocks = {f"over blocks of {size} rounds": over_blocks(rounds.percent, size) for size in BLOCKS}
    alike = neighbours_alike(rounds.percent)
    return Findings(
        compared,
        _follows(parts, mean, blocks, len(rounds.percent)),
        (_errors_text(parts, k_ms), _serving_text({"over rounds": mean, **blocks, **orders}, alike)),
        {
            "k_us_of_both_modes": 1000 * k_ms,
            "held_out": {name: _errors_row(one) for name, one in parts.items()},
            "paired_percent": [round(float(one), 4) for one in rounds.percent],
            "by_block": {name: _row(one) for name, one in blocks.items()},
            "correlation_of_neighbours": alike,
            "by_order": {name: _row(one) for name, one in orders.items()},
            "passes": [_pass_row(cell) for cell in captured if cell.sweep == CAPTURED],
            "k_us_of_graphs": graphs.value,
        },
    )


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


def over_blocks(values: Doubles, size: int) -> ValueWithInterval:
    """The mean of rounds with its interval over blocks of neighbours; rounds that fill no block are left out.

    Args:
        values: float64 ``[rounds]``, in the order in which they ran.
        size: rounds of a block.
    """
    whole = values[: len(values) // size * size]
    return mean_with_interval(whole.reshape(-1, size).mean(axis=1))


def neighbours_alike(values: Doubles) -> float:
    """Correlation of each round with the next one.

    Args:
        values: float64 ``[rounds]``, in the order in which they ran.
    """
    about = values - values.mean()
    return float((about[1:] * about[:-1]).sum() / (about**2).sum())


def _compared(
    files: ReleasedFiles,
    errors: HeldOutErrors,
    graphs: ValueWithInterval,
    served: ValueWithInterval,
    rounds: PairedRounds,
    mean: ValueWithInterval,
) -> tuple[ComparedFigure, ...]:

    def theirs(pattern: str) -> Quoted:
        return files.quoted_pattern(README, pattern)

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


def _follows(
    parts: Mapping[str, HeldOutErrors],
    mean: ValueWithInterval,
    blocks: Mapping[str, ValueWithInterval],
    num_rounds: int,
) -> str:
    graphs, eager = parts["CUDA graphs"].reduction, parts["eager"].reduction
    in_eager = f"errs {eager.value:.1f} times less" if eager.differs_from(1) else "shows no gain"
    served = f"was {abs(mean.value):.2f} % {'slower' if mean.value < 0 else 'faster'}"
    unsure = [name for name, one in blocks.items() if not one.differs_from(0)]
    if not mean.differs_from(0):
        served = f"made no difference that {num_rounds} rounds show"
    elif unsure:
        served += f", but {unsure[0]} the interval holds 0"
    return (
        f"a price with the context errs {graphs.value:.0f} times less where CUDA graphs are replayed and {in_eager} in "
        f"eager mode, so their one factor depends on how many cells of each were timed; in serving, the better price "
        f"{served}. That is one set of prompts, timed again and again: the interval is of timings, not of prompts."
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


def _serving_text(means: Mapping[str, ValueWithInterval], alike: float) -> str:
    cells = [["% faster with the corrected price", "mean", "[95 %]"]]
    for name, one in means.items():
        cells.append([name, f"{one.value:.3f}", f"[{one.interval.low:.3f}, {one.interval.high:.3f}]"])
    said = f"Correlation of a round with the next: {alike:.2f}. Where rounds are alike, blocks of them have the wider"
    return f"{aligned(cells, [True, False, True])}\n\n{said}\nand better interval."


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
