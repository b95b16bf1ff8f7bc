"""The table of the field: its gains are those of a comparison, its figures those of the replay."""

import json
from pathlib import Path

import polars as pl
import pytest

from simlab.studies.compare import compare
from simlab.studies.field.rows import ALL, KINDS, Entry, FieldResult, FieldRows, bound_rows, field_rows
from simlab.studies.field.systems import BESIDE, EQUAL, FASTEST
from simlab.studies.inputs.trace import sample_trace
from simlab.studies.replay.replay import ReplayTable, replay

POLICIES = ("chain:length=4", "ddtree:budget=16", "presto:budget=16", "ddtree:budget=8")
ENTRIES = (
    Entry("ddtree", "16", "dflash", "ddtree:budget=16", 1),
    Entry("presto", "16", "dflash", "presto:budget=16", 1),
    Entry("chain", FASTEST, "dflash", "chain:length=4", 7),
    Entry("ddtree", FASTEST, "dflash", "ddtree:budget=8", 8),
)


@pytest.fixture(scope="module")
def table() -> ReplayTable:
    return replay(sample_trace(), POLICIES, what_if=["tile=64"], progress=False)


@pytest.fixture(scope="module")
def found(table: ReplayTable) -> FieldRows:
    hypothetical = pl.col("cost_id").str.starts_with("what-if")
    predicted = table.rows.filter(~hypothetical)
    # As if the real models had run the first three policies, a tenth slower.
    ran = predicted.filter(pl.col("policy").is_in(["autoregressive", *POLICIES[:3]]))
    slower = ran.with_columns(pl.col("^.*_s$") * 1.1, kind=pl.lit("measured"))
    return results(predicted, table.rows.filter(hypothetical), slower)


def results(*kinds: pl.DataFrame) -> FieldRows:
    return {
        ("dflash", kind, group): rows for group in (EQUAL, FASTEST) for kind, rows in zip(KINDS, kinds, strict=True)
    }


def test_gains_are_those_of_a_comparison(table: ReplayTable, found: FieldRows) -> None:
    rows = field_rows(ENTRIES, found)
    alone = replay(sample_trace(), POLICIES, progress=False)
    for system, size, base in (("presto", "16", "ddtree:budget=16"), ("chain", FASTEST, "ddtree:budget=8")):
        entry = next(one for one in ENTRIES if (one.system, one.size) == (system, size))
        for measure, name in (("acceptance_length", "gain_tokens"), ("speedup", "gain_speed")):
            wanted = compare(alone, [entry.policy, base], measure=measure, by="dataset")
            for comparison in wanted.of_measure:
                part = ALL if comparison.slice is None else comparison.slice
                row = next(row for row in rows if (row["system"], row["size"], row["slice"]) == (system, size, part))
                assert row[name] == pytest.approx(comparison.ratio - 1, abs=1e-4)
                assert row[f"{name}_low"] == pytest.approx(comparison.ratio_interval.low - 1, abs=1e-4)
    assert table.rows.height == 2 * alone.rows.height


def test_a_system_is_held_against_a_baseline_of_its_own_size(found: FieldRows) -> None:
    """Of at most 16 drafted tokens 4 came to be: it stands against DDTree of 16, and against one of its own size."""
    entries = (
        Entry("ddtree", "16", "dflash", "ddtree:budget=16", 1),
        Entry("lean", "16", "dflash", "chain:length=4", 1, own_nodes=8),
        Entry("unmatched", "16", "dflash", "chain:length=4", 1, own_nodes=9),
        Entry("ddtree", "8 nodes", "dflash", "ddtree:budget=8", 1),
    )
    assert [entry.group for entry in entries] == [EQUAL, EQUAL, EQUAL, BESIDE]
    beside = {("dflash", kind, BESIDE): found["dflash", kind, EQUAL] for kind in KINDS}
    rows = {row["system"]: row for row in field_rows(entries, {**found, **beside}) if row["slice"] == ALL}
    alone = replay(sample_trace(), POLICIES, progress=False)
    wanted = compare(alone, ["chain:length=4", "ddtree:budget=8"], measure="acceptance_length").of_measure[0]
    assert rows["lean"]["gain_tokens_own"] == pytest.approx(wanted.ratio - 1, abs=1e-4)
    assert rows["lean"]["gain_tokens_own_low"] == pytest.approx(wanted.ratio_interval.low - 1, abs=1e-4)
    assert rows["lean"]["gain_tokens_own"] != rows["lean"]["gain_tokens"]
    assert rows["unmatched"]["gain_tokens_own"] is None


def test_the_baseline_gains_nothing_over_itself(found: FieldRows) -> None:
    for row in field_rows(ENTRIES, found):
        assert (row["gain_tokens"] is None) == (row["system"] == "ddtree")


def test_what_did_not_run_has_no_measured_speed(found: FieldRows) -> None:
    rows = [row for row in field_rows(ENTRIES, found) if row["slice"] == ALL]
    assert [row["measured_speedup"] is None for row in rows] == [False, False, False, True]
    assert [row["measured_prompts"] == 0 for row in rows] == [False, False, False, True]
    # A tenth slower, as is plain decoding: the same speedups, and the same gains.
    assert rows[1]["measured_speedup"] == pytest.approx(rows[1]["predicted_speedup"], abs=1e-3)
    assert rows[1]["gain_measured"] == pytest.approx(rows[1]["gain_speed"], abs=1e-3)
    assert [row["measured_verify_ms"] is None for row in rows] == [False, False, False, True]
    for row in rows[:3]:
        predicted, measured = row["predicted_verify_ms_on_measured"], row["measured_verify_ms"]
        assert isinstance(predicted, float)
        assert measured == pytest.approx(1.1 * predicted, rel=0.01)
    predicted, gpu_like, ran = (found["dflash", kind, EQUAL] for kind in KINDS)
    none = field_rows(ENTRIES, results(predicted, gpu_like, ran.clear()))
    assert all(row["measured_speedup"] is None for row in none)


def test_reconstructions_are_marked(found: FieldRows) -> None:
    marked = {row["system"]: row["reconstruction"] for row in field_rows(ENTRIES, found)}
    assert marked == {"ddtree": False, "presto": True, "chain": False}


def test_the_file_holds_what_is_printed(found: FieldRows, tmp_path: Path) -> None:
    rows, bounds = field_rows(ENTRIES, found), bound_rows("dflash", found["dflash", "predicted", EQUAL])
    assert {str(bound["bound"]) for bound in bounds} >= {"hindsight:budget=16"}
    facts = {"prompts": {"gsm8k": 3}, "size": {"node_counts": [1, 2, 7, 8, 16]}}
    result = FieldResult(facts, rows, bounds, {"d2sd": "the channel d2sd was not recorded"}, {}, False)
    result.write(tmp_path / "field.json")
    assert json.loads((tmp_path / "field.json").read_text()) == json.loads(json.dumps(result.to_json()))
    text = result.text()
    assert "At most 16 drafted tokens a round" in text
    assert "Each at its fastest setting on dev" in text
    assert "presto* " in text
    assert "chain† " in text, "4 drafted tokens lie between 2 and 7, which were timed"
    assert "Left out: d2sd: the channel d2sd was not recorded." in text
    assert all(len(line) <= 250 for line in text.splitlines())
