"""From the samples of a profile to the price of each cell, and to prices from samples drawn again.

A machine is slower at some times than at others, and what slows it meets rounds and plain decoding alike. So where
plain decoding was timed at every visit, a cell's price is that of plain decoding times the median, over its visits, of
the fastest round over the fastest token of plain decoding *within the visit*: what slows a minute is in both, and what
slows a tenth of a second is in neither. The price of plain decoding is the lower quartile of its samples, what it takes
on a quiet machine. Where it was not timed so, a cell's price is the lower quartile of its own samples.

How noisy prices are, prices from sweeps drawn again show: the same sweeps in every cell, since what slows a machine
meets neighbouring cells together, and one fewer than there are, so that the spread is that of all (Rao and Wu 1988,
Journal of the American Statistical Association 83:231-241).
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

import numpy as np
from scipy.special import stdtrit

from simlab.arrays import Doubles
from simlab.cost import GRID_STAGES, PLAIN, Visits, is_plain, plain_beside

Cell = tuple[str, int, int]
"""Stage, drafted tokens and context."""

CostSamples = Mapping[Cell, Sequence[float]]
"""Seconds by stage, number of drafted tokens and context; ``plain`` has no drafted token, or where plain decoding was
timed at every visit, those of the rounds beside it. The stage of a channel has its units in place of drafted tokens."""

NUM_DRAWS = 32
"""So many times samples are drawn again."""

_SEED = 2026

_MOST_VALUES = 1 << 20
"""So many values are drawn at a time."""


def cell_prices(samples: CostSamples, visits: Visits) -> dict[Cell, float]:
    """The price of each cell that has samples, in seconds; unfinished profiles are allowed.

    Args:
        samples: one or more seconds of each cell.
        visits: how they were taken.
    """
    return {cell: float(prices[0]) for cell, prices in _prices(samples, visits, None).items()}


def drawn_prices(samples: CostSamples, visits: Visits) -> dict[Cell, Doubles]:
    """Prices of each cell from sweeps drawn again, float64 ``[NUM_DRAWS]``; none where a cell was visited once.

    One visit says nothing of its noise, and would pass for a price without any.

    Args:
        samples: one or more seconds of each cell.
        visits: how they were taken.
    """
    numbers = [num_visits(stage, seconds, visits) for (stage, _, _), seconds in samples.items()]
    if min(numbers, default=0) < 2:
        return {}
    uniform = np.random.default_rng(_SEED).random((NUM_DRAWS, max(numbers) - 1))
    return _prices(samples, visits, uniform)


def ratio_half_widths(samples: CostSamples, visits: Visits) -> dict[tuple[int, int], float]:
    """How well the price of a whole round is known beside plain decoding's, by drafted tokens and context.

    Args:
        samples: of every stage of each cell, and of plain decoding at its context.
        visits: how they were taken.

    Returns:
        half the width of the 95 % interval of the ratio, as a share of it; none where a cell was visited once.
    """
    drawn = drawn_prices(samples, visits)
    return {
        (n, context): float(
            half_width(
                np.log(seconds / drawn[PLAIN, n if visits.paired else 0, context]),
                num_visits("verify", samples["verify", n, context], visits),
            )
        )
        for (n, context), seconds in drawn_rounds(drawn).items()
    }


def drawn_rounds(drawn: Mapping[Cell, Doubles]) -> dict[tuple[int, int], Doubles]:
    """What whole rounds cost at each draw, by drafted tokens and context, in rising order.

    Args:
        drawn: of `drawn_prices`.

    Returns:
        float64 ``[NUM_DRAWS]`` each.
    """
    keys = sorted({(n, context) for stage, n, context in drawn if stage in GRID_STAGES})
    return {key: np.sum([drawn[stage, *key] for stage in GRID_STAGES], axis=0) for key in keys}


def half_width(drawn: Doubles, visited: int = NUM_DRAWS) -> Doubles:
    """Half the width of a 95 % interval of what was drawn again, by Student's t.

    Args:
        drawn: float64 ``[NUM_DRAWS, ...]``, logarithms where it is to be a share.
        visited: how many times a cell was, where it is about that cell alone: few visits tell little of their own
            noise. What many cells share in is better known.

    Returns:
        float64 ``[...]``.
    """
    reach: Doubles = _student(min(visited, len(drawn))) * np.std(drawn, axis=0, ddof=1)
    return reach


def few_visits(visited: int) -> float:
    """How many times as wide `half_width` is with so many visits, at least 2, as with many."""
    return _student(min(visited, NUM_DRAWS)) / _student(NUM_DRAWS)


def _student(number: int) -> float:
    return float(stdtrit(number - 1, 0.975))


def num_visits(stage: str, seconds: Sequence[float], visits: Visits) -> int:
    """How often a cell was visited.

    Args:
        stage: of the cell.
        seconds: its samples.
        visits: how they were taken.
    """
    return len(seconds) // _at_once(len(seconds), visits.steps if is_plain(stage) else visits.rounds)


def _prices(samples: CostSamples, visits: Visits, uniform: Doubles | None) -> dict[Cell, Doubles]:
    """Prices of each cell: as they are, ``[1]``, or once for each row of ``uniform``."""
    plain = _plain_prices(samples, visits, uniform)
    prices = {cell: plain[cell[2]] for cell in samples if cell[0] == PLAIN}
    if visits.paired:
        for cells, drawn in _drawn(_ratios(samples, visits), 1, uniform):
            prices |= {cell: plain[cell[2]] * row for cell, row in zip(cells, np.median(drawn, axis=2), strict=True)}
        return prices
    rounds = {cell: seconds for cell, seconds in samples.items() if not is_plain(cell[0])}
    for cells, drawn in _drawn(rounds, visits.rounds, uniform):
        prices |= zip(cells, _lower_quartiles(drawn), strict=True)
    return prices


def _plain_prices(samples: CostSamples, visits: Visits, uniform: Doubles | None) -> dict[int, Doubles]:
    """The price of a token of plain decoding at each context, of all its samples there."""
    steps = {cell: seconds for cell, seconds in samples.items() if cell[0] == PLAIN}
    parts: dict[int, list[Doubles]] = {}
    for cells, drawn in _drawn(steps, visits.steps, uniform):
        for (_, _, context), rows in zip(cells, drawn, strict=True):
            parts.setdefault(context, []).append(rows)
    return {context: _lower_quartiles(np.concatenate(rows, axis=1)) for context, rows in parts.items()}


def _ratios(samples: CostSamples, visits: Visits) -> dict[Cell, Doubles]:
    """Seconds of a stage, in the fastest round of each visit to a cell, over the fastest step of plain decoding.

    Of a round with a channel the channel's seconds alone are kept, and the fastest is that in which they are the least.
    """
    rounds = dict.fromkeys(
        (GRID_STAGES if stage in GRID_STAGES else (stage,), n, context)
        for stage, n, context in samples
        if not is_plain(stage)
    )
    # Rounds with equally many samples are reckoned together.
    alike: dict[tuple[tuple[tuple[str, int], ...], int], list[tuple[int, int]]] = {}
    for whole, n, context in rounds:
        sizes = tuple((stage, len(samples[stage, n, context])) for stage in whole if (stage, n, context) in samples)
        alike.setdefault((sizes, len(samples[plain_beside(whole[0]), n, context])), []).append((n, context))
    ratios: dict[Cell, Doubles] = {}
    for (sizes, _), settings in alike.items():
        stages = [stage for stage, _ in sizes]
        beside = [samples[plain_beside(stages[0]), n, context] for n, context in settings]
        plain = _by_visit(np.array(beside, np.float64), visits.steps)
        seconds = [
            _by_visit(np.array([samples[stage, n, context] for n, context in settings], np.float64), visits.rounds)
            for stage in stages
        ]
        num = min(plain.shape[1], *(of_stage.shape[1] for of_stage in seconds))
        fastest = np.argmin(sum(of_stage[:, :num] for of_stage in seconds), axis=2, keepdims=True)
        for stage, of_stage in zip(stages, seconds, strict=True):
            own = np.take_along_axis(of_stage[:, :num], fastest, axis=2)[:, :, 0] / plain[:, :num].min(axis=2)
            ratios |= {(stage, *setting): row for setting, row in zip(settings, own, strict=True)}
    return ratios


def _drawn(
    values: Mapping[Cell, Sequence[float] | Doubles], at_once: int, uniform: Doubles | None
) -> Iterator[tuple[list[Cell], Doubles]]:
    """Cells of equally many values, and these, float64 ``[C, 1, N]``; or of visits drawn again, ``[C, B, N']``.

    Visit ``floor(u * K)`` of K is drawn for each number u of ``uniform``, so that cells of equally many visits draw the
    same ones.
    """
    alike: dict[int, list[Cell]] = {}
    for cell, seconds in values.items():
        alike.setdefault(len(seconds), []).append(cell)
    for number, cells in alike.items():
        step = max(_MOST_VALUES // max(number * (1 if uniform is None else len(uniform)), 1), 1)
        for some in (cells[start : start + step] for start in range(0, len(cells), step)):
            rows = np.array([values[cell] for cell in some], np.float64)
            if uniform is None:
                yield some, rows[:, None]
                continue
            visited = _by_visit(rows, at_once)
            num = visited.shape[1]
            chosen = (uniform[:, : max(num - 1, 1)] * num).astype(np.int64)
            yield some, visited[:, chosen].reshape(len(some), len(uniform), -1)


def _at_once(number: int, at_once: int) -> int:
    """Samples that a visit brings, of so many; where these are fewer, each stands alone."""
    return at_once if number >= at_once else 1


def _by_visit(rows: Doubles, at_once: int) -> Doubles:
    """Samples of cells, float64 ``[C, N]``, as ``[C, visits, at_once]``."""
    at_once = _at_once(rows.shape[1], at_once)
    num = rows.shape[1] // at_once
    return rows[:, : num * at_once].reshape(len(rows), num, at_once)


def _lower_quartiles(rows: Doubles) -> Doubles:
    """The lower quartile of each row, the values of which lie along the last axis."""
    quartiles: Doubles = np.quantile(rows, 0.25, axis=-1)
    return quartiles


# How well prices tell sizes apart, how many samples it would take to tell more, and half of the samples.


def neighbour_half_widths(samples: CostSamples, visits: Visits) -> dict[tuple[int, int], float]:
    """How well a round's price is known beside that of the next measured number of drafted tokens.

    Args:
        samples: of every stage of each cell.
        visits: how they were taken.

    Returns:
        by the larger of the two numbers of drafted tokens and the context: half the width of the 95 % interval of the
        ratio, as a share of it; none where a cell was visited once.
    """
    rounds = drawn_rounds(drawn_prices(samples, visits))
    visited = {(n, context): num_visits("verify", samples["verify", n, context], visits) for n, context in rounds}
    return {
        (more, context): float(
            half_width(
                np.log(rounds[more, context] / rounds[less, context]),
                min(visited[more, context], visited[less, context]),
            )
        )
        for context in sorted({context for _, context in rounds})
        for less, more in pairwise(n for n, at in rounds if at == context)
    }


def fewest_samples(samples: CostSamples) -> int:
    """Samples of a stage in the cell that has the fewest, plain decoding left out; 0 where there are none."""
    return min((len(seconds) for (stage, _, _), seconds in samples.items() if not is_plain(stage)), default=0)


def samples_needed(half_width_now: float, samples_now: int, wanted: float, visits: Visits) -> int:
    """About so many samples of each cell make an interval as narrow as wanted: it shrinks with their square root.

    >>> samples_needed(0.04, 14, 0.01, Visits(rounds=2))
    224

    Args:
        half_width_now: half the interval's width by noise alone, a share; see
            `simlab.policies.costs.cell_prices.few_visits`.
        samples_now: of each cell.
        wanted: the half-width that is asked for.
        visits: how samples are taken; a whole number of visits comes back.
    """
    needed = max(samples_now * (half_width_now / wanted) ** 2, float(visits.rounds))
    return visits.rounds * math.ceil(round(needed / visits.rounds, 6))


def half_samples(samples: CostSamples, visits: Visits, half: int) -> dict[Cell, tuple[float, ...]]:
    """The samples of every other visit to each cell.

    Args:
        samples: of each cell.
        visits: how they were taken.
        half: 0: the first visit, the third, and so on; 1: the second, the fourth.

    Returns:
        those of cells that were visited often enough.
    """
    half_of = {}
    for cell, seconds in samples.items():
        at_once = visits.steps if is_plain(cell[0]) else visits.rounds
        chosen = [value for index, value in enumerate(seconds) if index // at_once % 2 == half]
        if chosen:
            half_of[cell] = tuple(chosen)
    return half_of
