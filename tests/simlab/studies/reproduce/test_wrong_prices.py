"""What a wrong price costs, by a replay: the choice is made at wrong prices and evaluated at the right ones."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from commands import json_of
from released_data import values_of

import simlab
from simlab.errors import UsageError
from simlab.studies.inputs.prices import prices_for_trace
from simlab.studies.inputs.trace import sample_trace
from simlab.studies.reproduce.options import ReproduceOptions
from simlab.studies.reproduce.released import Findings
from simlab.studies.reproduce.wrong_prices import (
    ONE_CONTEXT,
    RIGHT,
    at_one_context,
    choices_text,
    compared_choices,
    halves_of,
    wrong_prices,
)
from simlab.traces.results.rows import Results

LIMIT = 8
FLAT_MS, STEEP_MS = 0.01, 3.0


def passes(per_token_ms: float, per_context_ms: float = 1e-3) -> pl.DataFrame:
    """An engine with 64 requests, whose passes cost more by their tokens and by their context."""
    rows = [
        (64 * each, 64, context, 2 + per_token_ms * each + per_context_ms * context)
        for each in (1, 2, 4, 6, 8)
        for context in (0, 1024, 4096 - each)
    ]
    return pl.DataFrame(rows, schema=["tokens", "requests", "context", "median_ms"], orient="row")


@pytest.fixture(scope="module")
def steep() -> Findings:
    return wrong_prices(passes(STEEP_MS), ReproduceOptions(limit=LIMIT, progress=False))


def chosen(found: Findings, setting: str) -> dict[str, str]:
    rows = values_of(found)["wrong_prices"]
    return {row["chosen_by"]: row["policy"] for row in rows if row["setting"].startswith(setting)}


def test_long_chains_are_chosen_where_tokens_are_cheap(steep: Findings) -> None:
    flat = wrong_prices(passes(FLAT_MS), ReproduceOptions(limit=LIMIT, progress=False))
    assert int(chosen(flat, "64 texts")[RIGHT].rpartition("=")[2]) >= 5
    assert chosen(steep, "64 texts")[RIGHT] == "chain:length=1"


def test_a_profile_at_a_long_context_makes_tokens_look_cheap(steep: Findings) -> None:
    """At 4,096 tokens of context a pass costs 4 ms more, whatever its size, so drafts look longer worth it."""
    by = chosen(steep, "64 texts")
    assert int(by[ONE_CONTEXT].rpartition("=")[2]) >= int(by[RIGHT].rpartition("=")[2])
    rows = values_of(steep)["wrong_prices"]
    for row in rows:
        assert row["same"] == (row["policy"] == chosen(steep, row["setting"])[RIGHT])
        assert row["chosen_by"] != RIGHT or row["same"]
    assert [row["faster_percent"] for row in rows if row["same"]] == [0.0] * sum(row["same"] for row in rows)
    assert all(row["ci_low"] <= row["faster_percent"] <= row["ci_high"] for row in rows)


def test_the_speed_of_a_chain_is_its_tokens_over_the_price_of_its_rounds() -> None:
    """An oracle: where context costs nothing, each round of 4 tokens costs the same."""
    flat = wrong_prices(passes(STEEP_MS, per_context_ms=0.0), ReproduceOptions(limit=LIMIT, progress=False))
    speeds = values_of(flat)["tokens_per_s_at_right_prices"]
    (setting,) = (setting for setting in speeds if setting.startswith("64 texts"))
    rows = json_of("replay", "-p", "chain:length=3", "--limit", LIMIT, "--json")["rows"]
    (length,) = (row["acceptance_length"] for row in rows if row["policy"] == "chain:length=3")
    assert speeds[setting]["chain:length=3"] == pytest.approx(1000 * length / (2 + STEEP_MS * 4), rel=1e-6)


def test_prices_at_one_context_are_those_of_the_longest() -> None:
    trace = sample_trace()
    prices = prices_for_trace(Path("h100-vllm-graphs"), trace, "dflash")
    wrong = at_one_context(prices).cost
    assert wrong is not None
    assert prices.cost is not None
    for context in (1, 300, 8192):
        np.testing.assert_array_equal(wrong.curve("verify", context), prices.cost.curve("verify", 8192))
    assert wrong.cost_id != prices.cost.cost_id


SHORT, LONG = "chain:length=1", "chain:length=7"


@pytest.fixture(scope="module")
def replayed() -> Results:
    return simlab.replay(None, [SHORT, LONG], limit=LIMIT, progress=False).rows


def slower(rows: Results, prompts: Sequence[str], policy: str) -> Results:
    """With a hundredfold time of one policy on some prompts."""
    own = pl.format("{}/{}", "dataset", "prompt_id").is_in(prompts) & (pl.col("policy") == policy)
    return rows.with_columns(
        pl.when(own).then(100 * pl.col("verify_s")).otherwise(pl.col("verify_s")).alias("verify_s")
    )


def test_a_choice_is_made_on_some_prompts_and_compared_on_others_alone(replayed: Results) -> None:
    """A policy that is slow on the prompts to choose on is not chosen, however fast on the others, and vice versa."""
    halves = halves_of(replayed)
    assert not set(halves[0]) & set(halves[1])
    assert len(halves[0]) == len(halves[1]) == LIMIT // 2
    right = slower(slower(replayed, halves[0], LONG), halves[1], SHORT)
    wrong = slower(replayed, halves[0], SHORT)
    labels = {RIGHT: [SHORT, LONG], ONE_CONTEXT: [SHORT, LONG]}
    of_right, of_wrong = compared_choices("made up", {RIGHT: right, ONE_CONTEXT: wrong}, labels, halves)
    assert (of_right["policy"], of_wrong["policy"]) == (SHORT, LONG)
    speeds = [speed_by_hand(right, policy, halves[1]) for policy in (LONG, SHORT)]
    percent = of_wrong["faster_percent"]
    assert percent == pytest.approx(100 * (speeds[0] / speeds[1] - 1))
    assert 0 < of_wrong["ci_low"] < percent < of_wrong["ci_high"]
    assert f"{percent:+.2f}" in choices_text([of_right, of_wrong])


def speed_by_hand(rows: Results, policy: str, prompts: Sequence[str]) -> float:
    """An oracle: tokens over seconds, row by row."""
    tokens = seconds = 0.0
    for row in rows.iter_rows(named=True):
        if row["policy"] == policy and f"{row['dataset']}/{row['prompt_id']}" in prompts:
            tokens += row["committed"]
            seconds += sum(row[name] for name in ("draft_s", "channel_s", "select_s", "verify_s", "commit_s"))
    return tokens / seconds


def test_a_slower_choice_is_a_loss_and_no_difference_is_neither(replayed: Results) -> None:
    halves = halves_of(replayed)
    right = slower(replayed, (*halves[0], *halves[1]), LONG)
    wrong = slower(replayed, halves[0], SHORT)
    labels = {RIGHT: [SHORT, LONG], ONE_CONTEXT: [SHORT, LONG]}
    choices = compared_choices("made up", {RIGHT: right, ONE_CONTEXT: wrong}, labels, halves)
    assert choices[1]["faster_percent"] < choices[1]["ci_high"] < 0
    assert f"{choices[1]['faster_percent']:+.2f}" in choices_text(choices)
    same = compared_choices("made up", {RIGHT: right, ONE_CONTEXT: right}, labels, halves)
    assert [(row["same"], row["faster_percent"]) for row in same] == [(True, 0.0), (True, 0.0)]
    assert "same choice" in choices_text(same)


def test_the_packaged_prices_as_the_right_ones_stand_there_once() -> None:
    """Rows name prices by an id alone: twice the same prices would count every round twice, and compare a policy with
    itself."""
    options = ReproduceOptions(cost=Path("smollm2-135m-epyc-float32"), limit=LIMIT, progress=False)
    found = wrong_prices(passes(1.0), options)
    one_text = set(chosen(found, "One text"))
    assert one_text == {RIGHT, ONE_CONTEXT}
    speeds = values_of(found)["tokens_per_s_at_right_prices"]["One text, trees and chains"]
    right = "smollm2-135m-epyc-float32"
    rows = simlab.replay(None, ["chain:length=3"], cost=right, limit=LIMIT, progress=False).rows
    every = [name for half in halves_of(rows) for name in half]
    assert speeds["chain:length=3"] == pytest.approx(speed_by_hand(rows, "chain:length=3", every), rel=1e-6)


def test_too_few_prompts_are_refused() -> None:
    with pytest.raises(UsageError, match="take 4 or more"):
        wrong_prices(passes(1.0), ReproduceOptions(limit=3, progress=False))
