"""Price intervals from a cost file to the table: planted noise, against sweeps drawn again by hand."""

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from made_up_costs import BASE_S, EMPTY
from synthetic_traces import write_synthetic_trace

import simlab
from simlab.cost import GRID_STAGES, PLAIN
from simlab.studies.replay.replay import ReplayTable
from simlab.traces.artefacts.cost import CostFile, write_cost_file

VISITS, NODES = 24, 8
NOISY = ("verify", NODES, 256)
"""The one cell whose samples vary."""


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_synthetic_trace(tmp_path_factory.mktemp("prices") / "trace", num_sequences=6, length=40)


def cost_file(sigma: float, visits: int = VISITS, seed: int = 0) -> CostFile:
    """One context, so that every round of 8 drafted tokens costs the same; two samples a visit, eight of plain ones."""
    rng = np.random.default_rng(seed)
    file = replace(EMPTY, contexts=(256,), repeats=2 * visits)
    samples = {}
    for cell in file.cells():
        seconds = np.full(visits * (8 if cell[0] == PLAIN else 2), BASE_S[cell[0]])
        if cell[:2] == ("verify", 64):
            seconds += 1e-9  # no round is so large; passes that are all alike would be refused
        if cell == NOISY:
            seconds *= rng.lognormal(0, sigma, visits).repeat(2)
        samples[cell] = tuple(seconds.tolist())
    return replace(file, samples=samples)


def replayed(trace: Path, file: CostFile, folder: Path, **more: object) -> ReplayTable:
    write_cost_file(folder / "cost.json", file)
    return simlab.replay(trace, [f"ddtree:budget={NODES}"], cost=folder / "cost.json", **more)  # type: ignore[arg-type]


def row_of(table: ReplayTable) -> dict[str, float]:
    rows = json.loads(json.dumps(table.to_json()))["rows"]
    return next(row for row in rows if row["policy"] == f"ddtree:budget={NODES}")


def log_speedup(row: dict[str, float], verify_s: float) -> float:
    """Rounds of 8 drafted tokens each, at a price of verification."""
    seconds = row["rounds"] * (verify_s + sum(BASE_S[stage] for stage in GRID_STAGES if stage != "verify"))
    return math.log(row["committed"] * BASE_S[PLAIN] / seconds)


@pytest.mark.parametrize("sigma", [0.02, 0.2])
def test_planted_noise_of_one_cell_gives_the_width_of_sweeps_drawn_again_by_hand(
    trace: Path, tmp_path: Path, sigma: float
) -> None:
    file = cost_file(sigma)
    row = row_of(replayed(trace, file, tmp_path))
    assert row["drafted"] == NODES * row["rounds"]
    samples = np.array(file.samples[NOISY]).reshape(VISITS, 2)
    assert math.log(row["speedup"]) == pytest.approx(log_speedup(row, float(np.quantile(samples, 0.25))))
    rng = np.random.default_rng(11)
    drawn = [
        log_speedup(row, float(np.quantile(samples[rng.integers(0, VISITS, VISITS - 1)], 0.25))) for _ in range(4000)
    ]
    half = 2.04 * float(np.std(drawn))
    found = math.log(row["speedup_price_high"] / row["speedup"])
    # A standard deviation of 32 draws has an error of an eighth of itself.
    assert half / 1.4 < found < half * 1.4
    assert math.log(row["speedup"] / row["speedup_price_low"]) == pytest.approx(found)
    # Prompts are the same, so their interval does not know of it.
    quiet = row_of(replayed(trace, cost_file(0.0), tmp_path))
    width = [math.log(one["speedup_ci_high"] / one["speedup_ci_low"]) for one in (row, quiet)]
    assert width[0] == pytest.approx(width[1])


def test_it_covers_the_true_price_about_as_often_as_it_says(trace: Path, tmp_path: Path) -> None:
    """Thirty profiles of the same machine, whose lower quartile is known: the true speedup is in the intervals."""
    sigma, covered = 0.1, 0
    truth = BASE_S["verify"] * math.exp(-0.6744897501960817 * sigma)
    for seed in range(30):
        row = row_of(replayed(trace, cost_file(sigma, seed=seed), tmp_path, limit=1))
        covered += row["speedup_price_low"] <= math.exp(log_speedup(row, truth)) <= row["speedup_price_high"]
    # 95 % of 30 is 28.5 with a standard deviation of 1.2; a quartile of few samples is a little too low.
    assert covered >= 25


def test_noise_of_another_cell_and_no_noise_give_a_point(trace: Path, tmp_path: Path) -> None:
    row = row_of(replayed(trace, cost_file(0.0), tmp_path))
    assert row["speedup_price_low"] == pytest.approx(row["speedup"], rel=1e-6)
    assert row["speedup_price_high"] == pytest.approx(row["speedup"], rel=1e-6)


def test_a_hypothetical_machine_has_the_noise_of_the_real_one(trace: Path, tmp_path: Path) -> None:
    table = replayed(trace, cost_file(0.1), tmp_path, what_if=["verify*2", "convex"])
    rows = json.loads(json.dumps(table.to_json()))["rows"]
    ends = [
        [row[f"speedup_price_{end}"] for end in ("low", "high")]
        for row in rows
        if row["policy"] == f"ddtree:budget={NODES}"
    ]
    # Verification is a larger part of a round there, and its noise of the speedup.
    assert ends[1][1] / ends[1][0] > ends[0][1] / ends[0][0] > 1
    assert ends[2] == [None, None]
