"""A replay's table: its rows against sums by hand, whose prices it takes, and what it refuses."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from made_up_costs import EMPTY, filled
from planted_traces import tokens_per_s
from study_results import refused, rows_of
from synthetic_traces import write_synthetic_trace

from simlab.analysis.table.summaries import STAGE_COLUMNS
from simlab.policies.parsing.parse import parse_policies
from simlab.sequence_replay import rounds
from simlab.studies.fit_tables import fit_ranks
from simlab.studies.replay.replay import ReplayTable, replay
from simlab.traces.artefacts import cost as cost_file
from simlab.traces.artefacts.cost import write_cost_file
from simlab.traces.format.manifest_entries import ModelInfo
from simlab.traces.reader import open_trace

TREES = ("ddtree:budget=8/16",)
DRAWN = ("autoregressive", "chain", "ddtree:budget=8", "ddtree:budget=16")


@pytest.fixture
def shipped(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder whose cost files are those that come with simlab; empty at first."""
    folder = tmp_path / "shipped"
    monkeypatch.setattr(cost_file, "PACKAGED", folder)
    return folder


def test_the_reference_rows_are_always_there(trace: Path) -> None:
    chosen = ["autoregressive", "ddtree:budget=8", "ddtree:budget=16", "chain", "hindsight:budget=16"]
    assert list(rows_of(replay(trace, (*TREES, "chain", "hindsight")))) == chosen
    without_choice = ["autoregressive", "chain", "ddtree:budget=16", "ddtree:budget=64", "hindsight:budget=64"]
    assert list(rows_of(replay(trace))) == without_choice


def test_what_a_trace_lacks_is_left_out_where_nobody_asked_for_it(tmp_path: Path) -> None:
    shallow = write_synthetic_trace(tmp_path, num_sequences=2, length=9, kept=16)
    table = replay(shallow)
    assert "ddtree:budget=64" not in rows_of(table)
    assert "Left out: ddtree:budget=64, since ddtree:budget=64 drafts up to 64 tokens" in " ".join(table.text().split())
    assert "drafts up to 64 tokens" in refused(replay, shallow, "ddtree:budget=64")


@pytest.mark.parametrize("limit", [None, 3])
def test_rows_are_sums_of_rounds(trace: Path, cost: Path, limit: int | None) -> None:
    """Counted in plain Python, and priced one round after another; a limit keeps the turns of a prompt together."""
    opened, rows = open_trace(trace), rows_of(replay(trace, TREES, cost=cost, limit=limit))
    names = list(
        dict.fromkeys((sequence.prompt.dataset, sequence.prompt.prompt_id) for sequence in opened.sequences())
    )[:limit]
    texts = [one for one in opened.recorded("synthetic") if (one.prompt.dataset, one.prompt.prompt_id) in names]
    for label in DRAWN:
        row, typed = rows[label], "ar" if label == "autoregressive" else label
        found = [list(rounds(parse_policies([typed])[0].policy, text)) for text in texts]
        every = [round_ for of_text in found for round_ in of_text]
        assert (row["prompts"], row["sequences"], row["rounds"]) == (len(names), len(texts), len(every))
        for name in ("drafted", "accepted", "committed"):
            assert row[name] == sum(getattr(round_, f"num_{name}") for round_ in every)
        assert row["verified"] == row["drafted"] + row["rounds"]
        assert row["clipped"] == sum(round_.clipped for round_ in every)
        assert row["acceptance_length"] == pytest.approx(row["committed"] / len(every))
        means = [sum(round_.num_committed for round_ in of_text) / len(of_text) for of_text in found if of_text]
        assert row["acceptance_length_macro"] == pytest.approx(sum(means) / len(means))
        assert row["tokens_per_s"] == pytest.approx(tokens_per_s(opened, typed, filled(), set(names)))
        assert row["speedup"] == pytest.approx(row["tokens_per_s"] / rows["autoregressive"]["tokens_per_s"])
        assert row["tokens_per_s"] == pytest.approx(row["committed"] / sum(row[name] for name in STAGE_COLUMNS))
        assert row["speedup_ci_low"] <= row["speedup"] <= row["speedup_ci_high"]
        assert row["acceptance_length_ci_low"] <= row["acceptance_length"] <= row["acceptance_length_ci_high"]
        assert row["speedup_price_low"] is row["speedup_price_high"] is None, "each cell was visited once"


def test_prices_change_seconds_alone(trace: Path, cost: Path) -> None:
    priced, unpriced = rows_of(replay(trace, TREES, cost=cost)), rows_of(replay(trace, TREES))
    assert list(priced) == [*unpriced, "hindsight:best<=16"]
    seconds = {"tokens_per_s", "speedup", "speedup_ci_low", "speedup_ci_high", *STAGE_COLUMNS}
    for label, row in unpriced.items():
        assert {key for key in row if row[key] != priced[label][key]} == seconds
        assert all(row[name] is None for name in seconds)
        assert all(value is None or isinstance(value, str | int | float) for value in row.values())
        assert row["committed"] == unpriced["autoregressive"]["committed"]
        assert row["rounds"] >= unpriced["hindsight:budget=16"]["rounds"]
    plain = priced["autoregressive"]
    assert [plain[name] for name in ("draft_s", "select_s", "commit_s", "nodes_per_round")] == [0.0] * 4
    assert json.loads(priced["ddtree:budget=8"]["settings"]) == {"budget": 8}


def test_a_policy_that_knows_the_answers_is_marked(trace: Path, tmp_path: Path) -> None:
    """Its table was fitted on the trace that is replayed."""
    fit_ranks(trace, out=tmp_path / "ranks.json")
    label = f"sequoia:budget=8,table={json.dumps(str(tmp_path / 'ranks.json'))}"
    table = replay(trace, [label, *TREES])
    assert f"IN SAMPLE: {label}.\n" in table.text()
    assert [label for label, row in rows_of(table).items() if row["in_sample"]] == [label]
    assert "IN SAMPLE" not in replay(trace, TREES).text()


def cost_ids(table: ReplayTable) -> list[str | None]:
    """The latency profile of each machine; None: there is none."""
    return [price.cost_id for price in table.prices]


def test_shipped_prices_are_taken_where_none_are_given(trace: Path, cost: Path, shipped: Path) -> None:
    write_cost_file(shipped / "a.json", replace(filled(), block_size=4))
    assert cost_ids(replay(trace, TREES)) == [None], "these are of other models"
    faster = filled(replace(EMPTY, device="Another CPU"))
    write_cost_file(shipped / "b.json", faster)
    assert cost_ids(replay(trace, TREES)) == [faster.cost_id]
    assert cost_ids(replay(trace, TREES, cost=cost)) == [filled().cost_id]
    assert "latency  b: Another CPU, 2 threads" in replay(trace, TREES).text()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"contexts": (16, 40)}, "reaches 40 tokens of context and 64 drafted tokens; this needs "),
        ({"node_counts": (0, 15)}, "and 15 drafted tokens; this needs "),
    ],
)
def test_shipped_prices_that_end_too_early_are_left_out(
    trace: Path, shipped: Path, change: dict[str, Any], said: str
) -> None:
    write_cost_file(shipped / "a.json", filled(replace(EMPTY, **change)))
    table = replay(trace, TREES)
    assert cost_ids(table) == [None]
    assert "latency  none\n" in table.text()
    assert said in " ".join(table.text().split())
    assert "tokens/s" not in table.text()


def test_the_longest_round_decides_whether_prices_reach(trace: Path, shipped: Path) -> None:
    longest = max(len(sequence.prompt.token_ids) + len(sequence.text) - 2 for sequence in open_trace(trace).sequences())
    just = filled(replace(EMPTY, contexts=(16, longest), node_counts=(0, 16)))
    write_cost_file(shipped / "a.json", just)
    assert cost_ids(replay(trace, TREES)) == [just.cost_id]
    write_cost_file(shipped / "a.json", filled(replace(just, contexts=(16, longest - 1), samples={})))
    assert cost_ids(replay(trace, TREES)) == [None]


OTHER = ModelInfo("other-model", "", "sha256:123456789abcdef")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"target": OTHER}, ("other-model (12345678) with the drafter synthetic", "is of synthetic (syntheti)")),
        ({"drafter": OTHER}, ("the drafter other-model (12345678), block 8", "drafter synthetic (syntheti)")),
        ({"block_size": 4}, ("block 4; the trace is of", "block 8. Give a cost file of the trace's models")),
        ({"samples": {}}, ("is not finished: 51 of its 51 cells", "simlab profile --out", "--resume`")),
        ({"contexts": (4, 8)}, ("prompts of", "have more than 8 tokens, where the contexts of", "end; give")),
        ({"node_counts": (0, 15)}, ("drafts 16 tokens", "up to 15", "simlab profile --node-counts")),
    ],
)
def test_prices_that_do_not_fit_are_refused_in_a_sentence(
    trace: Path, tmp_path: Path, change: dict[str, Any], said: tuple[str, ...]
) -> None:
    path = tmp_path / "cost.json"
    write_cost_file(path, replace(EMPTY, **change) if "samples" in change else filled(replace(EMPTY, **change)))
    sentence = refused(replay, trace, ["ddtree:budget=16"], cost=path)
    assert all(part in sentence for part in said)


def test_a_cost_file_of_a_newer_simlab_is_refused(trace: Path, tmp_path: Path) -> None:
    newer = tmp_path / "newer.json"
    newer.write_text('{"format": "simlab-cost", "format_version": 99}', encoding="utf-8")
    assert "format version 99" in refused(replay, trace, cost=newer)
