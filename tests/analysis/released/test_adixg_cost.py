"""The study of vLLM's prices: on a release that the test makes up, against plain Python; and on the real files."""

import json
import random
import statistics
from pathlib import Path

import numpy as np
import pytest
from released_data import made_up_release, real_release, values_of
from scipy import stats

from simlab.analysis.released.adixg.pass_fits import HeldOutErrors, ValueWithInterval
from simlab.analysis.released.adixg.pass_prices import EAGER_MODE, GRAPHS, GRAPHS_ALONE, adixg_cost
from simlab.analysis.released.adixg.records import (
    CAPTURED,
    EAGER,
    FILES,
    LOG,
    README,
    SERVED,
    PairedRounds,
    read_rounds,
)
from simlab.analysis.released.adixg.served_rounds import (
    ServedDifference,
    neighbours_alike,
    over_blocks,
    served_difference,
)
from simlab.analysis.released.files import ReleasedFiles
from simlab.analysis.statistics.intervals import UNKNOWN, Interval
from simlab.errors import SimlabError, UsageError

CONTEXTS = (0, 256, 1024, 2048, 4096, 8192)
HELD_OUT = (1024, 4096)

PAGE = """`x` reduces RMSE from `5.5 ms` to `0.5 ms` an **11.6× reduction**
`0.0400 us/KV-token` for Qwen3-1.7B and `0.0200 us/KV-token` for MiniCPM5-2B
stock median throughput       1,000.5 tokens/s
corrected median throughput     990.5 tokens/s
paired mean delta             -0.9000%
decode ceiling selection fell from `97.50%` to `90.25%`.
additional decode batches      7
"""


LOG_END = (
    "mean -0.36%   median -0.38%",
    "standard error 0.11%; mean is -3.3 SE from zero",
    "      stock: n=100, ceiling=98.6%, budget median=392",
    "  corrected: n=107, ceiling=92.2%, budget median=392",
)


def sweep(seed: int, sizes: tuple[int, ...], limit: int, requests: int | None) -> dict[str, object]:
    """Passes of sizes at contexts, of so many requests; None: each token of a request of its own."""
    draw = random.Random(seed)
    rows: list[dict[str, object]] = []
    floors = {size: 2 + size / 100 for size in sizes}
    profile = {size: floors[size] + 4e-5 * (requests or size) * 8192 for size in sizes}
    for context in CONTEXTS:
        for size in sizes:
            base = floors[size] + 4e-5 * (requests or size) * context * (1 if size <= limit else 0.1)
            times = [base * (1 + draw.gauss(0, 0.002)) for _ in range(5)]
            rows.append(
                {
                    "num_tokens": size,
                    "context_len": context,
                    "num_reqs": requests or size,
                    "forward_ms": times,
                    "median_ms": statistics.median(times),
                    "predicted_ms": profile[size],
                }
            )
    return {"cudagraph_limit": limit, "rows": rows}


def served(seed: int) -> dict[str, object]:
    draw = random.Random(seed)
    rows = []
    for tokens in (64, 128, 256, 384, 512):
        for context in (0, 1024, 2048, 3072, 4096):
            effective = min(context, 4096 - tokens // 64)
            base = 3 + tokens / 300 + 2e-5 * 64 * effective
            times = [base * (1 + draw.gauss(0, 0.002)) for _ in range(5)]
            rows.append({"num_tokens": tokens, "num_reqs": 64, "effective_context_len": effective, "forward_ms": times})
    return {"rows": rows}


def log(seed: int, shift: float = -0.006, rounds: int = 12) -> str:
    draw = random.Random(seed)
    lines = ["=== GPU ===", " round       mode   seconds  out toks     tok/s"]
    for number in range(1, rounds + 1):
        order = ["stock", "corrected"] if number % 2 else ["corrected", "stock"]
        for mode in order:
            speed = 1000 * (1 + draw.gauss(0, 0.002) + shift * (mode == "corrected"))
            lines.append(f"{number:6d} {mode:>10s}     0.747      8192   {speed:.1f}")
    return "\n".join([*lines, *LOG_END])


def unseeing(found: dict[str, object], wrong: float) -> dict[str, object]:
    """A sweep whose one price for each size is right at every context but for a share."""
    rows = found["rows"]
    assert isinstance(rows, list)
    return {**found, "rows": [{**row, "predicted_ms": row["median_ms"] * (1 + wrong)} for row in rows]}


def contents(**changes: str) -> dict[str, str]:
    return {
        README: PAGE,
        EAGER: json.dumps(sweep(1, (16, 32, 64, 128), 8, 8)),
        CAPTURED: json.dumps(sweep(2, (1, 4, 8, 16, 32), 32, None)),
        SERVED: json.dumps(served(3)),
        LOG: log(4),
        **changes,
    }


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
    train = [one for one in cells if one["context"] not in HELD_OUT]
    x = np.array([one["read"] for one in train], float)
    y = np.array([one["ms"] - one["floor"] for one in train])
    k = float(np.linalg.lstsq(x[:, None], y, rcond=None)[0][0])
    test = [one for one in cells if one["context"] in HELD_OUT]
    errors = {
        "profile": float(np.sqrt(np.mean([(one["profile"] - one["ms"]) ** 2 for one in test]))),
        "additive": float(np.sqrt(np.mean([(one["floor"] + k * one["read"] - one["ms"]) ** 2 for one in test]))),
    }
    graphs = [(one["size"], one["read"], ms) for one in cells if one["graphs"] for ms in one["all"]]
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


def check_against_oracle(files: ReleasedFiles) -> None:
    found, wanted = adixg_cost(files), oracle(files)
    ours = [one.ours for one in found.compared]
    names = ("profile", "additive", "reduction", "graphs", "served")
    assert ours[:5] == pytest.approx([wanted[name] for name in names], rel=1e-6)
    assert ours[7] == pytest.approx(wanted["percent"])
    ends = found.compared[7].interval
    assert (ends.low, ends.high) == pytest.approx((wanted["percent_low"], wanted["percent_high"]), rel=1e-3)


def test_figures_are_those_of_plain_python(tmp_path: Path) -> None:
    files = made_up_release(tmp_path, contents())
    check_against_oracle(files)
    found = adixg_cost(files)
    assert [one.theirs.value for one in found.compared if one.theirs] == [
        5.5,
        0.5,
        11.6,
        0.04,
        0.02,
        1000.5,
        990.5,
        -0.9,
        -3.3,
        7,
        97.5,
        90.25,
    ]
    assert [one.verdict for one in found.compared[9:]] == ["as printed", "", ""]
    assert found.compared[3].ours == pytest.approx(0.04, rel=0.05)
    assert found.compared[4].ours == pytest.approx(0.02, rel=0.05)
    assert "errs" in found.follows
    assert "slower" in found.follows


def test_the_interval_of_a_slope_holds_the_slope_that_was_put_in(tmp_path: Path) -> None:
    held = 0
    for seed in range(20):
        own = contents(**{CAPTURED: json.dumps(sweep(100 + seed, (1, 4, 8, 16, 32, 64), 64, None))})
        ends = adixg_cost(made_up_release(tmp_path / str(seed), own)).compared[3].interval
        held += ends.low <= 0.04 <= ends.high
    assert held >= 16


def test_equal_speeds_show_no_difference(tmp_path: Path) -> None:
    found = adixg_cost(made_up_release(tmp_path, contents(**{LOG: log(5, shift=0.0)})))
    assert "made no difference that 12 rounds show" in found.follows
    ends = found.compared[7].interval
    assert ends.low < 0 < ends.high


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
    assert neighbours_alike(drifting) > 0.5
    assert abs(neighbours_alike(draw.normal(0, 1, 2000))) < 0.1
    assert over_blocks(np.arange(7.0), 2).value == pytest.approx(2.5)


def errors_with(ratio: float, interval: Interval) -> HeldOutErrors:
    return HeldOutErrors(1e-5, 12, 6, ratio / 2, 0.5, ValueWithInterval(ratio, interval))


@pytest.mark.parametrize(
    ("ratio", "interval", "said"),
    [
        (75.0, Interval(58, 96), "errs 75 times less"),
        (2.5, Interval(2, 3), "errs 2.5 times less"),
        (0.1, Interval(0.05, 0.2), "errs 10 times more"),
        (0.4, Interval(0.3, 0.5), "errs 2.5 times more"),
        (0.0, UNKNOWN, "errors are 0.00 ms at one price and 0.50 ms with the context (6 sizes do not tell the factor)"),
        (1.2, Interval(0.8, 1.5), "shows no difference (0.60 and 0.50 ms)"),
    ],
)
def test_what_errors_come_to_is_said_by_direction(ratio: float, interval: Interval, said: str) -> None:
    assert errors_with(ratio, interval).in_words == said


@pytest.mark.parametrize(("wrong", "said"), [(0.0, "errors are 0.00 ms at one price"), (1e-4, "times more")])
def test_a_profile_that_is_right_is_not_called_the_worse_one(tmp_path: Path, wrong: float, said: str) -> None:
    sizes = (1, 4, 8, 16, 24, 32, 40, 48, 56, 64)
    made = contents(**{CAPTURED: json.dumps(unseeing(sweep(2, sizes, 64, None), wrong))})
    found = adixg_cost(made_up_release(tmp_path, made))
    assert said in found.follows.partition("where CUDA graphs")[0]
    assert "times less" not in found.follows.partition("where CUDA graphs")[0]
    assert "better price" not in found.follows
    values_of(found)


def served_of(percent: list[float]) -> ServedDifference:
    ones = np.ones(len(percent))
    first = np.arange(len(percent)) % 2 == 0
    return served_difference(PairedRounds(ones, ones + np.array(percent) / 100, first))


@pytest.mark.parametrize(
    ("percent", "said"),
    [
        ([-1.0, -1.1] * 10, "was 1.05 % slower over rounds, and over blocks of 2 and 4 rounds too."),
        ([1.0, 1.3, 0.9, 1.2] * 5, "was 1.10 % faster over rounds, and over blocks of 2 and 4 rounds too."),
        ([-1.0, 1.0] * 10, "made no difference that 20 rounds show."),
        ([0.3, 0.5, 0.3, 0.5] * 2 + [2.0, 2.4, 2.0, 2.4], "as they are alike, 3 blocks of 4 do not show it."),
        ([0.9, 1.1, 1.0, 1.05, 0.95, 1.0], "as they may be alike, 1 block of 4 does not show it."),
    ],
)
def test_what_serving_comes_to_is_said_by_direction(percent: list[float], said: str) -> None:
    assert said in served_of(percent).follows()


@pytest.mark.parametrize("rounds", [1, 2, 3])
def test_fewer_rounds_than_a_block_have_no_interval(tmp_path: Path, rounds: int) -> None:
    found = adixg_cost(made_up_release(tmp_path, contents(**{LOG: log(4, rounds=rounds)})))
    values = values_of(found)
    assert values["by_block"]["over blocks of 4 rounds"] == {"value": None, "ci_low": None, "ci_high": None}
    assert len(values["paired_percent"]) == rounds
    assert "nan" not in found.text()


def test_k_of_one_mode_alone_fits_it_better(tmp_path: Path) -> None:
    """An oracle: in the made-up eager mode a context token costs a tenth, which spoils the one k of both."""
    errors = values_of(adixg_cost(made_up_release(tmp_path, contents())))["held_out"]
    assert errors[GRAPHS_ALONE]["k_us"] == pytest.approx(0.04, rel=0.02)
    assert errors[GRAPHS_ALONE]["additive_ms"] <= errors[GRAPHS]["additive_ms"]


def test_a_planted_fault_moves_the_figures(tmp_path: Path) -> None:
    """A sweep whose times at one context are doubled no longer fits."""
    planted = sweep(2, (1, 4, 8, 16, 32), 32, None)
    rows = planted["rows"]
    assert isinstance(rows, list)
    for row in rows:
        if row["context_len"] == 4096:
            row["forward_ms"] = [2 * one for one in row["forward_ms"]]
    before = adixg_cost(made_up_release(tmp_path / "right", contents()))
    after = adixg_cost(made_up_release(tmp_path / "wrong", contents(**{CAPTURED: json.dumps(planted)})))
    assert after.compared[1].ours > 3 * before.compared[1].ours
    assert after.compared[3].ours > 1.2 * before.compared[3].ours


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        (LOG, log(4).replace("stock", "stick", 1), "no paired rounds of equally many tokens"),
        (LOG, log(4).replace("8192", "8191", 1), "no paired rounds of equally many tokens"),
        (EAGER, "[]", "expected a JSON object"),
        (EAGER, '{"rows": NaN}', "expected JSON; got something else"),
        (LOG, log(4).replace("n=107", "n=no"), "does not count the decisions at both prices"),
        (CAPTURED, '{"rows": []}', "expected cudagraph_limit and rows"),
        (SERVED, '{"rows": [{"num_tokens": -1}]}', "expected a whole number as num_tokens"),
        (SERVED, '{"fit": 1}', "has no rows"),
        (README, "nothing", "has 0 numbers that"),
    ],
)
def test_what_is_no_such_file_is_refused_in_a_sentence(tmp_path: Path, name: str, text: str, said: str) -> None:
    with pytest.raises(SimlabError, match=said):
        adixg_cost(made_up_release(tmp_path, contents(**{name: text})))


def test_a_changed_file_and_a_missing_one_are_refused(tmp_path: Path) -> None:
    files = made_up_release(tmp_path, contents())
    (tmp_path / LOG).write_text("other")
    with pytest.raises(UsageError, match="is not as it was released"):
        adixg_cost(files)
    (tmp_path / LOG).unlink()
    with pytest.raises(UsageError, match="has no logs/calibrated"):
        adixg_cost(ReleasedFiles(files.release, tmp_path))


def test_the_real_files_say_what_was_published() -> None:
    files = real_release("adixg-cost")
    check_against_oracle(files)
    found = adixg_cost(files)
    ours = [one.ours for one in found.compared]
    assert ours[:10] == pytest.approx(
        [5.779, 0.496, 11.65, 0.0356, 0.0137, 10971.9, 10923.5, -0.365, -3.345, 13], rel=2e-3
    )
    errors = values_of(found)["held_out"]
    assert errors[GRAPHS]["reduction"]["value"] == pytest.approx(75, abs=0.5)
    assert errors[GRAPHS_ALONE]["reduction"]["value"] == pytest.approx(237, abs=1)
    assert errors[GRAPHS_ALONE]["additive_ms"] == pytest.approx(0.030, abs=5e-4)
    assert errors[EAGER_MODE]["reduction"] == {"value": pytest.approx(0.64, abs=0.01), "ci_low": None, "ci_high": None}
    assert "6 sizes do not tell the factor" in found.follows
    # 11.66 is printed as 11.6, which is cut and not rounded.
    assert [one.what for one in found.compared if one.verdict == "differs"] == ["the first over the second"]
    assert found.compared[2].theirs is not None
    assert int(10 * found.compared[2].ours) / 10 == found.compared[2].theirs.value
    assert not found.compared[7].interval.low <= 0 <= found.compared[7].interval.high
    assert sorted(FILES) == sorted(files.release.files)
    percent = read_rounds(files).percent
    assert len(percent) == 20
    assert over_blocks(percent, 2).side_of(0) == -1
    assert over_blocks(percent, 4).side_of(0) == 0
    served = served_difference(read_rounds(files))
    assert 0.32 < served.correlation < served.correlation_limit < 0.44
    assert "as they may be alike, 5 blocks of 4 do not show it" in found.follows
