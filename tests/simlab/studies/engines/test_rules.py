"""Engines' rules of cutting chains, replayed on the packaged trace beside what knows the answers."""

import pytest
from study_results import refused, rows_of, value_of

import simlab
from simlab.studies.engines.rules import NUM_SCHEDULES, engine_rules


def test_no_chain_is_ahead_of_hindsight_and_the_plain_one_is_that_of_replay() -> None:
    rules = engine_rules(limit=6, batch=[2])
    rows = {row["schedule"]: row for row in value_of(rules)["rows"]}
    assert rows["hindsight"]["behind_hindsight"] == 0
    assert all(row["behind_hindsight"] >= 0 for name, row in rows.items() if not name.startswith("joint"))
    chain = rows_of(simlab.replay(None, ["chain"], batch=2, limit=6))["chain"]
    for name in ("acceptance_length", "tokens_per_s"):
        assert rows["chain"][name] == pytest.approx(chain[name])
    assert rows["chain"]["drafted_per_round"] == 7
    # The same rule, watched and replayed.
    assert "vllm-adaptive" in rows
    assert len(rules.frame) == NUM_SCHEDULES


def test_bad_input_is_refused() -> None:
    assert "expected batch sizes" in refused(engine_rules, batch=[2, 0])
