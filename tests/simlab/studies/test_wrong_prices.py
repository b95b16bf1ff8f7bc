"""What a wrong price costs, by a replay: the choice is made at wrong prices and evaluated at the right ones."""

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from released_data import real_release

import simlab
from simlab.analysis.released.adixg.records import SERVED, PassCell
from simlab.cli.main import main
from simlab.errors import UsageError
from simlab.studies.inputs.prices import prices_for_trace
from simlab.studies.inputs.trace import sample_trace
from simlab.studies.reproduce.options import ReproduceOptions
from simlab.studies.reproduce.wrong_prices import (
    ONE_CONTEXT,
    PACKAGED,
    RIGHT,
    WrongPrices,
    at_one_context,
    compared_choices,
    halves_of,
    wrong_prices,
)
from simlab.traces.results.rows import Results

LIMIT = 8
FLAT_MS, STEEP_MS = 0.01, 3.0


def passes(per_token_ms: float, per_context_ms: float = 1e-3) -> list[PassCell]:
    """An engine with 64 requests, whose passes cost more by their tokens and by their context."""
    return [
        PassCell(SERVED, 64 * each, 64, context, True, (2 + per_token_ms * each + per_context_ms * context,))
        for each in (1, 2, 4, 6, 8)
        for context in (0, 1024, 4096 - each)
    ]


@pytest.fixture(scope="module")
def steep() -> WrongPrices:
    return wrong_prices(passes(STEEP_MS), ReproduceOptions(limit=LIMIT, progress=False))


def chosen(found: WrongPrices, setting: str) -> dict[str, str]:
    return {one.by: one.policy for one in found.found if one.setting.startswith(setting)}


def test_long_chains_are_chosen_where_tokens_are_cheap(steep: WrongPrices) -> None:
    flat = wrong_prices(passes(FLAT_MS), ReproduceOptions(limit=LIMIT, progress=False))
    assert int(chosen(flat, "64 texts")[RIGHT].rpartition("=")[2]) >= 5
    assert chosen(steep, "64 texts")[RIGHT] == "chain:length=1"


def test_a_profile_at_a_long_context_makes_tokens_look_cheap(steep: WrongPrices) -> None:
    """At 4,096 tokens of context a pass costs 4 ms more, whatever its size, so drafts look longer worth it."""
    by = chosen(steep, "64 texts")
    assert int(by[ONE_CONTEXT].rpartition("=")[2]) >= int(by[RIGHT].rpartition("=")[2])
    for one in steep.found:
        value, _, high = one.percent
        assert (one.against_right is None) == (one.policy == chosen(steep, one.setting)[RIGHT])
        assert one.by != RIGHT or value == 0
        assert one.against_right is None or one.against_right.prompts == LIMIT // 2
        assert high >= value


def test_the_speed_of_a_chain_is_its_tokens_over_the_price_of_its_rounds(capsys: pytest.CaptureFixture[str]) -> None:
    """An oracle: where context costs nothing, each round of 4 tokens costs the same."""
    flat = wrong_prices(passes(STEEP_MS, per_context_ms=0.0), ReproduceOptions(limit=LIMIT, progress=False))
    (setting,) = (one for one in flat.speeds if one.startswith("64 texts"))
    assert main(["replay", "-p", "chain:length=3", "--limit", str(LIMIT), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    (length,) = (row["acceptance_length"] for row in rows if row["policy"] == "chain:length=3")
    assert flat.speeds[setting]["chain:length=3"] == pytest.approx(1000 * length / (2 + STEEP_MS * 4), rel=1e-6)


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


def slower(rows: Results, prompts: tuple[str, ...], policy: str) -> Results:
    """With a hundredfold time of one policy on some prompts."""
    own = pl.format("{}/{}", "dataset", "prompt_id").is_in(prompts) & (pl.col("policy") == policy)
    return rows.with_columns(
        pl.when(own).then(100 * pl.col("verify_s")).otherwise(pl.col("verify_s")).alias("verify_s")
    )


def test_a_choice_is_made_on_some_prompts_and_compared_on_others_alone(replayed: Results) -> None:
    """A policy that is slow on the prompts to choose on is not chosen, however fast on the others, and vice versa."""
    halves = halves_of(replayed)
    assert not set(halves.to_choose) & set(halves.to_evaluate)
    assert len(halves.to_choose) == len(halves.to_evaluate) == LIMIT // 2
    right = slower(slower(replayed, halves.to_choose, LONG), halves.to_evaluate, SHORT)
    wrong = slower(replayed, halves.to_choose, SHORT)
    labels = {RIGHT: [SHORT, LONG], ONE_CONTEXT: [SHORT, LONG]}
    of_right, of_wrong = compared_choices("made up", {RIGHT: right, ONE_CONTEXT: wrong}, labels, halves)
    assert (of_right.policy, of_wrong.policy) == (SHORT, LONG)
    assert of_wrong.against_right is not None
    assert of_wrong.against_right.prompts == LIMIT // 2
    speeds = [speed_by_hand(right, policy, halves.to_evaluate) for policy in (LONG, SHORT)]
    assert of_wrong.against_right.ratio == pytest.approx(speeds[0] / speeds[1])
    assert of_wrong.direction == 1
    found = WrongPrices((of_right, of_wrong), {}, {"made up": "made up"}, halves)
    assert f"is {of_wrong.percent[0]:.1f} % (prices of one context; made up) faster" in found.follows()
    assert "slower" not in found.follows()


def speed_by_hand(rows: Results, policy: str, prompts: tuple[str, ...]) -> float:
    """An oracle: tokens over seconds, row by row."""
    tokens = seconds = 0.0
    for row in rows.iter_rows(named=True):
        if row["policy"] == policy and f"{row['dataset']}/{row['prompt_id']}" in prompts:
            tokens += row["committed"]
            seconds += sum(row[name] for name in ("draft_s", "channel_s", "select_s", "verify_s", "commit_s"))
    return tokens / seconds


def test_a_slower_choice_is_a_loss_and_no_difference_is_neither(replayed: Results) -> None:
    halves = halves_of(replayed)
    right = slower(replayed, (*halves.to_choose, *halves.to_evaluate), LONG)
    wrong = slower(replayed, halves.to_choose, SHORT)
    labels = {RIGHT: [SHORT, LONG], ONE_CONTEXT: [SHORT, LONG]}
    rows = {RIGHT: right, ONE_CONTEXT: wrong}
    found = WrongPrices(tuple(compared_choices("made up", rows, labels, halves)), {}, {"made up": ""}, halves)
    assert found.found[1].direction == -1
    assert "% (prices of one context; made up) slower; other wrong prices cost nothing shown." in found.follows()
    assert "-" not in found.follows().partition("by wrong prices")[2]
    same = compared_choices("made up", {RIGHT: right, ONE_CONTEXT: right}, labels, halves)
    assert [one.direction for one in same] == [0, 0]
    nothing = WrongPrices(tuple(same), {}, {"made up": ""}, halves)
    assert nothing.follows() == "In our replay no wrong price costs anything that these prompts show."
    assert "same choice" in nothing.text()


def test_the_packaged_prices_as_the_right_ones_stand_there_once() -> None:
    """Rows name prices by an id alone: twice the same prices would count every round twice, and compare a policy with
    itself."""
    options = ReproduceOptions(cost=Path("smollm2-135m-epyc-float32"), limit=LIMIT, progress=False)
    found = wrong_prices(passes(1.0), options)
    one_text = {one.by for one in found.found if one.setting.startswith("One text")}
    assert one_text == {RIGHT, ONE_CONTEXT}
    speeds = found.speeds["One text, trees and chains"]
    rows = simlab.replay(None, ["chain:length=3"], limit=LIMIT, progress=False).rows
    every = (*found.halves.to_choose, *found.halves.to_evaluate)
    assert speeds["chain:length=3"] == pytest.approx(speed_by_hand(rows, "chain:length=3", every), rel=1e-6)


def test_prices_of_several_texts_are_headed_so_and_those_of_others_named(tmp_path: Path) -> None:
    rows = [
        {"nodes": nodes, "context": context, "batch": 4, "seconds": 0.01 + nodes / 1000}
        for nodes in (1, 4, 8)
        for context in (1, 2048)
    ]
    (tmp_path / "timings.json").write_text(json.dumps(rows))
    out = tmp_path / "cost.json"
    typed = ["import-cost", str(tmp_path / "timings.json"), "--counts", "root-included", "--out", str(out)]
    assert main(typed) == 0
    found = wrong_prices(passes(1.0), ReproduceOptions(cost=out, limit=LIMIT, progress=False))
    assert list(found.headings) == ["4 texts at a time, trees and chains", "64 texts at a time, chains"]
    assert not any("caddtree" in one.policy for one in found.found if one.setting.startswith("4 texts"))
    heading = found.headings["64 texts at a time, chains"]
    assert "PRICES OF OTHERS' MODELS, not of this trace's: MiniCPM5-2B on NVIDIA H100, vLLM" in heading
    assert "not timed, so free here: draft, select, commit" in heading


def test_too_few_prompts_are_refused() -> None:
    with pytest.raises(UsageError, match="take 4 or more"):
        wrong_prices(passes(1.0), ReproduceOptions(limit=3, progress=False))


def test_the_command_on_the_real_files(capsys: pytest.CaptureFixture[str]) -> None:
    place = real_release("adixg-cost").place
    assert main(["reproduce", "adixg-cost", "--data", str(place), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    rows = pl.DataFrame(found["wrong_prices"])
    cpu = rows.filter(pl.col("chosen_by") == PACKAGED)
    assert (cpu["ci_high"] < 0).all()
    assert found["figures"][7]["ours_ci_high"] < 0


def test_a_file_that_is_missing_ends_with_code_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "adixg-cost", "--data", str(tmp_path)]) == 2
    assert "expected a clone of github.com/adixg/vllm-specdecode-cost-model" in capsys.readouterr().err
