"""What a wrong price costs, by a replay: the choice is made at wrong prices and pays the right ones."""

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from released_data import real_release

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
    wrong_prices,
)

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
        assert (one.loss is None) == (one.policy == chosen(steep, one.setting)[RIGHT])
        assert one.by != RIGHT or value == 0
        assert one.loss is None or one.loss.prompts == LIMIT // 2
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
