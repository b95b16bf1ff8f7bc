"""Engines' rules of cutting chains, replayed on the packaged trace beside what knows the answers."""

import pytest
from study_results import refused, rows_of, value_of

import simlab
from simlab.studies.engines.rules import NUM_SCHEDULES, engine_rules


def test_the_table_says_what_the_rows_say() -> None:
    rules = engine_rules(limit=3, batch=[1, 3])
    value, text = value_of(rules), rules.text()
    assert len(value["rows"]) == 2 * NUM_SCHEDULES
    assert [one["batch"] for one in value["prices"]] == [1, 3]
    for row in value["rows"]:
        below = text.split(f"{row['batch']} at a time")[1].splitlines()[: NUM_SCHEDULES + 8]
        (line,) = [one for one in below if one.startswith(f"{row['schedule']}  ")]
        assert f"{row['tokens_per_s']:.2f}" in line
    assert "WHAT IF batch=3" in text
    assert max(map(len, text.splitlines())) <= 130


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
    assert "different numbers of at least 1" in refused(engine_rules, batch=[2, 2])
    assert "nothing.json" in refused(engine_rules, cost="nothing.json")
