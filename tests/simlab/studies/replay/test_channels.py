"""Replaying policies that read a channel: its id stands in every row, its price is a stage, and what lacks is said."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from head_traces import with_head
from made_up_costs import EMPTY, filled
from study_results import refused, value_of
from synthetic_traces import DRAFT, SyntheticChannels, write_synthetic_trace

import simlab
from simlab.cost import Visits
from simlab.policies.parsing.parse import parse_policies
from simlab.sequence_replay import Totals, replay_sequence
from simlab.studies.inputs.prices import cost_table_of
from simlab.studies.replay.replay import replay
from simlab.traces.artefacts.cost import CostChannel, read_cost_file, write_cost_file
from simlab.traces.format.manifest_entries import BASE_RANK, ModelInfo
from simlab.traces.reader import open_trace

POLICY = "treeflash:budget=6,previous=2,top_k=3"
BOTH = (POLICY, "ddtree:budget=6")


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two traces of the same texts and draft set, with other channels of one name."""
    folder = tmp_path_factory.mktemp("channels")
    plain = write_synthetic_trace(folder / "plain", num_sequences=4, length=40)
    return tuple(  # type: ignore[return-value]
        with_head(Path(shutil.copytree(plain, folder / f"head-{tied}")), tied) for tied in (False, True)
    )


def test_rows_name_the_channels_that_they_read(traces: tuple[Path, Path]) -> None:
    """What the channel's network takes is in no cost file here: a speed without it would flatter."""
    rows = replay(traces[0], BOTH).rows
    made = open_trace(traces[0]).channel_ids["treeflash"]
    by_name = dict(rows.select("name", "channel_ids").unique().iter_rows())
    assert json.loads(by_name["treeflash"]) == json.loads(by_name["hindsight"]) == {"treeflash": made}
    assert {by_name[name] for name in ("ddtree", "chain")} == {"{}"}
    assert rows.filter(name="treeflash")["draft_s"].null_count() == rows.filter(name="treeflash").height


def test_rows_of_another_head_are_made_anew(traces: tuple[Path, Path], tmp_path: Path) -> None:
    """With rounds too; and what no channel enters is kept."""
    out, rounds = tmp_path / "rows.parquet", tmp_path / "rounds.parquet"
    first = replay(traces[0], BOTH, out=out, rounds=rounds).rows
    again = replay(traces[1], BOTH, out=out, rounds=rounds, resume=True).rows
    fresh = replay(traces[1], BOTH, rounds=tmp_path / "fresh.parquet").rows
    order = ["policy_id", "sequence"]
    assert again.sort(order).equals(fresh.sort(order))
    assert not again.sort(order).equals(first.sort(order))
    key = [*order, "position"]
    assert pl.read_parquet(rounds).sort(key).equals(pl.read_parquet(tmp_path / "fresh.parquet").sort(key))


def test_rows_of_two_heads_are_no_table(traces: tuple[Path, Path], tmp_path: Path) -> None:
    whole, few = tmp_path / "whole.parquet", tmp_path / "few.parquet"
    replay(traces[0], BOTH, out=whole)
    replay(traces[1], BOTH, out=few, limit=1)
    refused(simlab.merge, [whole, few], tmp_path / "both.parquet")
    before = whole.read_bytes()
    said = refused(replay, traces[1], [POLICY], out=whole, resume=True, limit=1)
    assert whole.read_bytes() == before
    assert "all rows of a policy are of the same channels" in said


def test_why_rounds_ended_is_judged_by_the_lists_of_the_channel(traces: tuple[Path, Path], tmp_path: Path) -> None:
    rounds = tmp_path / "rounds.parquet"
    replay(traces[0], BOTH, rounds=rounds)
    found = pl.read_parquet(rounds).filter(pl.col("policy") == POLICY)
    deepest = open_trace(traces[0]).manifest.draft_sets["synthetic"].depth
    assert set(found["ended"]) >= {"not kept", "not in tree"}
    assert (found.filter(ended="block end")["num_accepted"] == deepest).all()
    assert (found.filter(pl.col("num_accepted") == deepest)["ended"].is_in(["block end", "text end"])).all()


HEAD = {"depth": 7, "top_k": 5, "order": BASE_RANK}


def priced(folder: Path, trace: Path, **changes: object) -> Path:
    """A made-up cost file with a price of the trace's channel; or of another one."""
    producer = open_trace(trace).manifest.channels["treeflash"].producer
    channel = replace(CostChannel("transitions", producer, HEAD, (2, 4)), **changes)  # type: ignore[arg-type]
    file = replace(EMPTY, visits=Visits(1, 1, paired=True), channels={"treeflash": channel})
    write_cost_file(folder / "cost.json", filled(file))
    return folder / "cost.json"


def test_a_channel_with_a_price_is_a_stage(traces: tuple[Path, Path], tmp_path: Path) -> None:
    """Its seconds are those of as many rounds at their contexts; other policies pay what they pay without."""
    cost, without = priced(tmp_path, traces[0]), tmp_path / "plain.json"
    rows = replay(traces[0], BOTH, cost=cost, rounds=tmp_path / "rounds.parquet").rows
    table = cost_table_of(read_cost_file(cost)).charged(parse_policies([POLICY])[0].policy)
    of_rounds = pl.read_parquet(tmp_path / "rounds.parquet").filter(policy=POLICY)
    prompts = {one.index: len(one.prompt.token_ids) for one in open_trace(traces[0]).sequences()}
    expected = sum(
        float(table.curve("channel", prompts[sequence] + position)[0])
        for sequence, position in of_rounds.select("sequence", "position").iter_rows()
    )
    assert rows.filter(name="treeflash")["channel_s"].sum() == pytest.approx(expected)
    assert rows.filter(name="treeflash")["draft_s"].sum() > 0
    assert rows.filter(pl.col("name") != "treeflash")["channel_s"].sum() == 0
    file = read_cost_file(cost)
    kept = {cell: seconds for cell, seconds in file.samples.items() if ":" not in cell[0]}
    write_cost_file(without, replace(file, channels={}, samples=kept))
    others = pl.col("name").is_in(["ddtree", "chain", "ar"])
    plainer = replay(traces[0], BOTH, cost=without).rows
    assert rows.filter(others).drop("cost_id").equals(plainer.filter(others).drop("cost_id"))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"producer": ModelInfo("another", "", "other")}, "was measured with another"),
        ({"settings": {**HEAD, "top_k": 9}}, "was measured with"),
        ({"units": (3, 4)}, "--units 2"),
        (None, "does not say what the channel treeflash takes"),
    ],
)
def test_a_policy_whose_channel_has_no_price_keeps_its_counts(
    changes: dict[str, object] | None, said: str, traces: tuple[Path, Path], cost: Path, tmp_path: Path
) -> None:
    """The others have speeds, and a sentence names the command that measures it."""
    table = replay(traces[0], BOTH, cost=cost if changes is None else priced(tmp_path, traces[0], **changes))
    ours = table.rows.filter(name="treeflash")
    assert ours["channel_s"].null_count() == ours["verify_s"].null_count() == ours.height
    assert ours["rounds"].sum() > 0
    assert table.rows.filter(name="ddtree")["channel_s"].to_list() == [0.0] * ours.height
    shown = " ".join(table.text().split())
    assert f"No seconds of {POLICY}: " in shown
    assert said in shown
    assert "`simlab profile --channel treeflash=CHECKPOINT" in shown
    assert list(value_of(table)["unpriced"]) == [POLICY]


MINE = '''
from dataclasses import dataclass

from simlab import ChannelNeed, Draft, DraftTree, Needs, Stateless


@dataclass(frozen=True)
class Follow(Stateless):
    """The best token of the first row, as often as it has a row of its own."""

    budget: int = 3
    previous: int = 2

    @property
    def needs(self) -> Needs:
        need = ChannelNeed("transitions", "transitions", (("previous", self.previous), ("top_k", 1)))
        return Needs(top_k=1, channels=(need,))

    def select(self, draft: Draft, state: None = None) -> DraftTree:
        return DraftTree.chain(draft.root_token, [int(draft.channel("transitions").ids[0, 0])])
'''


def test_a_policy_of_ones_own_reads_a_channel(tmp_path: Path) -> None:
    """Through the channel it asks for, or not at all."""
    made = SyntheticChannels(previous=3, top_k=3, beam=2)
    trace = write_synthetic_trace(tmp_path / "trace", 0, 4, 24, 3, 8, 97, channels=made)
    (tmp_path / "mine.py").write_text(MINE)
    mine = f"{tmp_path}/mine.py:Follow"
    policy = parse_policies([mine])[0].policy
    texts = open_trace(trace).recorded(DRAFT, channels=["transitions"])
    expected = sum((replay_sequence(policy, text) for text in texts), Totals())
    assert expected.accepted > 0
    for batch in (None, 2):
        rows = replay(trace, [mine], batch=batch).rows.filter(policy=mine)
        assert (rows["rounds"].sum(), rows["accepted"].sum()) == (expected.rounds, expected.accepted)
    said = refused(replay, trace, [f"{mine}:previous=4"])
    assert "wants previous 4 at least, where 3 was recorded" in said
    assert f"`simlab record --trace {trace} --add-channel transitions-2=CHECKPOINT,previous=4,top_k=1`" in said
