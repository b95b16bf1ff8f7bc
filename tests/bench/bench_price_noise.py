"""How often noise of prices alone leaves a valley, and how often intervals hold the regret at the true prices.

True prices are a shipped latency profile, as it is or its convex view, which has no valley at all. Profiles are made
up from them: each visit to a cell is as far off as a visit drawn from all cells of the shipped profile was off its
cell's price, independently. Every 7th root of every third text of the packaged trace counts; prompts are held fixed.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from simlab.analysis.curves.machines import FIRST, CurveMachine
from simlab.analysis.curves.price_noise import KEPT_SHARE, drawn_regrets, with_price_noise
from simlab.analysis.curves.rows import CurveRoots, curve_rows
from simlab.analysis.statistics.intervals import Interval
from simlab.arrays import Doubles, Longs
from simlab.cost import GRID_STAGES, PLAIN, CostTable
from simlab.policies.costs.cell_prices import cell_prices, half_samples
from simlab.policies.costs.curves import ALL_STAGES, convex_view, cost_table, round_costs
from simlab.policies.edges.models import Marginal
from simlab.policies.orders.best_first import BestFirst
from simlab.recorded import RecordedTexts
from simlab.studies.inputs.prices import cost_table_of
from simlab.traces.artefacts.cost import Cell, CostFile, packaged_cost_files, read_cost_file
from simlab.traces.reader import open_trace, packaged_trace

MOST, EVERY_TEXT, EVERY_ROOT = 512, 3, 7


@dataclass(frozen=True, slots=True)
class Found:
    """One profile: shares of the roots, the first stop's regret, and whether its interval holds the true one."""

    several: float
    deep: float
    kept: float
    kept_deep: float
    by_half: float
    found_again: float
    regret: float
    holds: float


def shape_of_noise(file: CostFile) -> Doubles:
    """Seconds over the price of the cell, of every visit: float64 ``[visits of all cells, stages, rounds]``."""
    prices, rounds = cell_prices(file.samples, file.visits), file.visits.rounds
    return np.concatenate(
        [
            np.stack(
                [np.reshape(file.samples[stage, n, at], (-1, rounds)) / prices[stage, n, at] for stage in GRID_STAGES],
                1,
            )
            for at in file.contexts
            for n in file.node_counts
        ]
    )


def made_up(
    file: CostFile, true: CostTable, visits: int, generator: np.random.Generator
) -> dict[Cell, Sequence[float]]:
    """Samples of so many visits to each cell."""
    noise, samples = shape_of_noise(file), dict[Cell, Sequence[float]]()
    for place, at in enumerate(file.contexts):
        samples[PLAIN, 0, at] = np.resize(file.samples[PLAIN, 0, at], visits * file.visits.steps).tolist()
        for n in file.node_counts:
            drawn = noise[generator.integers(len(noise), size=visits)]
            for number, stage in enumerate(GRID_STAGES):
                samples[stage, n, at] = (true.seconds[stage][place, n] * drawn[:, number]).ravel().tolist()
    return samples


def machine_of(file: CostFile, samples: dict[Cell, Sequence[float]]) -> CurveMachine:
    """Its prices, draws and halves; no convex view, which nothing here asks for."""

    def table(some: dict[Cell, Sequence[float]]) -> CostTable:
        return cost_table("made-up", file.contexts, file.node_counts, some, file.visits)

    whole = table(samples)
    draws = tuple(CurveMachine("draw", round_costs(one, ALL_STAGES, MOST)) for one in whole.draws)
    halves = (table(dict(half_samples(samples, file.visits, half))) for half in (0, 1))
    priced = tuple(round_costs(one, ALL_STAGES, MOST) for one in halves)
    return CurveMachine("made-up", round_costs(whole, ALL_STAGES, MOST), draws=draws, halves=priced)


def look(machine: CurveMachine, roots: CurveRoots, true_regret: float) -> Found:
    """The curves at one machine."""
    rows, (setting,) = curve_rows({"raw": BestFirst(Marginal())}, [machine], roots, MOST)
    first = rows.filter(rule=FIRST)
    regret = float(np.mean(first["regret_share"].to_numpy()))
    nan = float("nan")
    if setting.drawn is None or setting.halves is None:
        return Found(nan, nan, nan, nan, nan, nan, regret, nan)
    interval = with_price_noise(regret, Interval(regret, regret), drawn_regrets(setting.drawn, FIRST))
    return Found(
        several=float((first["num_maxima"] > 1).to_numpy().mean()),
        deep=float((first["num_deep_maxima"] > 1).to_numpy().mean()),
        kept=float((first["kept_valley_share"] >= KEPT_SHARE).to_numpy().mean()),
        kept_deep=float((first["kept_deep_valley_share"] >= KEPT_SHARE).to_numpy().mean()),
        by_half=float(np.mean(setting.halves.several)),
        found_again=setting.halves.found_again,
        regret=regret,
        holds=float(interval.low <= true_regret <= interval.high),
    )


def packaged_roots() -> CurveRoots:
    """Every 7th root of every third text of the packaged trace."""
    trace = open_trace(packaged_trace())
    (draft,) = trace.manifest.draft_sets
    parts = list(trace.recorded_texts(draft, [one.index for one in trace.sequences()][::EVERY_TEXT]))

    def chosen(texts: RecordedTexts) -> Longs:
        return np.arange(0, len(texts.roots.places), EVERY_ROOT)

    return CurveRoots(lambda: parts, chosen)


def main() -> None:
    """Print a table for each shipped profile."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--profiles", type=int, default=4, help="made up in each row (the page: 16)")
    parser.add_argument("--visits", type=int, nargs="+", default=[3, 7, 14])
    options = parser.parse_args()
    roots = packaged_roots()
    print("prices       true    visits  several  deep  stays  stays deep  by half  found again  regret  true  held, %")
    for file in map(read_cost_file, packaged_cost_files()):
        measured = cost_table_of(file)
        for name, true in (("convex", convex_view(measured)), ("as it is", measured)):
            alone = CurveMachine("true", round_costs(true, ALL_STAGES, MOST))
            regret = look(alone, roots, 0.0).regret
            for visits in options.visits:
                generator = np.random.default_rng([2026, visits])
                made = [made_up(file, true, visits, generator) for _ in range(options.profiles)]
                found = [look(machine_of(file, samples), roots, regret) for samples in made]
                mean = [100 * float(np.mean([getattr(one, key) for one in found])) for key in Found.__slots__]
                shares = "  ".join(f"{one:8.1f}" for one in (*mean[:7], 100 * regret, mean[7]))
                print(f"{file.dtype:10}  {name:9}{visits:4d}  {shares}", flush=True)


if __name__ == "__main__":
    main()
