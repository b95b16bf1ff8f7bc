"""Paired comparisons: against sums worked out in plain Python, and in simulation."""

import html
import math
import re

import numpy as np
import polars as pl
import pytest
from depth import some

from simlab.analysis.compare.comparisons import (
    POWERS,
    Comparison,
    adjust_family,
    compare_pairs,
    compare_runs,
    headline_measure,
)
from simlab.analysis.compare.verdicts import (
    comparison_cells,
    comparison_notes,
    comparison_table,
    standing_sentence,
    verdict_sentence,
    verdicts_text,
)
from simlab.analysis.statistics.intervals import LEVEL
from simlab.analysis.statistics.significance import detectable_ratios
from simlab.analysis.statistics.slices import SLICES, split_by_slice
from simlab.analysis.table.prompt_sums import COLUMNS, PolicyRun, PromptSums, prompt_sums, shared_runs
from simlab.analysis.table.text import Cells
from simlab.arrays import Doubles
from simlab.policies.costs.cell_prices import NUM_DRAWS
from simlab.studies.compare import ComparisonTable

TEXT = ("dataset", "prompt_id", "turn", "sample")


def rows(seed: int, num_prompts: int, faster: float = 1.0, seconds: bool = True) -> pl.DataFrame:
    """Rows of one policy on conversations of one or two turns; prompts differ alike for every seed."""
    difficulty, rng = np.random.default_rng(99), np.random.default_rng(seed)
    found = []
    for prompt in range(num_prompts):
        slowness = difficulty.lognormal(0, 0.3)
        for turn in range(1 + prompt % 2):
            committed = int(difficulty.integers(20, 120))
            num = max(1, round(committed * slowness / 3 * rng.lognormal(0, 0.05)))
            found.append(
                {
                    "dataset": f"set-{prompt % 3}",
                    "prompt_id": f"prompt-{prompt}",
                    "turn": turn,
                    "sample": 0,
                    "context_length": int(difficulty.integers(1, 300)),
                    "rounds": num,
                    "committed": committed,
                    "draft_s": 0.01 * num / faster if seconds else None,
                    "channel_s": 0.0,
                    "select_s": 0.0,
                    "verify_s": 0.05 * num / faster,
                    "commit_s": 0.001 * num / faster,
                }
            )
    frame = pl.DataFrame(found, schema_overrides={"draft_s": pl.Float64})
    return frame.with_columns(cost_id=pl.lit(None, pl.String), draws_s=pl.lit(None, pl.List(pl.Float32)))


def plain(num_prompts: int) -> pl.DataFrame:
    found = rows(0, num_prompts)
    return found.with_columns(rounds=pl.col("committed"), verify_s=0.04 * pl.col("committed"), draft_s=pl.lit(0.0))


def run(name: str, seed: int, num_prompts: int = 60, faster: float = 1.0) -> PolicyRun:
    return PolicyRun(name, rows(seed, num_prompts, faster), plain(num_prompts))


def by_measure(found: list[Comparison]) -> dict[str, Comparison]:
    return {comparison.measure: comparison for comparison in found if comparison.slice is None}


def values_by_hand(table: pl.DataFrame, base: pl.DataFrame) -> dict[str, float]:
    listed, bases = table.to_dicts(), base.to_dicts()
    stages = ("draft_s", "channel_s", "select_s", "verify_s", "commit_s")
    tokens = sum(row["committed"] for row in listed)
    speed = tokens / sum(row[name] for row in listed for name in stages)
    base_speed = sum(row["committed"] for row in bases) / sum(row[name] for row in bases for name in stages)
    means = [row["committed"] / row["rounds"] for row in listed if row["rounds"]]
    return {
        "acceptance_length": tokens / sum(row["rounds"] for row in listed),
        "acceptance_length_macro": sum(means) / len(means),
        "tokens_per_s": speed,
        "speedup": speed / base_speed,
    }


@pytest.mark.parametrize("num_prompts", [9, 60])
def test_values_are_those_of_plain_sums(num_prompts: int) -> None:
    runs = [run("one", 1, num_prompts), run("other", 2, num_prompts, faster=1.2)]
    found = by_measure(compare_runs(runs, [(0, 1)]))
    ours, theirs = (values_by_hand(one.rows, one.plain) for one in runs)
    assert set(found) == set(POWERS)
    for name, comparison in found.items():
        assert comparison.first_value == pytest.approx(ours[name])
        assert comparison.second_value == pytest.approx(theirs[name])
        assert comparison.difference == pytest.approx(ours[name] - theirs[name])
        assert comparison.ratio == pytest.approx(ours[name] / theirs[name])
        assert comparison.ratio_interval.low <= comparison.ratio <= comparison.ratio_interval.high
        assert comparison.difference_interval.low <= comparison.difference <= comparison.difference_interval.high
    assert headline_measure(list(found.values())) == "tokens_per_s"


@pytest.mark.parametrize("num_prompts", [2, 9, 60])
def test_a_run_does_not_differ_from_itself(num_prompts: int) -> None:
    for second in (run("B", 1, num_prompts), PolicyRun("B", rows(1, num_prompts).reverse(), plain(num_prompts))):
        for one in compare_runs([run("A", 1, num_prompts), second], [(0, 1)]):
            assert (one.ratio, one.difference, one.p_value, one.differs) == (1.0, 0.0, 1.0, False)
            assert (one.ratio_interval.low, one.ratio_interval.high) == (1.0, 1.0)
            assert verdict_sentence(one).startswith("no difference between A and B")


@pytest.mark.parametrize("num_prompts", [9, 60])
def test_a_planted_difference_is_found_in_both_directions(num_prompts: int) -> None:
    slow, fast = run("slow", 1, num_prompts), run("fast", 2, num_prompts, faster=1.2)
    for pair in ([slow, fast], [fast, slow]):
        found = by_measure(compare_runs(pair, [(0, 1)]))["tokens_per_s"]
        assert found.differs
        assert found.p_value < 0.001
        said = re.fullmatch(
            rf"fast is faster than slow by (.*) % \[(.*), (.*)\], on {num_prompts} prompts", verdict_sentence(found)
        )
        assert said is not None
        share, low, high = map(float, said.groups())
        assert low < share < high


def test_without_seconds_only_acceptance_is_compared() -> None:
    without = PolicyRun("B", rows(2, 20, seconds=False), plain(20))
    found = compare_runs([run("A", 1, 20), without], [(0, 1)])
    assert {comparison.measure for comparison in found} == {"acceptance_length", "acceptance_length_macro"}
    assert headline_measure(found) == "acceptance_length"
    other_plain = PolicyRun("B", rows(2, 20), plain(10))
    assert "speedup" not in {one.measure for one in compare_runs([run("A", 1, 20), other_plain], [(0, 1)])}


def test_one_prompt_allows_no_verdict() -> None:
    found = by_measure(compare_runs([run("A", 1, 1), run("B", 2, 1, faster=1.5)], [(0, 1)]))["tokens_per_s"]
    assert not found.is_known
    assert not found.differs
    assert verdict_sentence(found).startswith("no verdict on A and B")
    assert found.row()["ratio_ci_low"] is None
    assert all(value is None or isinstance(value, str | int | float) for value in found.row().values())


def test_prompts_of_one_side_are_left_out_and_named() -> None:
    first, second = run("A", 1, 12), run("B", 2, 10)
    without_a_turn = second.rows.filter(~((pl.col("prompt_id") == "prompt-3") & (pl.col("turn") == 1)))
    shared, left_out = shared_runs([first, PolicyRun("B", without_a_turn, second.plain)])
    assert left_out["A"] == (("set-0", "prompt-3"), ("set-1", "prompt-10"), ("set-2", "prompt-11"))
    assert left_out["B"] == (("set-0", "prompt-3"),)
    assert prompt_sums(shared).sums.shape == (9, 2, len(COLUMNS))
    with pytest.raises(ValueError, match="not of the same prompts"):
        prompt_sums([first, second])
    nothing, _ = shared_runs([first, PolicyRun("C", rows(1, 12).with_columns(dataset=pl.lit("x")), plain(12))])
    assert compare_runs(nothing, [(0, 1)]) == []


@pytest.mark.parametrize("by", SLICES)
def test_slices_add_up_to_the_whole(by: str) -> None:
    table = rows(1, 40)
    parts = split_by_slice(table, by)
    assert len(parts) > 1
    assert pl.concat([part for _, part in parts]).sort(TEXT).equals(table.sort(TEXT))
    for column in ("rounds", "committed"):
        assert sum(int(part[column].sum()) for _, part in parts) == table[column].sum()
    found = compare_runs([run("A", 1), run("B", 2)], [(0, 1)], by)
    for measure in POWERS:
        assert [comparison.slice for comparison in found if comparison.measure == measure] == [
            value for value, _ in parts_of(by)
        ] + [None]


def parts_of(by: str) -> list[tuple[object, pl.DataFrame]]:
    return list(split_by_slice(rows(1, 60), by))


def test_a_family_makes_findings_harder() -> None:
    runs = [run("A", 1, 12), *(run(f"B{seed}", seed, 12, faster=1.03) for seed in range(2, 9))]
    found = [one for one in compare_runs(runs, [(0, other) for other in range(1, 8)]) if one.measure == "tokens_per_s"]
    assert {comparison.family for comparison in found} == {7}
    assert all(comparison.p_adjusted >= comparison.p_value for comparison in found)
    alone = compare_pairs(prompt_sums(runs), [one.name for one in runs], [(0, 1)], "tokens_per_s")[0]
    assert alone.detectable < found[0].detectable
    assert alone.p_value == pytest.approx(found[0].p_value)
    with pytest.raises(ValueError, match="correction must be one of"):
        adjust_family(found, "none")
    with pytest.raises(ValueError, match="measure must be one of"):
        compare_pairs(prompt_sums(runs), ["A"], [(0, 1)], "tau")


def standing_of(seed: int, faster: float) -> str:
    runs = [run("A", seed, 60, faster), *(run(name, index, 60) for index, name in enumerate("BCD", 5))]
    found = compare_runs(runs, [(0, 1), (0, 2), (0, 3)])
    return standing_sentence([comparison for comparison in found if comparison.measure == "tokens_per_s"])


def test_where_a_run_stands_among_several() -> None:
    assert standing_of(1, 1.3).startswith("A is faster than each of 3 others, the closest being ")
    assert standing_of(1, 1.0).startswith(
        "no winner among A, B, C and D: not significant; minimum detectable difference up to "
    )
    assert standing_of(1, 0.7) == "B, C and D are faster than A"
    two = compare_runs([run("A", 1), run("B", 2, faster=2)], [(0, 1)])
    assert (
        standing_sentence([comparison for comparison in two if comparison.measure == "speedup"])
        == "B has a larger speedup than A"
    )
    with pytest.raises(ValueError, match="one run"):
        standing_sentence(two)


# ---- simulations: every pair of runs is a simulated comparison on prompts of its own


def simulated(seed: int, num_prompts: int, num_pairs: int, faster: float, skewed: bool) -> PromptSums:
    """Two policies on prompts that differ in length and in how hard they are, alike for both."""
    rng, shape = np.random.default_rng([seed, num_prompts]), (num_prompts, num_pairs)
    tokens = np.rint(rng.lognormal(4.5, 0.7 if skewed else 0.2, shape)) + 1
    hardness = rng.lognormal(0, 0.4, shape)
    sums = np.full((num_prompts, 2 * num_pairs, len(COLUMNS)), np.nan)
    for side in range(2):
        own = hardness * rng.lognormal(0, 0.1, shape)
        part = sums[:, side::2]
        part[..., COLUMNS.index("committed")] = tokens
        part[..., COLUMNS.index("rounds")] = tokens / 3 * own
        part[..., COLUMNS.index("seconds")] = tokens / 30 * own / (faster if side == 0 else 1)
    prompts = tuple(("made-up", str(prompt)) for prompt in range(num_prompts))
    num_runs = sums.shape[1]
    return PromptSums(prompts, sums, np.full((num_runs, 2, NUM_DRAWS), np.nan), (None,) * num_runs)


def simulate(num_prompts: int, faster: float, skewed: bool, repeats: int) -> list[Comparison]:
    at_once, found = 50, []
    for seed in range(repeats // at_once):
        sums = simulated(seed, num_prompts, at_once, faster, skewed)
        pairs = [(2 * index, 2 * index + 1) for index in range(at_once)]
        found += compare_pairs(sums, [str(index) for index in range(2 * at_once)], pairs, "tokens_per_s")
    return found


@pytest.mark.parametrize("skewed", [False, True])
@pytest.mark.parametrize("num_prompts", some([20, 6, 40, 100]))
def test_ratios_and_differences_cover_the_truth_as_often_as_they_say(num_prompts: int, skewed: bool) -> None:
    found = simulate(num_prompts, 1.1, skewed, 4000)
    ratio = np.mean([comparison.ratio_interval.low <= 1.1 <= comparison.ratio_interval.high for comparison in found])
    assert abs(ratio - LEVEL) <= 0.015
    many = simulated(1, 400_000, 1, 1.1, skewed).sums.sum(axis=0)
    speeds = many[:, COLUMNS.index("committed")] / many[:, COLUMNS.index("seconds")]
    truth = float(speeds[0] - speeds[1])
    difference = np.mean(
        [comparison.difference_interval.low <= truth <= comparison.difference_interval.high for comparison in found]
    )
    assert abs(difference - LEVEL) <= 0.015


@pytest.mark.parametrize("num_prompts", [8, 40])
def test_equal_policies_seldom_differ_and_p_values_are_even(num_prompts: int) -> None:
    found = simulate(num_prompts, 1.0, skewed=True, repeats=4000)
    assert np.mean([comparison.differs for comparison in found]) <= 0.06
    p_values = np.array([comparison.p_value for comparison in found])
    for level, tolerance in ((0.05, 0.01), (0.2, 0.02), (0.5, 0.03)):
        assert abs((p_values < level).mean() - level) <= tolerance


@pytest.mark.parametrize("num_prompts", [12, 60])
def test_the_detectable_difference_is_detected_8_times_in_10(num_prompts: int) -> None:
    logs = np.log([comparison.detectable for comparison in simulate(num_prompts, 1.0, False, 1000)])
    typical = math.exp(math.sqrt((logs**2).mean()))
    found = simulate(num_prompts, typical, skewed=False, repeats=2000)
    assert abs(np.mean([comparison.differs and comparison.ratio > 1 for comparison in found]) - 0.8) <= 0.04
    half = simulate(num_prompts, math.sqrt(typical), skewed=False, repeats=1000)
    assert np.mean([comparison.differs for comparison in half]) < 0.45


def test_a_detectable_difference_by_hand() -> None:
    """Student's quantiles with 9 degrees: 2.2622 at 97.5 %, 0.8834 at 80 %."""
    errors: Doubles = np.array([0.01, 0.0, np.nan])
    found = detectable_ratios(errors, np.array([9.0, 9.0, 9.0]))
    assert found[0] == pytest.approx(math.exp(0.031456), abs=1e-5)
    assert found[1] == 1.0
    assert np.isnan(found[2])
    for power, num in ((1.0, 1), (0.4, 1), (0.8, 0)):
        with pytest.raises(ValueError, match="expected a power"):
            detectable_ratios(errors, errors, num, power)


@pytest.mark.parametrize("by", [None, "dataset"])
@pytest.mark.parametrize("measure", [None, "acceptance_length"])
def test_the_html_of_a_notebook_has_the_cells_of_the_text(by: str | None, measure: str | None) -> None:
    runs = [run("<one>", 1), run("other", 2, faster=1.2)]
    found = compare_runs(runs, [(0, 1)], by)
    table = ComparisonTable((), tuple(found), measure or "tokens_per_s", {}, by, "holm")
    of_measure, shown = table.of_measure, table.shown
    assert len(shown) == 4  # four measures of everything, or one measure of three data sets and of everything
    page = table._repr_html_()
    cells = comparison_cells(shown, by)
    kept = [index for index, name in enumerate(cells.headings[0]) if not name.startswith("difference")]
    narrow = [[row[index] for index in kept] for row in (*cells.headings, *cells.rows)]
    assert comparison_table(shown, by) == Cells(narrow[:1], narrow[1:], [cells.to_left[index] for index in kept]).text()
    written = [html.unescape(one) for one in re.findall(r"<td [^>]*>(.*?)</td>", page)]
    assert written == [cell.strip() for row in cells.rows for cell in row]
    paragraphs = [html.unescape(one) for one in re.findall(r"<p [^>]*>(.*?)</p>", page)]
    assert paragraphs == [*verdicts_text(of_measure, by).splitlines(), *comparison_notes(shown, "holm").splitlines()]
    assert "<one>" not in page
