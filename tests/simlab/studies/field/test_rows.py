"""The table of the field: its gains are those of a comparison, its figures those of the replay."""

from dataclasses import replace

import polars as pl
import pytest

from simlab.studies.compare import compare
from simlab.studies.field.rows import (
    ALL,
    Entry,
    FieldResult,
    FieldRuns,
    Row,
    baseline_of,
    baselines_around,
    bound_rows,
    field_rows,
)
from simlab.studies.field.systems import FASTEST, PUBLISHED
from simlab.studies.inputs.trace import sample_trace
from simlab.studies.replay.replay import ReplayTable, replay
from simlab.traces.artefacts.cost import PACKAGED

HERE, THERE = "bfloat16", "h200"
COSTS = {HERE: "smollm2-135m-epyc-bfloat16", THERE: "smollm2-135m-h200-cuda_graphs"}
POLICIES = ("chain:length=4", "ddtree:budget=16", "presto:budget=16", "ddtree:budget=8", "ddtree:budget=4")
ENTRIES = (
    Entry("ddtree", "16", "dflash", "ddtree:budget=16", 1, HERE),
    Entry("presto", "16", "dflash", "presto:budget=16", 1, HERE),
    Entry("presto", PUBLISHED, "dflash", "presto:budget=16", 1, HERE),
    Entry("chain", FASTEST, "dflash", "chain:length=4", 7, HERE, 0.01),
    Entry("ddtree", FASTEST, "dflash", "ddtree:budget=8", 8, HERE, 0.0),
    Entry("chain", FASTEST, "dflash", "chain:length=4", 7, THERE, 0.0),
    Entry("ddtree", FASTEST, "dflash", "ddtree:budget=16", 8, THERE, 0.0),
)


@pytest.fixture(scope="module")
def tables() -> dict[str, ReplayTable]:
    return {
        name: replay(sample_trace(), POLICIES, cost=PACKAGED / f"{file}.json", progress=False)
        for name, file in COSTS.items()
    }


@pytest.fixture(scope="module")
def runs(tables: dict[str, ReplayTable]) -> FieldRuns:
    """As if the real models had run two policies, a tenth slower, and a later profile were a twentieth slower."""
    rows = {name: table.rows for name, table in tables.items()}
    ran = rows[HERE].filter(pl.col("policy").is_in(["autoregressive", "chain:length=4", "ddtree:budget=8"]))
    slower = ran.with_columns(pl.col("^.*_s$") * 1.1, kind=pl.lit("measured"))
    after = rows[HERE].with_columns(verify_s=pl.col("verify_s") * 1.05)
    return FieldRuns(
        {("dflash", name): some for name, some in rows.items()}, rows, {"dflash": slower}, {"dflash": after}
    )


def made(runs: FieldRuns, entries: tuple[Entry, ...] = ENTRIES) -> list[Row]:
    return field_rows(entries, runs, lambda entry, drafted: entry.system == "chain" and drafted > 1)


@pytest.mark.parametrize(
    ("entry", "tokens_over", "speed_over"),
    [
        (ENTRIES[1], "ddtree:budget=16", "ddtree:budget=16"),
        (ENTRIES[2], "ddtree:budget=16", "ddtree:budget=16"),
        (ENTRIES[3], "ddtree:budget=4", "ddtree:budget=8"),
        (ENTRIES[5], "ddtree:budget=4", "ddtree:budget=16"),
    ],
)
def test_gains_are_those_of_a_comparison(
    entry: Entry, tokens_over: str, speed_over: str, tables: dict[str, ReplayTable], runs: FieldRuns
) -> None:
    """Tokens over the baseline that drafts as many; seconds over its own fastest, or over as many."""
    key = entry.system, entry.size, entry.prices
    rows = [row for row in made(runs) if (row["system"], row["size"], row["prices"]) == key]
    for measure, name, base in (
        ("acceptance_length", "gain_tokens", tokens_over),
        ("speedup", "gain_speed", speed_over),
    ):
        wanted = compare(tables[entry.prices], [entry.policy, base], measure=measure, by="dataset")
        for comparison in wanted.of_measure:
            row = next(row for row in rows if row["slice"] == (comparison.slice or ALL))
            assert row[name] == pytest.approx(comparison.ratio - 1, abs=1e-4)
            assert row[f"{name}_low"] == pytest.approx(comparison.ratio_interval.low - 1, abs=1e-4)


@pytest.mark.parametrize("drafted", [0.3, 4.0, 4.75, 7.999, 8.5, 16.0])
def test_the_baseline_drafts_as_many_as_a_policy(drafted: float) -> None:
    """Between two sizes a share of all rounds has the larger one, and everything else follows from that share."""
    labels = baselines_around(drafted)
    rows = replay(sample_trace(), [label for label in labels if label != "autoregressive"], progress=False).rows
    names = ("drafted", "rounds", "committed", "verify_s", "draft_s")
    of = [rows.filter(pl.col("policy") == label) for label in labels]
    low, high = ({key: float(some[key].sum()) for key in names} for some in (of[0], of[-1]))
    made = baseline_of(drafted, rows)
    found = {key: float(made.rows[key].sum()) for key in names}
    assert made.plain["name"].unique().to_list() == ["ar"]
    assert found["drafted"] / found["rounds"] == pytest.approx(drafted, abs=1e-3)
    share = drafted - int(drafted)
    if share == 0:
        assert found == low
        return
    weight = share * low["rounds"] / ((1 - share) * high["rounds"] + share * low["rounds"])
    for key in names:
        assert found[key] / 10_000 == pytest.approx((1 - weight) * low[key] + weight * high[key], rel=1e-4), key
    assert len(made.rows["draws_s"][0]) == len(rows["draws_s"][0])


def test_the_baseline_gains_nothing_over_itself(runs: FieldRuns) -> None:
    for row in made(runs):
        assert (row["gain_tokens"] is None) == (row["system"] == "ddtree")
        assert (row["gain_speed"] is None) == (row["system"] == "ddtree")


def test_what_did_not_run_has_no_measured_speed(runs: FieldRuns) -> None:
    rows = [row for row in made(runs) if row["slice"] == ALL]
    ran = [(row["size"], row["prices"]) == (FASTEST, HERE) for row in rows]
    assert [row["measured_speedup"] is not None for row in rows] == ran
    assert [row["measured_prompts"] > 0 for row in rows] == ran
    chain = rows[3]
    # A tenth slower, as is plain decoding: the same speedups, and the same gains.
    assert chain["measured_speedup"] == pytest.approx(chain["predicted_speedup"], abs=1e-3)
    assert chain["gain_measured"] == pytest.approx(chain["gain_speed"], abs=1e-3)
    assert chain["measured_verify_ms"] == pytest.approx(1.1 * chain["predicted_verify_ms"], rel=0.01)
    assert chain["predicted_after_verify_ms"] == pytest.approx(1.05 * chain["predicted_verify_ms"], rel=0.01)
    assert chain["predicted_after"] != chain["predicted_on_measured"] == chain["predicted_speedup"]
    assert all(row["measured_speedup"] is None for row in made(replace(runs, measured={}, again={})))


def test_a_policy_that_drafts_otherwise_by_later_prices_has_no_second_prediction(runs: FieldRuns) -> None:
    other = runs.again["dflash"].with_columns(rounds=pl.col("rounds") + 1)
    rows = [row for row in made(replace(runs, again={"dflash": other})) if row["measured_speedup"] is not None]
    assert rows
    assert all(row["predicted_after"] is None and row["predicted_after_verify_ms"] is None for row in rows)


def test_a_system_of_another_draft_set_is_compared_by_tokens_alone(runs: FieldRuns) -> None:
    other = Entry("jetspec", FASTEST, "jetspec", "ddtree:budget=4", 2, HERE)
    predicted = {**runs.predicted, ("jetspec", HERE): runs.predicted["dflash", HERE]}
    rows = made(replace(runs, predicted=predicted), (*ENTRIES, other))
    row = next(row for row in rows if row["system"] == "jetspec" and row["slice"] == ALL)
    assert row["gain_tokens"] == 0
    assert row["gain_speed"] is None


def test_reconstructions_and_sizes_that_nobody_timed_are_marked(runs: FieldRuns) -> None:
    marked = {row["system"]: (row["reconstruction"], row["untimed"]) for row in made(runs)}
    assert marked == {"ddtree": (False, False), "presto": (True, False), "chain": (False, True)}


def test_each_size_has_a_table(runs: FieldRuns) -> None:
    rows, bounds = made(runs), bound_rows("dflash", runs.predicted["dflash", HERE])
    assert {str(bound["bound"]) for bound in bounds} >= {"hindsight:budget=16"}
    result = FieldResult(
        {"prompts": {"gsm8k": 3}}, rows, bounds, {"d2sd": "the channel d2sd was not recorded"}, {}, False
    )
    text = result.text()
    titles = [
        "Each at 16 drafted tokens a round on dev, within 3 %",
        "Each as published",
        "Each at its fastest setting on dev, by the prices bfloat16",
        "Each at its fastest setting on dev, by the prices h200",
    ]
    assert [text.index(title) for title in titles] == sorted(text.index(title) for title in titles)
    assert "presto* " in text
    assert "chain† " in text
    assert "Left out: d2sd: the channel d2sd was not recorded." in text
    assert all(len(line) <= 250 for line in text.splitlines())
