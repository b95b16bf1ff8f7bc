"""Several machines in one replay: measured, hypothetical, and of others; each has its own rows and heading."""

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from made_up_costs import filled, two_machines
from study_results import refused, rows_of, value_of

import simlab
from simlab.draft import Draft
from simlab.errors import CostError
from simlab.policies.costs.what_if import parse_what_if, what_if
from simlab.policies.parsing.parse import NamedPolicy
from simlab.policy import ChannelNeed, Needs, Stateless
from simlab.studies.inputs.artefacts import PoliciesOnMachine, priced_policies
from simlab.studies.inputs.prices import Prices, cost_table_of, prices_for_trace
from simlab.studies.inputs.trace import sample_trace
from simlab.studies.replay.replay import replay
from simlab.studies.replay.rows import bound_rows
from simlab.studies.replay.run import ReplayRun, replay_trace
from simlab.traces.artefacts.cost import CostFile
from simlab.traces.reader import open_trace
from simlab.tree import DraftTree
from simlab.workers.threads import Threads

POLICIES = ("ddtree:budget=2..6", "chain:length=1..3")


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Path], list[CostFile]]:
    """Latencies of two machines: drafted tokens cost much on the first, and nothing on the second."""
    folder = tmp_path_factory.mktemp("machines")
    return [folder / "dear.json", folder / "free.json"], list(two_machines(folder))


def test_each_machine_has_the_rows_that_it_has_alone(trace: Path, machines: tuple[list[Path], list[CostFile]]) -> None:
    paths, files = machines
    both = replay(trace, [*POLICIES, "ddtree:budget=60"], cost=paths)
    for path, file in zip(paths, files, strict=True):
        alone = replay(trace, [*POLICIES, "ddtree:budget=60"], cost=path)
        assert both.rows.filter(cost_id=file.cost_id).equals(alone.rows)
        assert f"(cost {file.cost_id})\n\npolicy " in both.text()
    assert value_of(both)["cost"] == [file.cost_id for file in files]
    assert "The fastest policy by prediction, and its speedup, change with the latency profile:" in both.text()
    assert re.search(r"ddtree:budget=60 \([^()]*\): \S+ Another CPU", " ".join(both.text().split()))
    assert "The fastest" not in replay(trace, POLICIES, cost=[paths[0], paths[0]]).text()


def test_a_policy_that_reads_prices_reads_those_of_each_machine(
    trace: Path, machines: tuple[list[Path], list[CostFile]]
) -> None:
    opened, paths = open_trace(trace), machines[0]
    typed = ["caddtree:budget=30", f'caddtree:budget=30,cost="{paths[0]}"']
    asked = priced_policies(typed, paths, opened, "synthetic")
    ids = [[policy.policy_id for policy in each.policies if policy.name == "caddtree"] for each in asked]
    assert ids[0][0] != ids[1][0]
    assert ids[0][1] == ids[1][1]
    rows = replay_trace(opened, "synthetic", asked, None, ReplayRun(Threads(2)))
    drafted = rows.group_by("policy_id", "cost_id").agg(pl.col("drafted").sum(), pl.col("rounds").sum())
    per_round = {(a, b): n / r for a, b, n, r in drafted.iter_rows()}
    dear, free = (each.prices.cost_id for each in asked)
    assert per_round[ids[1][0], free] > per_round[ids[0][0], dear]
    assert per_round[ids[0][1], dear] == per_round[ids[0][1], free] == per_round[ids[0][0], dear]


def test_hindsight_beside_a_policy_that_reads_a_channel_may_take_its_tokens() -> None:
    @dataclass(frozen=True)
    class Channelled(Stateless):
        budget: int = 3
        channels: tuple[ChannelNeed, ...] = ()

        @property
        def needs(self) -> Needs:
            return Needs(channels=self.channels)

        def select(self, draft: Draft, state: None = None) -> DraftTree:
            return DraftTree.root_only(draft.root_token)

    ids = set()
    for channels in ((), (ChannelNeed("pool", "pool"),)):
        policy = NamedPolicy("mine", "mine", {}, Channelled(channels=channels), "id")
        (bound,) = bound_rows(PoliciesOnMachine(Prices(None, "none", ""), (policy,)), 64, 7, best_budgets=True)
        assert bound.channels == channels
        ids.add(bound.policy_id)
    assert len(ids) == 2


# --- hypothetical machines


def test_a_what_if_machine_stands_beside_the_measured_one(trace: Path, cost: Path) -> None:
    """Half the seconds of a pass halve verify_s, and plain decoding's; rows tell the machines apart by their ids."""
    changes = ("verify*0.5", "tile=16,batch=2")
    value = value_of(replay(trace, ["ddtree:budget=8/16"], cost=cost, what_if=changes))
    measured = cost_table_of(filled())
    ids = [filled().cost_id, *(what_if(measured, parse_what_if(change)).cost_id for change in changes)]
    assert value["cost"] == ids
    rows = {(row["cost_id"], row["policy"]): row for row in value["rows"]}
    real, half, tiled = (rows[one, "ddtree:budget=8"] for one in ids)
    for name in ("rounds", "draft_s", "select_s", "commit_s"):
        assert half[name] == pytest.approx(real[name])
    assert half["verify_s"] == pytest.approx(real["verify_s"] / 2)
    assert tiled["verify_s"] > real["verify_s"]
    assert half["speedup"] < real["speedup"]
    plain = [rows[one, "autoregressive"]["tokens_per_s"] for one in ids]
    assert plain[1] == pytest.approx(2 * plain[0])


def test_what_cannot_be_is_one_sentence(trace: Path, cost: Path) -> None:
    assert "there is none" in refused(replay, trace, ["chain"], what_if=["verify*2"])
    assert "latencies up to 7" in refused(replay, trace, ["ddtree:budget=16"], cost=cost, what_if=["batch=8"])


def test_under_the_convex_view_the_first_stop_is_the_best(trace: Path, cost: Path) -> None:
    """The theorem that the view is for; on a staircase of raw prices the first stop is another one."""
    recipes = [
        f"caddtree:budget=48,look_ahead={ahead},cost={view}" for view in ("auto", "auto:convex") for ahead in (1, 0)
    ]
    value = value_of(replay(trace, recipes, cost=cost, what_if=["tile=4"]))
    rows = {row["policy"]: row for row in value["rows"] if row["cost_id"] == value["cost"][1]}
    drafted = [rows[recipe]["nodes_per_round"] for recipe in recipes]
    assert drafted[0] != drafted[1]
    assert drafted[2] == drafted[3]


def test_the_view_names_the_policy_and_not_the_prices(trace: Path, cost: Path) -> None:
    """Rounds are priced as measured; policies that see different prices are different policies, by name and id."""
    texts = ("caddtree:budget=8", "caddtree:budget=8,cost=auto:convex", f'caddtree:budget=8,cost="{cost}:convex"')
    value = value_of(replay(trace, texts, cost=cost))
    rows = [row for row in value["rows"] if row["name"] == "caddtree"]
    assert value["cost"] == filled().cost_id
    assert len({row["policy_id"] for row in rows}) == 3
    assert rows[1]["tokens_per_s"] == rows[2]["tokens_per_s"]


# --- machines of others, whose latencies come with simlab


def test_the_seconds_of_a_replay_are_those_of_the_file() -> None:
    """By hand: plain decoding pays its price at each context. Without a name no example is taken."""
    trace = sample_trace()
    cost = prices_for_trace(Path("h100-vllm-graphs"), trace, "dflash").cost
    assert cost is not None
    assert cost.block_size == trace.manifest.draft_sets["dflash"].block_size
    texts = [trace.sequences()[index] for index in simlab.replay(limit=2).rows["sequence"].unique().sort()]
    contexts = [len(text.prompt.token_ids) + place for text in texts for place in range(len(text.text) - 1)]
    seconds = sum(float(cost.curve("plain", context)[0]) for context in contexts)
    row = rows_of(replay(None, ["ar"], cost="h100-vllm-graphs", limit=2))["autoregressive"]
    assert row["tokens_per_s"] == pytest.approx(len(contexts) / seconds, rel=1e-6)
    assert "OTHERS" not in prices_for_trace(None, trace, "dflash").heading


def test_what_is_beyond_a_file_of_a_machine_at_hand_is_to_be_measured() -> None:
    cost = prices_for_trace(None, sample_trace(), "dflash").cost
    assert cost is not None
    with pytest.raises(CostError, match="measure more with `simlab profile --node-counts`"):
        cost.at("verify", np.array([1]), np.array([cost.most_drafted + 1]))
    with pytest.raises(CostError, match="measure longer ones with `simlab profile --contexts`"):
        cost.curve("verify", cost.longest_context + 1)
