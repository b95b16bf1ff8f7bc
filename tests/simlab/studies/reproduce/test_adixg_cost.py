"""The study of vLLM's prices: on a release that the test makes up, against plain Python; and on the real files."""

import json
import statistics
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import pytest
from made_up_releases import HELD_OUT, adixg_contents
from released_data import made_up_release, real_release, values_of
from scipy import stats

from simlab.studies.reproduce.adixg_cost import (
    CAPTURED,
    EAGER,
    FILES,
    GRAPHS,
    GRAPHS_ALONE,
    LOG,
    adixg_cost,
    context_slope,
    over_blocks,
    read_rounds,
    serving_of,
)
from simlab.studies.reproduce.options import ReproduceOptions
from simlab.studies.reproduce.released import Findings, ReleasedFiles
from simlab.studies.reproduce.wrong_prices import SERVED


def study(files: ReleasedFiles) -> Findings:
    return adixg_cost(files, ReproduceOptions(limit=4, progress=False))


def oracle(files: ReleasedFiles) -> dict[str, float]:
    """Their fit, the slopes and the paired mean, in plain Python and numpy's least squares."""
    cells = []
    for name in (EAGER, CAPTURED):
        found = json.loads(files.text(name))
        floors = {r["num_tokens"]: statistics.median(r["forward_ms"]) for r in found["rows"] if r["context_len"] == 0}
        cells += [
            {
                "graphs": row["num_tokens"] <= found["cudagraph_limit"],
                "size": row["num_tokens"],
                "context": row["context_len"],
                "read": row["num_reqs"] * row["context_len"],
                "floor": floors[row["num_tokens"]],
                "ms": statistics.median(row["forward_ms"]),
                "all": row["forward_ms"],
                "profile": row["predicted_ms"],
            }
            for row in found["rows"]
        ]
    train = [cell for cell in cells if cell["context"] not in HELD_OUT]
    x = np.array([one["read"] for one in train], float)
    y = np.array([one["ms"] - one["floor"] for one in train])
    k = float(np.linalg.lstsq(x[:, None], y, rcond=None)[0][0])
    test = [cell for cell in cells if cell["context"] in HELD_OUT]
    errors = {
        "profile": float(np.sqrt(np.mean([(one["profile"] - one["ms"]) ** 2 for one in test]))),
        "additive": float(np.sqrt(np.mean([(one["floor"] + k * one["read"] - one["ms"]) ** 2 for one in test]))),
    }
    graphs = [(cell["size"], cell["read"], ms) for cell in cells if cell["graphs"] for ms in cell["all"]]
    mini = [
        (row["num_tokens"], row["num_reqs"] * row["effective_context_len"], ms)
        for row in json.loads(files.text(SERVED))["rows"]
        for ms in row["forward_ms"]
    ]
    rounds: dict[str, dict[str, float]] = {}
    for line in files.text(LOG).splitlines():
        parts = line.split()
        if len(parts) == 5 and parts[1] in ("stock", "corrected"):
            rounds.setdefault(parts[0], {})[parts[1]] = float(parts[4])
    percent = [100 * (one["corrected"] / one["stock"] - 1) for one in rounds.values()]
    low, high = stats.t.interval(0.95, len(percent) - 1, np.mean(percent), stats.sem(percent))
    return {
        **errors,
        "reduction": errors["profile"] / errors["additive"],
        "graphs": 1000 * fixed_effect(graphs),
        "served": 1000 * fixed_effect(mini),
        "percent": float(np.mean(percent)),
        "percent_low": float(low),
        "percent_high": float(high),
    }


def fixed_effect(samples: list[tuple[int, int, float]]) -> float:
    """The common slope of a regression with an indicator for each size."""
    sizes = sorted({size for size, _, _ in samples})
    table = np.array([[read, *(float(size == one) for one in sizes)] for size, read, _ in samples])
    return float(np.linalg.lstsq(table, np.array([ms for _, _, ms in samples]), rcond=None)[0][0])


def check_against_oracle(files: ReleasedFiles) -> Findings:
    found, wanted = study(files), oracle(files)
    ours = [figure.ours for figure in found.compared]
    names = ("profile", "additive", "reduction", "graphs", "served")
    assert [our.value for our in ours[:5]] == pytest.approx([wanted[name] for name in names], rel=1e-6)
    assert ours[7].value == pytest.approx(wanted["percent"])
    ends = ours[7].interval
    assert (ends.low, ends.high) == pytest.approx((wanted["percent_low"], wanted["percent_high"]), rel=1e-3)
    return found


def test_figures_are_those_of_plain_python(tmp_path: Path) -> None:
    found = check_against_oracle(made_up_release(tmp_path, adixg_contents()))
    theirs = [figure.theirs.value for figure in found.compared if figure.theirs]
    assert theirs == [5.5, 0.5, 11.6, 0.04, 0.02, 1000.5, 990.5, -0.9, -3.3, 7, 97.5, 90.25]
    assert [figure.verdict for figure in found.compared[9:]] == ["as printed", "", ""]
    assert found.compared[3].ours.value == pytest.approx(0.04, rel=0.05)
    assert found.compared[4].ours.value == pytest.approx(0.02, rel=0.05)
    errors = values_of(found)["held_out"]
    # In the made-up eager mode a context token costs a tenth, which spoils the k of both.
    assert errors[GRAPHS_ALONE]["k_us"] == pytest.approx(0.04, rel=0.02)
    assert errors[GRAPHS_ALONE]["additive_ms"] <= errors[GRAPHS]["additive_ms"]


def slopes(each: list[float], reach: float = 2000) -> pl.DataFrame:
    """Passes of sizes whose context token costs so many microseconds; the last size is timed up to a reach."""
    rows = [
        (size, int(share * (reach if size == len(each) else 2000)), slope)
        for size, slope in enumerate(each, 1)
        for share in (0, 0.5, 1)
    ]
    samples = [[size + slope * context / 1000] for size, context, slope in rows]
    return pl.DataFrame(
        {"tokens": [row[0] for row in rows], "context_tokens": [row[1] for row in rows], "samples_ms": samples}
    )


def test_the_interval_of_a_slope_is_over_sizes() -> None:
    """Of sizes that carry as much Student's of their slopes; a size that carries nearly all leaves hardly a degree."""
    each = [0.03, 0.034, 0.038, 0.042, 0.046, 0.05]
    found = context_slope(slopes(each))
    low, high = stats.t.interval(0.95, 5, statistics.fmean(each), stats.sem(each))
    assert found.value == pytest.approx(0.04)
    assert (found.interval.low, found.interval.high) == pytest.approx((float(low), float(high)))
    uneven = context_slope(slopes(each, reach=8000))
    assert uneven.value == pytest.approx((4 * sum(each[:5]) + 64 * each[5]) / (4 * 5 + 64))
    assert uneven.interval.high - uneven.interval.low > 3 * (high - low)


def test_rounds_that_drift_have_a_wider_interval_over_blocks() -> None:
    """An oracle: Student's interval of the means of blocks; neighbours of a drift are alike, those of noise are not."""
    draw = np.random.default_rng(7)
    drifting = np.repeat(draw.normal(0, 1, 10), 4) + draw.normal(0, 0.1, 40)
    means = drifting.reshape(-1, 4).mean(axis=1)
    low, high = stats.t.interval(0.95, 9, means.mean(), stats.sem(means))
    found = over_blocks(drifting, 4)
    assert (found.interval.low, found.interval.high) == pytest.approx((float(low), float(high)), rel=0.1)
    single = over_blocks(drifting, 1).interval
    assert high - low > 1.4 * (single.high - single.low)
    assert serving_with(drifting)["correlation_of_neighbours"] > 0.5
    assert abs(serving_with(draw.normal(0, 1, 2000))["correlation_of_neighbours"]) < 0.1
    assert over_blocks(np.arange(7.0), 2).value == pytest.approx(2.5)


def serving_with(percent: npt.NDArray[np.float64]) -> dict[str, Any]:
    return serving_of(pl.DataFrame({"percent": percent, "stock_first": np.arange(len(percent)) % 2 == 0}))


def test_serving_by_who_went_first_and_by_its_error() -> None:
    percent = np.array([1.0, 1.3, 0.9, 1.2] * 5)
    found = serving_with(percent)
    assert found["by_order"]["vLLM's price first"].value == pytest.approx(statistics.fmean(percent[::2]))
    assert found["by_order"]["corrected price first"].value == pytest.approx(statistics.fmean(percent[1::2]))
    assert found["standard_errors"] == pytest.approx(np.mean(percent) / stats.sem(percent))
    assert found["correlation_of_independent_rounds_below"] == pytest.approx(1.96 / np.sqrt(20))


def test_the_real_files_say_what_was_published() -> None:
    files = real_release("adixg-cost")
    found = check_against_oracle(files)
    # 11.66 is printed as 11.6, which is cut and not rounded.
    assert [figure.what for figure in found.compared if figure.verdict == "differs"] == ["the first over the second"]
    assert sorted(FILES) == sorted(files.release.files)
    assert read_rounds(files).height == 20
