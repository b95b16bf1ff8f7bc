"""Who won, who cannot be told from whom, and how it is said."""

import math
import re
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from confirm_results import EXACT, NUM_PROMPTS, judged, results

from simlab.analysis.confirm.table import compare_winner, confirmed_policies
from simlab.analysis.confirm.text import confirm_table, stage_table, verdict_text
from simlab.analysis.statistics.significance import holm

FAILED = replace(EXACT, lossless="FAILED", worst_gap=3.0, fault="prompt 'p1', turn 0: token 7 is wrong")


def test_two_that_differ_by_less_than_the_noise_have_no_winner() -> None:
    rows = results()
    found = confirmed_policies(rows, judged())
    won = compare_winner(found, rows)
    assert won is not None
    assert {won.first.policy, *(rival.policy for rival in won.rivals)} == {"ddtree:budget=8", "ddtree:budget=16"}
    text = verdict_text(found, won)
    names = f"{won.first.policy} and {won.rivals[0].policy}"
    assert re.match(
        rf"No winner among {names}: not significant; minimum detectable difference [\d.]+ % "
        rf"\(n = {NUM_PROMPTS} prompts\)\.\n",
        text,
    )
    assert [line.split(": ")[0] for line in text.splitlines()[1:]] == names.split(" and ")
    assert verdict_text(found, won, "group") == text.replace("prompts", "groups")


def test_a_small_lead_wins_where_it_is_steady() -> None:
    """The prompts differ far more than the policies do: only paired are they told apart."""
    rows = results(noise=0.002)
    found = confirmed_policies(rows, judged())
    won = compare_winner(found, rows)
    assert won is not None
    assert (won.first.policy, won.rivals) == ("ddtree:budget=16", ())
    standing, line = verdict_text(found, won).splitlines()
    assert standing.startswith(
        "ddtree:budget=16 is faster than each of 2 others, the closest being ddtree:budget=8, by "
    )
    assert line.startswith("ddtree:budget=16: 2.02 x autoregressive decoding [2.0")
    assert line.endswith(" (predicted 2.02); output identical")


def test_the_chosen_one_is_held_against_the_others_though_it_is_not_the_fastest() -> None:
    rows = results(noise=0.002)
    found = confirmed_policies(rows, judged())
    won = compare_winner(found, rows, chosen="ddtree:budget=8")
    assert won is not None
    assert (won.first.policy, won.rivals) == ("ddtree:budget=8", ())
    assert [policy.policy for policy in won.ahead] == ["ddtree:budget=16"]
    lines = verdict_text(found, won).splitlines()
    assert lines[0] == "ddtree:budget=16 is faster than ddtree:budget=8."
    assert [line.split(": ")[0] for line in lines[1:]] == ["ddtree:budget=8", "ddtree:budget=16"]
    level = compare_winner(found, results(noise=0.1), chosen="chain")
    assert level is not None
    assert (level.first.policy, len(level.comparisons), len(level.ahead)) == ("chain", 2, 2)
    failed = confirmed_policies(rows, judged(ddtree=FAILED))
    instead = compare_winner(failed, rows, chosen="ddtree:budget=8")
    assert instead is not None
    assert instead.first.policy == "chain"


def test_differences_are_read_as_a_family() -> None:
    """A ladder of twelve speeds: some differ from the fastest alone, and not among eleven comparisons."""
    speeds = {"autoregressive": 10.0, **{f"ddtree:budget={number}": 20 + 0.25 * number for number in range(2, 14)}}
    rows = results(speeds, noise=0.1)
    won = compare_winner(confirmed_policies(rows, dict.fromkeys(speeds, EXACT)), rows)
    assert won is not None
    adjusted = holm(np.array([comparison.p_value for comparison in won.comparisons]))
    assert [comparison.p_adjusted for comparison in won.comparisons] == pytest.approx(adjusted)
    assert any(comparison.p_value < 0.05 <= comparison.p_adjusted for comparison in won.comparisons)
    behind = {
        comparison.second for comparison in won.comparisons if comparison.p_adjusted < 0.05 and comparison.ratio > 1
    }
    assert {rival.policy for rival in won.rivals} == {comparison.second for comparison in won.comparisons} - behind
    assert 0 < len(won.rivals) < 11


def test_a_failure_does_not_win() -> None:
    rows = results(noise=0.002)
    found = confirmed_policies(rows, judged(ddtree=FAILED))
    won = compare_winner(found, rows)
    assert won is not None
    assert (won.first.policy, won.rivals) == ("chain", ())
    lines = verdict_text(found, won).splitlines()
    assert lines[0] == "FAILED: the text of ddtree:budget=8 is not the target's: prompt 'p1', turn 0: token 7 is wrong."
    assert lines[2].startswith("chain: 1.40 x autoregressive decoding ")
    found = confirmed_policies(rows, judged(ddtree=FAILED, chain=FAILED))
    assert compare_winner(found, rows) is None
    assert verdict_text(found, None).endswith("No policy has both a speed and a text that is the target's.")


@pytest.mark.parametrize(
    ("chain", "said"), [(9.0, "significantly slower"), (10.01, "not significant with this many prompts"), (12.0, None)]
)
def test_a_speedup_that_is_none_is_said_to_be_none(chain: float, said: str | None) -> None:
    rows = results({"autoregressive": 10.0, "chain": chain}, noise=0.02)
    found = confirmed_policies(rows, judged())
    (line,) = verdict_text(found, compare_winner(found, rows)).splitlines()
    assert (said in line) if said else ("slower" not in line and "not significant" not in line)
    assert verdict_text(found, compare_winner(found, rows), "group") == line.replace("prompts", "groups")


def test_one_prompt_has_no_interval_and_no_winner() -> None:
    rows = results(num_prompts=1)
    found = confirmed_policies(rows, judged())
    won = compare_winner(found, rows)
    assert won is not None
    assert len(won.rivals) == 2
    assert "[" not in verdict_text(found, won)
    assert verdict_text(found, won).count(", too few prompts for an interval") == 3
    assert "nan" not in verdict_text(found, won) + confirm_table(found)


def test_without_prices_the_prediction_is_unknown() -> None:
    stages = ("draft_s", "channel_s", "select_s", "verify_s", "commit_s")
    unpriced = pl.when(pl.col("kind") == "measured")
    rows = results().with_columns(*(unpriced.then(pl.col(name)).alias(name) for name in stages))
    rows = rows.with_columns(pl.lit(None, pl.String).alias("cost_id"))
    found = confirmed_policies(rows, judged())
    assert "predicted" not in verdict_text(found, compare_winner(found, rows))
    assert all(policy.row()["predicted_speedup"] is None for policy in found)
    assert all(math.isnan(policy.predicted.speed.speedup) for policy in found)
    assert stage_table(found).splitlines()[1].count("- / ") == 5


# Tokens per second of a whole batch, as people read them
