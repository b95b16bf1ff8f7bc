"""vLLM on an H100: what a verification pass costs by its tokens and its context, and serving at a corrected price.

vLLM prices a pass by its number of tokens alone, from a profile at one context. The release times passes by tokens and
context, fits ``floor(tokens) + k * context tokens``, and serves the same prompts with both prices in turn.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from simlab.analysis.released.adixg.pass_fits import (
    HELD_OUT,
    HeldOutErrors,
    ValueWithInterval,
    additive_slope,
    context_slope,
    fitted_cells,
    held_out_errors,
)
from simlab.analysis.released.adixg.records import (
    CAPTURED,
    EAGER,
    LOG,
    README,
    PairedRounds,
    PassCell,
    read_decisions,
    read_rounds,
    read_served,
    read_sweep,
)
from simlab.analysis.released.adixg.served_rounds import ServedDifference, served_difference
from simlab.analysis.released.compared import ComparedFigure, Findings
from simlab.analysis.released.files import Quoted, ReleasedFiles
from simlab.analysis.table.text import aligned, is_known, within_width

ALL, GRAPHS, EAGER_MODE, GRAPHS_ALONE = "all", "CUDA graphs", "eager", "CUDA graphs, k of these alone"
"""Cells on which errors are taken; the first three with one k of both modes, as they do."""


@dataclass(frozen=True, slots=True)
class PassFits:
    """What the two sweeps and the serving engine's own passes come to.

    Attributes:
        errors: on the contexts that were left out, by `ALL` and the others.
        qwen: microseconds for a context token, Qwen3-1.7B, of passes that replay a CUDA graph.
        minicpm: the same of MiniCPM5-2B, as the serving engine timed it.
    """

    errors: Mapping[str, HeldOutErrors]
    qwen: ValueWithInterval
    minicpm: ValueWithInterval


def adixg_cost(files: ReleasedFiles) -> Findings:
    """Their fit, its constants and their paired rounds, worked out again from samples and rounds.

    Raises:
        SimlabError: a file cannot be had, or does not hold what it should.
    """
    sweeps = [*read_sweep(files, EAGER), *read_sweep(files, CAPTURED)]
    graphs = [cell for cell in sweeps if cell.captured]
    fits = PassFits(_errors(sweeps, graphs), context_slope(graphs), context_slope(read_served(files)))
    rounds = read_rounds(files)
    served = served_difference(rounds)
    compared = (
        *_compared_errors(files, fits.errors[ALL]),
        *_compared_slopes(files, fits),
        *_compared_serving(files, rounds, served),
        *_compared_decisions(files),
    )
    return Findings(
        compared,
        _follows(fits.errors, served),
        (_errors_text(fits.errors), served.text()),
        {
            "held_out": {name: one.row() for name, one in fits.errors.items()},
            "k_us_of_graphs": fits.qwen.value,
            **served.values(),
            "paired_percent": [round(float(one), 4) for one in rounds.percent],
            "passes": [_pass_row(cell) for cell in graphs if cell.sweep == CAPTURED],
        },
    )


def _errors(sweeps: Sequence[PassCell], graphs: Sequence[PassCell]) -> dict[str, HeldOutErrors]:
    k_ms, k_of_graphs = additive_slope(fitted_cells(sweeps)), additive_slope(fitted_cells(graphs))
    return {
        ALL: held_out_errors(sweeps, k_ms),
        GRAPHS: held_out_errors(graphs, k_ms),
        EAGER_MODE: held_out_errors([cell for cell in sweeps if not cell.captured], k_ms),
        GRAPHS_ALONE: held_out_errors(graphs, k_of_graphs),
    }


def _printed_in(files: ReleasedFiles, name: str) -> Callable[[str], Quoted]:
    return lambda pattern: files.quoted_pattern(name, pattern)


def _compared_errors(files: ReleasedFiles, errors: HeldOutErrors) -> tuple[ComparedFigure, ...]:
    theirs, error = _printed_in(files, README), "held-out contexts, error in ms, "
    factor = errors.reduction
    return (
        ComparedFigure(
            f"{error}one price for each size", errors.profile, theirs(r"reduces RMSE from `([\d.]+) ms`"), digits=3
        ),
        ComparedFigure(f"{error}with the context", errors.additive, theirs(r"to `([\d.]+) ms`"), digits=3),
        ComparedFigure(
            "the first over the second", factor.value, theirs(r"\*\*([\d.]+)× reduction"), factor.interval, 1
        ),
    )


def _compared_slopes(files: ReleasedFiles, fits: PassFits) -> tuple[ComparedFigure, ...]:
    theirs, what = _printed_in(files, README), "us for a context token, "
    qwen, minicpm = theirs(r"`([\d.]+) us/KV-token` for Qwen3"), theirs(r"`([\d.]+) us/KV-token` for MiniCPM")
    return (
        ComparedFigure(f"{what}Qwen3-1.7B", fits.qwen.value, qwen, fits.qwen.interval, 4),
        ComparedFigure(f"{what}MiniCPM5-2B", fits.minicpm.value, minicpm, fits.minicpm.interval, 4),
    )


def _compared_serving(
    files: ReleasedFiles, rounds: PairedRounds, served: ServedDifference
) -> tuple[ComparedFigure, ...]:
    theirs, logged = _printed_in(files, README), _printed_in(files, LOG)
    stock, corrected = (theirs(rf"{mode} median throughput +([\d,.]+)") for mode in ("stock", "corrected"))
    mean = served.mean
    return (
        ComparedFigure("median tokens/s, vLLM's price", float(median(rounds.stock)), stock, digits=1),
        ComparedFigure("median tokens/s, corrected", float(median(rounds.corrected)), corrected, digits=1),
        ComparedFigure(
            "% faster with the corrected price", mean.value, theirs(r"paired mean delta +(-?[\d.]+)%"), mean.interval, 3
        ),
        ComparedFigure(
            "that mean over its standard error",
            served.standard_errors,
            logged(r"mean is (-?[\d.]+) SE from zero"),
            digits=1,
        ),
    )


def _compared_decisions(files: ReleasedFiles) -> tuple[ComparedFigure, ...]:
    """What they explain the slower serving by; of it we check only how many decisions the log counts."""
    theirs, decisions = _printed_in(files, README), read_decisions(files)
    more = theirs(r"^additional decode batches +(\d+)")
    before, after = (
        theirs(r"ceiling selection fell from `([\d.]+)%`"),
        theirs(r"ceiling selection fell from `[\d.]+%` to `([\d.]+)%`"),
    )
    return (
        ComparedFigure(
            "more batches with the corrected price", decisions["corrected"] - decisions["stock"], more, digits=0
        ),
        ComparedFigure("% of decode decisions at the ceiling, vLLM's price", math.nan, before),
        ComparedFigure("% of decode decisions at the ceiling, corrected", math.nan, after),
    )


def _follows(errors: Mapping[str, HeldOutErrors], served: ServedDifference) -> str:
    graphs, alone, eager = (errors[name] for name in (GRAPHS, GRAPHS_ALONE, EAGER_MODE))
    own = f" ({alone.in_words} with k of these alone)" if alone.in_words != graphs.in_words else ""
    return (
        f"on the contexts left out, a price with the context {graphs.in_words} where CUDA graphs are replayed{own}; in "
        f"eager mode {'it ' if is_known(eager.reduction.interval) else ''}{eager.in_words}. In their log, "
        f"{served.follows()} All rounds serve the same prompts: the interval is of timings, not of prompts."
    )


def _errors_text(errors: Mapping[str, HeldOutErrors]) -> str:
    cells = [["", "k, us", "cells", "one price", "with context", "factor", "[95 %]"]]
    for name, one in errors.items():
        ends, told = one.reduction.interval, is_known(one.reduction.interval)
        shown = f"[{ends.low:.3g}, {ends.high:.3g}]" if told else f"not told: {one.sizes} sizes"
        factor = f"{one.reduction.value:.1f}" if told else "-"
        numbers = [f"{1000 * one.k_ms:.4f}", str(one.cells), f"{one.profile:.3f}", f"{one.additive:.3f}", factor]
        cells.append([name, *numbers, shown])
    heading = within_width(
        f"Errors in ms on contexts {HELD_OUT[0]:,} and {HELD_OUT[1]:,}, which no fit saw; [95 %] over sizes of a pass. "
        "The authors print such errors of each mode, with one k of both, in FINDINGS.md (E4), and conclude that no one "
        "equation holds in both modes; the README limits the claim to CUDA graphs."
    )
    return f"{heading}\n\n{aligned(cells, [True, False, False, False, False, False, True])}"


def _pass_row(cell: PassCell) -> dict[str, float]:
    return {
        "tokens": cell.tokens,
        "context": cell.context,
        "median_ms": round(cell.median_ms, 4),
        "profiled_ms": round(cell.profiled_ms, 4),
    }
