"""How often 95 % intervals over prompts hold the truth, and how often equal policies are said to differ.

Sets of prompts are drawn from made-up populations, or again from the prompts of the packaged trace, whose true values
are known; every interval is made as tables and comparisons make theirs. Seeds are fixed, so two runs print the same.

    PYTHONPATH=tests/helpers python tests/bench/bench_intervals.py --repeats 10000
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np
from in_turn import asked_for
from uneven_prompts import MEASURES, MadeUpPrompts, RecordedPrompts, no_prices, packaged_sums

from simlab.analysis.compare.comparisons import adjust_family, compare_pairs
from simlab.analysis.confirm.table import widest_half_width
from simlab.analysis.statistics.intervals import (
    LEVEL,
    intervals_of,
    log_products,
    prompt_spread,
    ratios,
    share_intervals,
)
from simlab.analysis.table.estimates import sum_of_distances
from simlab.analysis.table.prompt_sums import COLUMNS, PromptSums
from simlab.arrays import Doubles
from simlab.real_runner.confirm.stop import is_look

NUM_PROMPTS = (5, 10, 20, 40, 80, 160)
AT_ONCE = 50

Population = MadeUpPrompts | RecordedPrompts


def populations() -> dict[str, Population]:
    """What sets of prompts are drawn from."""
    recorded = packaged_sums()
    made_up = {
        f"σ {sigma:g}, ρ {rho:g}": MadeUpPrompts(sigma, rho)
        for sigma, rhos in ((0.3, (0.0, -0.6)), (0.7, (0.0, 0.6, -0.6)), (1.0, (0.0, 0.6, -0.6)))
        for rho in rhos
    }
    return {"packaged": RecordedPrompts(recorded, False), "perturbed": RecordedPrompts(recorded, True), **made_up}


def covered(population: Population, truths: Doubles, num_prompts: int, repeats: int) -> Doubles:
    """Share of sets whose interval holds the truth, float64 ``[measures]``."""
    rng = np.random.default_rng([1, num_prompts])
    powers = np.concatenate([np.kron(np.eye(AT_ONCE), measure) for measure in MEASURES.values()]).astype(np.float64)
    held = np.zeros(len(MEASURES))
    for _ in range(repeats // AT_ONCE):
        sums = population.draw(rng, (num_prompts, AT_ONCE)).reshape(num_prompts, -1)
        ends = np.array([(interval.low, interval.high) for interval in intervals_of(log_products(sums, powers))])
        of_measure = ends.reshape(len(MEASURES), AT_ONCE, 2)
        held += ((of_measure[..., 0] <= truths[:, None]) & (truths[:, None] <= of_measure[..., 1])).sum(axis=1)
    return held / (repeats // AT_ONCE * AT_ONCE)


def coverage_tables(repeats: int) -> Iterator[str]:
    """By measure: a row for each population, a column for each number of prompts."""
    shares: dict[str, list[Doubles]] = {}
    for name, population in populations().items():
        truths = np.array([np.log(population.totals()) @ powers for powers in MEASURES.values()])
        shares[name] = [covered(population, truths, num, repeats) for num in NUM_PROMPTS]
    for index, measure in enumerate(MEASURES):
        yield f"{measure}: % of intervals that hold the truth"
        yield table(
            ("population", *map(str, NUM_PROMPTS)),
            [(name, *(percent(array[index]) for array in found)) for name, found in shares.items()],
        )


def equal_policies(rng: np.random.Generator, num_prompts: int, num_runs: int, sigma: float) -> PromptSums:
    """Result sums of policies that are alike, on prompts that differ in length and in how hard they are."""
    tokens = rng.lognormal(4.5, sigma, (num_prompts, 1))
    own = rng.lognormal(0, 0.4, (num_prompts, 1)) * rng.lognormal(0, 0.1, (num_prompts, num_runs))
    sums = np.full((num_prompts, num_runs, len(COLUMNS)), np.nan)
    sums[..., COLUMNS.index("committed")] = tokens
    sums[..., COLUMNS.index("seconds")] = tokens / 30 * own
    prompts = tuple(("made-up", str(prompt)) for prompt in range(num_prompts))
    return PromptSums(prompts, sums, *no_prices(num_runs))


def false_findings(num_prompts: int, num_rivals: int, sigma: float, repeats: int) -> float:
    """Share of families of comparisons, one policy with each rival, in which anything is said to differ."""
    rng, names = np.random.default_rng([3, num_prompts]), [str(index) for index in range(num_rivals + 1)]
    pairs, found = [(0, other) for other in range(1, num_rivals + 1)], 0
    for _ in range(repeats):
        alone = compare_pairs(equal_policies(rng, num_prompts, num_rivals + 1, sigma), names, pairs, "tokens_per_s")
        found += any(comparison.differs for comparison in adjust_family(alone))
    return found / repeats


def grouped(num_groups: int, noise: float, repeats: int) -> tuple[float, float, float]:
    """Of groups of 8 prompts with noise that a group shares: how often intervals over prompts and those over groups
    hold the true ratio of two equal policies, and how much wider the latter are."""
    rng, powers = np.random.default_rng([4, num_groups]), np.array([[-1.0, 1.0]])
    held, widths = np.zeros(2), np.zeros(2)
    for _ in range(repeats):
        tokens = rng.lognormal(4.5, 0.3, (num_groups, 8, 1))
        own = rng.lognormal(0, 0.05 / np.sqrt(2), (num_groups, 8, 2))
        seconds = tokens * own * rng.lognormal(0, noise, (num_groups, 1, 2))
        for index, sums in enumerate((seconds.reshape(-1, 2), seconds.sum(axis=1))):
            (interval,) = intervals_of(log_products(sums, powers))
            held[index] += interval.low <= 0 <= interval.high
            widths[index] += interval.high - interval.low
    return float(held[0] / repeats), float(held[1] / repeats), float(widths[1] / widths[0])


def stopped(until: float, repeats: int) -> tuple[float, float, float]:
    """Of runs that end when intervals are tight: median prompts, how often the interval of a speedup of 1.8 then holds
    it, and by how much speedups are off on average."""
    rng, powers = np.random.default_rng([6, int(1000 * until)]), np.array([[-1, 1, 0, 0, 1, -1.0]])
    looks = [num for num in range(1, 400) if is_look(num)]
    ends, held, logs = [], 0, []
    for _ in range(repeats):
        tokens = rng.lognormal(4.0, 0.4, looks[-1])
        slowness = rng.lognormal(-(0.13**2) / 2, 0.13, (looks[-1], 3))
        slowness[:, 0] = 1
        seconds = tokens[:, None] * np.array([1, 1 / 1.5, 1 / 1.8]) * slowness
        sums = np.stack([np.repeat(tokens[:, None], 3, axis=1), seconds], axis=2)
        end = next((num for num in looks if widest_half_width(sums[:num], 0) <= until), looks[-1])
        spread = log_products(sums[:end].reshape(end, -1), powers)
        (interval,) = intervals_of(spread)
        ends.append(end)
        held += interval.low <= np.log(1.8) <= interval.high
        logs.append(float(spread.whole[0]) - np.log(1.8))
    return float(np.median(ends)), held / repeats, float(np.mean(logs))


def calibration_errors(num_prompts: int, off: float, repeats: int) -> float:
    """How often the interval of an expected calibration error of ten bins holds it, each ``off`` by as much; prompts
    differ by 0.03 in each."""
    rng, signed, held = np.random.default_rng([7, num_prompts]), np.full(10, off), 0
    for _ in range(repeats):
        nodes = rng.lognormal(4.0, 0.5, (num_prompts, 1))
        noise = 0.03 * rng.normal(size=(num_prompts, 10)) * rng.lognormal(0, 0.5, (num_prompts, 1))
        distances = nodes * (signed + noise)
        _, found = sum_of_distances(prompt_spread(np.concatenate([nodes, distances], axis=1), ratios))
        held += found.interval.low <= 10 * off <= found.interval.high
    return held / repeats


def shares(num_prompts: int, share: float, repeats: int) -> float:
    """How often the interval of a share of edges holds it."""
    rng, held = np.random.default_rng([8, num_prompts]), 0
    for _ in range(repeats):
        edges = np.floor(rng.lognormal(5.0, 0.6, num_prompts))
        true = rng.binomial(edges.astype(int), rng.beta(20 * share, 20 * (1 - share), num_prompts))
        (found,) = share_intervals(prompt_spread(np.stack([edges, true], axis=1).astype(np.float64), ratios))
        held += found.low <= share <= found.high
    return held / repeats


def percent(share: float | np.floating) -> str:
    return f"{100 * share:.1f}"


def table(heading: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """In Markdown."""
    lines = [heading, ["---"] * len(heading), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def by_number(figure: Callable[[int], float]) -> list[str]:
    """A figure for each number of prompts."""
    return [percent(figure(num)) for num in NUM_PROMPTS]


def test_table(repeats: int) -> Iterator[str]:
    """Tests of equal policies."""
    yield "equal policies: % of families in which something is said to differ (level 5 %)"
    rows = []
    for sigma, rivals in itertools.product((0.3, 1.0), (1, 5)):
        found = by_number(partial(false_findings, num_rivals=rivals, sigma=sigma, repeats=repeats))
        rows.append((f"σ {sigma:g}", str(rivals), *found))
    yield table(("population", "comparisons", *map(str, NUM_PROMPTS)), rows)


def group_table(repeats: int) -> Iterator[str]:
    """Texts that are served together."""
    yield "groups of 8 prompts: % of intervals that hold the true ratio; how much wider those over groups are"
    rows = []
    for noise in (0.02, 0.0):
        for num in (5, 10, 20):
            prompts, groups, width = grouped(num, noise, repeats)
            rows.append((f"{100 * noise:g} %", str(num), percent(prompts), percent(groups), f"{width:.2f}"))
    yield table(("shared noise", "groups", "over prompts", "over groups", "width"), rows)


def stop_table(repeats: int) -> Iterator[str]:
    """Runs that end by the width of their intervals."""
    yield "runs that end when intervals are tight"
    rows = []
    for until in (0.03, 0.05, 0.08):
        num, held, off = stopped(until, repeats)
        rows.append((f"{100 * until:g} %", f"{num:.0f}", percent(held), f"{100 * off:+.2f} %"))
    yield table(("wanted width", "prompts, median", "hold the truth", "off by"), rows)


def other_table(repeats: int) -> Iterator[str]:
    """Figures that are no ratios on a logarithmic scale."""
    yield "other figures: % of intervals that hold the truth"
    rows = [
        (f"calibration error, bins off by {off:g}", *by_number(partial(calibration_errors, off=off, repeats=repeats)))
        for off in (0.0, 0.004, 0.02)
    ]
    rows += [
        (f"share, {value:g}", *by_number(partial(shares, share=value, repeats=repeats))) for value in (0.02, 0.1, 0.5)
    ]
    yield table(("figure", *map(str, NUM_PROMPTS)), rows)


def main() -> None:
    options = asked_for(__doc__, repeats=1000)
    few = options.repeats // 5
    print(f"level {percent(LEVEL)} %; the first three tables: {options.repeats} sets of prompts a figure, then {few}\n")
    parts = test_table(few), group_table(few), stop_table(few), other_table(few)
    for line in itertools.chain(coverage_tables(options.repeats), *parts):
        print(line, flush=True)


if __name__ == "__main__":
    main()
