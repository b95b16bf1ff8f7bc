"""Replays of routers: shares of routes, hindsight over them, rounds in files, and refusals."""

from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from made_up_costs import EMPTY, filled
from study_results import refused, value_of
from synthetic_traces import DRAFT, SyntheticChannels, write_synthetic_trace

from simlab.cost import Visits
from simlab.policies.parsing.parse import parse_policies
from simlab.sequence_replay import rounds
from simlab.studies.compare import compare
from simlab.studies.optimize.optimize import optimize
from simlab.studies.replay.replay import replay
from simlab.traces.artefacts.cost import CostChannel, write_cost_file
from simlab.traces.reader import open_trace, packaged_trace

ROUTER = 'router:routes="ddtree:budget=8|ar|chain:length=2",cuts="0.5|2"'
BOTH = (ROUTER, "ddtree:budget=8")


@pytest.fixture(scope="module")
def shares() -> dict[str, float]:
    """Counted round by round."""
    (named,) = parse_policies([ROUTER])
    trace = open_trace(packaged_trace())
    prompts = [(sequence.prompt.dataset, sequence.prompt.prompt_id) for sequence in trace.sequences()]
    first = list(dict.fromkeys(prompts))[:3]
    wanted = [index for index, prompt in enumerate(prompts) if prompt in first]
    (draft,) = trace.manifest.draft_sets
    found = [one.route for text in trace.recorded(draft, wanted, ("target",)) for one in rounds(named.policy, text)]
    labels = ("ddtree:budget=8", "ar", "chain:length=2")
    return {label: found.count(index) / len(found) for index, label in enumerate(labels)}


def test_shares_of_routes(shares: dict[str, float]) -> None:
    assert min(shares.values()) > 0
    table = replay(None, BOTH, limit=3)
    printed, out = value_of(table), table.text()
    assert printed["route_shares"][ROUTER] == pytest.approx(shares)
    rows = {row["policy"]: row for row in printed["rows"]}
    bound = rows["hindsight:routes=ddtree:budget=8|ar|chain:length=2"]
    assert bound["name"] == "hindsight-routes"
    assert bound["tokens_per_s"] > max(rows[ROUTER]["tokens_per_s"], rows["ddtree:budget=8"]["tokens_per_s"])
    assert "Rounds by route:" in out
    assert f"{100 * shares['ar']:.0f} % ar" in out
    assert "Hindsight routes are those of a router" in out


def test_rounds_and_rows_in_files(tmp_path: Path) -> None:
    out, by_round = tmp_path / "rows.parquet", tmp_path / "rounds.parquet"
    replay(None, BOTH, limit=3, out=out, rounds=by_round)
    of_router = pl.read_parquet(by_round).filter(pl.col("policy") == ROUTER)
    assert set(of_router["num_drafted"]) == {0, 2, 8}
    before = out.read_bytes(), by_round.read_bytes()
    replay(None, BOTH, limit=3, out=out, rounds=by_round, resume=True)
    assert (out.read_bytes(), by_round.read_bytes()) == before


@pytest.fixture(scope="module")
def priced(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """A made-up trace with features of two routes, and latencies of all that is in it."""
    folder = tmp_path_factory.mktemp("network")
    write_synthetic_trace(folder / "trace", 0, 6, 20, channels=SyntheticChannels())
    trace = open_trace(folder / "trace")
    info = trace.manifest.channels["features"]
    kept = trace.manifest.draft_sets[DRAFT]
    channels = {"features": CostChannel(info.kind, info.producer, dict(info.settings))}
    file = replace(EMPTY, block_size=kept.block_size, drafter=kept.model, target=trace.manifest.target)
    file = replace(file, visits=Visits(3, 3, paired=True), channels=channels)
    write_cost_file(folder / "cost.json", filled(file))
    return str(folder / "trace"), str(folder / "cost.json")


NETWORK = 'router:routes="ddtree:budget=16|chain",by=network,channel=features'


def test_a_network_is_paid_in_every_round_but_not_by_hindsight(priced: tuple[str, str]) -> None:
    trace, cost = priced
    printed = value_of(replay(trace, [NETWORK, "ddtree:budget=16"], cost=cost))
    assert min(printed["route_shares"][NETWORK].values()) > 0
    rows = {row["policy"]: row for row in printed["rows"]}
    bound, alone = rows["hindsight:routes=ddtree:budget=16|chain"], rows["ddtree:budget=16"]
    assert rows[NETWORK]["channel_s"] > 0
    assert bound["channel_s"] == alone["channel_s"] == 0
    assert bound["tokens_per_s"] >= max(rows[NETWORK]["tokens_per_s"], alone["tokens_per_s"])


def test_what_routers_cannot_do_is_refused(priced: tuple[str, str]) -> None:
    trace, cost = priced
    said = "its routes are ddtree:budget=16|ar, where its network was trained for ddtree:budget=16|chain"
    assert said in refused(replay, trace, [NETWORK.replace("|chain", "|ar")], cost=cost)
    said = "is a router, whose rounds take routes of their own"
    assert said in refused(replay, None, [ROUTER], batch=2, limit=3)


def test_other_studies_take_routers() -> None:
    assert "router" in compare(packaged_trace(), BOTH).text()
    assert "router" in optimize(None, BOTH).text()
