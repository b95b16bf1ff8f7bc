"""``simlab study engine-rules`` on the packaged trace."""

import pytest
from commands import json_of, output_of

import simlab
from simlab.cli.main import main
from simlab.errors import UsageError
from simlab.studies.engines.rules import NUM_SCHEDULES

FEW = ["--limit", "3", "--batch", "1,3"]


def test_json_and_tables_say_the_same() -> None:
    found = json_of("study", "engine-rules", *FEW, "--json")
    assert len(found["rows"]) == 2 * NUM_SCHEDULES
    assert [one["batch"] for one in found["prices"]] == [1, 3]
    text = output_of("study", "engine-rules", *FEW)
    for row in found["rows"]:
        (line,) = [
            one
            for one in text.split(f"{row['batch']} at a time")[1].splitlines()[: NUM_SCHEDULES + 8]
            if one.startswith(f"{row['schedule']}  ")
        ]
        assert f"{row['tokens_per_s']:.2f}" in line
    assert "WHAT IF batch=3" in text
    assert max(map(len, text.splitlines())) <= 130


def test_hindsight_and_its_rivals() -> None:
    table = simlab.engine_rules(limit=6, batch=[2])
    rows = {row["schedule"]: row for row in table.to_json()["rows"]}  # type: ignore[attr-defined]
    assert rows["hindsight"]["behind_hindsight"] == 0
    chains = [row for name, row in rows.items() if not name.startswith("joint")]
    assert all(row["behind_hindsight"] >= 0 for row in chains)
    assert rows["chain"]["drafted_per_round"] == 7
    # The same rule, watched and replayed.
    assert "vllm-adaptive" in rows
    assert len(table.frame) == NUM_SCHEDULES


def test_bad_input_is_refused() -> None:
    assert main(["study", "engine-rules", "--batch", "0"]) == 2
    assert main(["study", "engine-rules", "--cost", "nothing.json"]) == 2
    with pytest.raises(UsageError, match="different numbers of at least 1"):
        simlab.engine_rules(batch=[2, 2])
