"""The study of a drafter's probabilities: it agrees with replay, slices add up, and figures are made of its rows."""

from dataclasses import replace
from pathlib import Path

import pytest
from made_up_costs import EMPTY, filled
from study_results import refused, rows_of, value_of
from synthetic_traces import write_synthetic_trace

import simlab
from simlab.studies.scoring import scoring
from simlab.traces.artefacts.cost import write_cost_file

LISTS = ("calibration", "reliability", "orders", "coverage", "policies")


def test_it_agrees_with_replay_on_lengths_speeds_and_what_is_verified(trace: Path, cost: Path) -> None:
    policies = ["ddtree:budget=8/16", "chain:length=3"]
    value, replayed = value_of(scoring(trace, policies, cost=cost)), rows_of(simlab.replay(trace, policies, cost=cost))
    assert [row["policy"] for row in value["policies"]] == ["ddtree:budget=8", "ddtree:budget=16", "chain:length=3"]
    for row in value["policies"]:
        same, chain = replayed[row["policy"]], replayed["chain"]
        for name in ("acceptance_length", "acceptance_length_macro", "tokens_per_s"):
            assert row[name] == pytest.approx(same[name])
        assert row["chain_acceptance_length"] == pytest.approx(chain["acceptance_length"])
        assert row["chain_tokens_per_s"] == pytest.approx(chain["tokens_per_s"])
        assert row["num_drafted"] == pytest.approx(same["nodes_per_round"])
    widest = value["policies"][1]
    assert widest["hindsight_acceptance_length"] == pytest.approx(replayed["hindsight:budget=16"]["acceptance_length"])
    assert widest["speed_gap_closed_share"] == pytest.approx(
        (widest["tokens_per_s"] - widest["chain_tokens_per_s"])
        / (widest["hindsight_tokens_per_s"] - widest["chain_tokens_per_s"])
    )


def test_orders_are_looked_at_as_far_as_there_are_prices(trace: Path, cost: Path, tmp_path: Path) -> None:
    few = tuple(count for count in EMPTY.node_counts if count <= 8)
    write_cost_file(tmp_path / "few.json", filled(replace(EMPTY, node_counts=few)))
    assert value_of(scoring(trace, cost=tmp_path / "few.json", limit=2))["nodes"] == 8
    assert value_of(scoring(trace, cost=cost, limit=2))["nodes"] == 64


def test_a_policy_of_ones_own_is_scored_without_an_order(trace: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine.py"
    mine.write_text(
        "from dataclasses import dataclass\n"
        "from simlab import DraftTree, Needs, Stateless\n\n"
        "@dataclass(frozen=True)\n"
        "class Two(Stateless):\n"
        "    budget: int = 2\n"
        "    needs = Needs(top_k=1)\n\n"
        "    def select(self, draft, state=None):\n"
        "        return DraftTree.chain(draft.root_token, draft.marginals.top_tokens(2))\n"
    )
    value = value_of(scoring(trace, [f"{mine}:Two", "chain:length=2"]))
    own, chain = value["policies"]
    assert own["acceptance_length"] == chain["acceptance_length"]
    assert [row["order"] for row in value["orders"]] == ["chain:length=2"]
    alone = value_of(scoring(trace, [f"{mine}:Two"]))
    assert alone["orders"] == alone["coverage"] == alone["calibration"] == []
    assert alone["policies"][0]["accepted_share"] > 0


def test_what_a_trace_lacks_is_left_out_of_the_default_set(tmp_path: Path) -> None:
    shallow = write_synthetic_trace(tmp_path, num_sequences=2, length=9, kept=8)
    said = " ".join(scoring(shallow).text().split())
    assert "Left out: ddtree:budget=16, ddtree:budget=64, since ddtree:budget=16 drafts up to 16 tokens" in said
    assert "drafts up to 16 tokens" in refused(scoring, shallow, "ddtree:budget=16")
