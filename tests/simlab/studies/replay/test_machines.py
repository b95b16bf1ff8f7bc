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
    trace: Path, machines: tuple[list[Path], list[CostFile]], tmp_path: Path
) -> None:
    mine = tmp_path / "mine.py"
    mine.write_text(
        "from dataclasses import dataclass\n"
        "from simlab.policies.orders.best_first import BestFirst\n"
        "from simlab.policies.rules.budgets import BestRatio\n"
        "from simlab.policies.composition import Composed, Composition\n"
        "from simlab.policies.edges.models import Marginal\n"
        "@dataclass(frozen=True)\n"
        "class Mine(Composed):\n"
        "    budget: int = 30\n"
        "    cost: str = 'auto'\n"
        "    def compose(self, shelf):\n"
        "        table, cost_id = shelf.cost(self.cost)\n"
        "        return Composition(BestFirst(Marginal()), BestRatio(self.budget, table, look_ahead=99),"
        " {'cost': cost_id})\n",
        encoding="utf-8",
    )
    opened, paths = open_trace(trace), machines[0]
    asked = priced_policies([f"{mine}:Mine", f'{mine}:Mine:cost="{paths[0]}"'], paths, opened, "synthetic")
    ids = [[policy.policy_id for policy in each.policies if policy.name.endswith("Mine")] for each in asked]
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
    table = replay(trace, ["ddtree:budget=8/16"], cost=cost, what_if=changes)
    measured = cost_table_of(filled())
    ids = [filled().cost_id, *(what_if(measured, parse_what_if(change)).cost_id for change in changes)]
    value = value_of(table)
    assert value["cost"] == ids
    rows = {(row["cost_id"], row["policy"]): row for row in value["rows"]}
    headings = [rows[one, "chain"]["prices"] for one in ids]
    assert headings[0].startswith(f"{cost}: Made-up CPU")
    wanted = f"WHAT IF verify*0.5,plain*0.5 ({ids[1]}), hypothetical, not measured; from {cost}: Made-up CPU"
    assert headings[1].startswith(wanted)
    real, half, tiled = (rows[one, "ddtree:budget=8"] for one in ids)
    for name in ("rounds", "draft_s", "select_s", "commit_s"):
        assert half[name] == pytest.approx(real[name])
    assert half["verify_s"] == pytest.approx(real["verify_s"] / 2)
    assert tiled["verify_s"] > real["verify_s"]
    assert half["speedup"] < real["speedup"]
    plain = [rows[one, "autoregressive"]["tokens_per_s"] for one in ids]
    assert plain[1] == pytest.approx(2 * plain[0])
    text = table.text()
    for part in ("WHAT IF verify*0.5,plain*0.5", "WHAT IF tile=16,batch=2", "hypothetical, not measured"):
        assert part in text
    assert "fastest" in text.lower().rsplit("\n\n", 1)[-1]


@pytest.mark.parametrize(
    ("change", "policy", "is_priced", "said"),
    [
        ("verfy*2", "chain", True, "no stage"),
        ("", "chain", True, "cannot read"),
        ("verify*2", "chain", False, "there is none"),
        ("batch=8", "ddtree:budget=16", True, "latencies up to 7"),
        ("convex", "caddtree:budget=8,cost=auto:flat", True, "'flat' is no view"),
    ],
)
def test_what_cannot_be_is_one_sentence(
    change: str, policy: str, is_priced: bool, said: str, trace: Path, cost: Path
) -> None:
    assert said in refused(replay, trace, [policy], cost=cost if is_priced else (), what_if=[change])


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


def test_lines_above_tables_fit() -> None:
    lines = replay(None, ["ddtree:budget=4"], limit=1, what_if=["verify*0.5,tile=64,convex"]).text().splitlines()
    above = lines[: next(index for index, line in enumerate(lines) if line.startswith("policy "))]
    titles = [line for line in lines if "WHAT IF" in line]
    assert titles
    assert all(len(line) <= 100 or len(line.split()) < 5 for line in [*above, *titles])


# --- machines of others, whose latencies come with simlab


@pytest.mark.parametrize(
    ("name", "whose", "free"),
    [
        ("h100-vllm-graphs", "Qwen/Qwen3-1.7B on NVIDIA H100 80GB, vLLM with CUDA graphs", "draft, select, commit"),
        ("a800-eager", "Qwen/Qwen3-4B on NVIDIA A800, Hugging Face eager", "select, commit"),
        ("rtx5080-domino", "Qwen/Qwen3-4B on NVIDIA RTX 5080", None),
    ],
)
def test_a_replay_says_whose_prices_they_are_and_what_its_speedups_are_over(
    name: str, whose: str, free: str | None
) -> None:
    """Only the last one timed every stage and autoregressive decoding; the middle one not even a pass of one token."""
    printed = " ".join(replay(None, ["chain"], cost=name, limit=2).text().split())
    assert "PRICES OF OTHERS' MODELS, not of this trace's" in printed
    assert whose in printed
    assert free is None or f"not timed, so free here: {free}" in printed
    assert ("not timed, so free here" in printed) == (free is not None)
    assert ("over autoregressive decoding (its fastest measured implementation)" in printed) == (free is None)
    assert ("over a pass of one token (autoregressive decoding was not timed)" in printed) == name.startswith("h100")
    assert ("No speedup: autoregressive decoding was not timed." in printed) == name.startswith("a800")


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


@pytest.mark.parametrize(
    ("name", "change", "policy"),
    [
        ("h100-vllm-graphs", None, "ddtree:budget=64"),
        ("rtx5080-domino", None, "ddtree:budget=17"),
        ("rtx5080-domino", None, "caddtree:budget=32"),
        ("rtx5080-domino", "tile=16", "ddtree:budget=17"),
        ("rtx5080-domino", "batch=20", "chain"),
        ("rtx5080-domino", "convex", "ddtree:budget=17"),
        ("rtx5080-domino", None, "bastion:budget=16,cost_model=roofline"),
    ],
)
def test_what_is_beyond_an_example_is_refused_without_advice_to_measure_it(
    name: str, change: str | None, policy: str
) -> None:
    """Nobody here can measure on others' machines."""
    said = refused(replay, None, [policy], cost=name, limit=2, what_if=[change] if change else ())
    assert "take another cost file: this one is an example that others measured, and it ends there" in said
    assert "simlab profile" not in said


def test_what_is_beyond_a_file_of_a_machine_at_hand_is_to_be_measured() -> None:
    cost = prices_for_trace(None, sample_trace(), "dflash").cost
    assert cost is not None
    with pytest.raises(CostError, match="measure more with `simlab profile --node-counts`"):
        cost.at("verify", np.array([1]), np.array([cost.most_drafted + 1]))
    with pytest.raises(CostError, match="measure longer ones with `simlab profile --contexts`"):
        cost.curve("verify", cost.longest_context + 1)


def test_inspecting_an_example_gives_no_advice_to_measure_again() -> None:
    for name in ("h100-vllm-graphs", "rtx5080-domino"):
        printed = simlab.inspect(name).text()
        assert "one sample" in printed
        assert "simlab profile" not in printed
        assert "CaDDTree" not in printed
    examples = "a800-eager, h100-vllm-graphs, rtx5080-domino come with simlab"
    assert examples in refused(replay, None, ["chain"], cost="h200", limit=2)
