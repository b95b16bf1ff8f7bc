"""The study of a drafter's probabilities: it agrees with replay, slices add up, and figures are made of its rows."""

from pathlib import Path

import polars as pl
import pytest
from study_results import refused, rows_of, value_of

import simlab
from simlab.analysis.scoring.reliability import RELIABILITY_SCHEMA
from simlab.analysis.scoring.text import (
    coverage_figure,
    first_candidates_figure,
    gap_figure,
    reliability_figure,
    waste_figure,
)
from simlab.studies.scoring import scoring

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


def test_slices_and_a_file_of_reliability_curves(trace: Path, tmp_path: Path) -> None:
    table = scoring(trace, ["ddtree:budget=8"], by="dataset")
    table.write(tmp_path / "reliability.parquet")
    value, curves = value_of(table), pl.read_parquet(tmp_path / "reliability.parquet")
    assert (value["nodes"], value["width"], value["in_sample"], value["cost"]) == (64, 64, [], None)
    assert all(next(iter(row)) == "slice" for name in LISTS for row in value[name])
    assert all(not isinstance(one, list | dict) for name in LISTS for row in value[name] for one in row.values())
    every = [row for row in value["calibration"] if not row["depth"] and not row["rank"]]
    whole = {row["place"]: row for row in every if not row["slice"]}
    assert set(whole) == {"any prefix", "true prefix", "spine", "off-spine", "lost"}
    for place, row in whole.items():
        assert sum(one["num_edges"] for one in every if one["slice"] and one["place"] == place) == row["num_edges"]
    assert set(curves.columns) == set(RELIABILITY_SCHEMA) | {"text_id", "draft_id", "simlab_version"}
    spine = curves.filter(pl.col("slice").is_null(), pl.col("depth").is_null(), pl.col("rank").is_null(), place="spine")
    assert spine["num_edges"].sum() == whole["spine"]["num_edges"]
    assert spine["predicted"].is_sorted()
    listed = [row for row in value["reliability"] if not row["slice"] and not row["rank"] and row["place"] == "spine"]
    assert [row["observed"] for row in listed] == spine["observed"].to_list()


def test_tables_for_people_and_what_is_left_out(trace: Path) -> None:
    text = scoring(trace, by="dataset").text()
    assert "Left out: `calibrated:budget=16`" in text
    assert text.startswith("Are the drafter's probabilities calibrated? ")
    assert "no speeds" in text.lower()
    assert all(f"{name}: " in text for name in ("math", "code", "chat", "all"))
    assert text.count("How much of the gap from the chain to the oracle upper bound is closed") == 4
    assert "Fewer than 20 prompts" in text
    assert "nan" not in text


def test_the_packaged_trace_has_all_edge_models_and_figures_are_made_of_its_rows() -> None:
    value = value_of(scoring(limit=2, nodes=32))
    edges = list(dict.fromkeys(row["edges"] for row in value["calibration"]))
    assert edges == ["ddtree", "calibrated", "presto", "presto:renormalised=true", "sequoia"]
    assert {row["edges"] for row in value["calibration"] if not row["has_probabilities"]} == {"presto"}
    assert all(row["tokens_per_s"] for row in value["policies"])
    assert {"covered_share_16", "covered_share_32"} <= set(value["coverage"][0])
    figures = [
        reliability_figure(value["reliability"], edges[:2]),
        first_candidates_figure(value["calibration"], edges[:2]),
        coverage_figure(value["coverage"], 32),
        gap_figure(value["policies"]),
        waste_figure(value["policies"]),
    ]
    curves, *others, bars = (figure.to_dict()["data"] for figure in figures)
    assert all(len(one) > 1 for one in others)
    colors = [one["line"]["color"] for one in others[1]]
    assert len(set(colors)) == len(colors), "each order has a colour of its own"
    many = gap_figure([{**value["policies"][0], "budget": budget} for budget in range(9)])
    assert len(many.data) == 9, "budgets of any number"
    # Each name stands in the legend once, though there are two fields.
    assert [one["name"] for one in others[0] if one["showlegend"]] == ["came true", *edges[:2]]
    assert {curve.get("name") for curve in curves} == {None, "spine", "off-spine", "any prefix"}
    assert [bar["name"] for bar in bars] == ["accepted", "wrong, parent true", "parent wrong"]
    assert [sum(part) for part in zip(*(bar["x"] for bar in bars), strict=True)] == pytest.approx([100] * 10)


@pytest.mark.parametrize(
    ("policies", "named", "said"),
    [
        (["ar"], {}, "drafts nothing"),
        (["ddtree:budget=65"], {}, "exact up to 64"),
        ([], {"nodes": 65}, "exact"),
        (["nothing"], {}, "no policy `nothing`"),
        ([], {"draft_set": "other"}, "no draft set"),
    ],
)
def test_what_has_no_scores_is_one_sentence(
    policies: list[str], named: dict[str, object], said: str, trace: Path
) -> None:
    assert said in refused(scoring, trace, policies, **named)


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
