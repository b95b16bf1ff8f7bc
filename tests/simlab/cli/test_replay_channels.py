"""Replaying policies that read a channel: its id stands in every row, and rows of another channel are made anew."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from commands import json_of, output_of, refusal_of
from head_traces import with_head
from made_up_costs import EMPTY, filled

from simlab.cli.main import main
from simlab.cost import Visits
from simlab.policies.parsing.parse import parse_policies
from simlab.studies.inputs.prices import cost_table_of
from simlab.traces.artefacts.cost import CostChannel, read_cost_file, write_cost_file
from simlab.traces.format.manifest_entries import BASE_RANK, ModelInfo
from simlab.traces.reader import open_trace
from simlab.traces.results.files import read_results
from simlab.traces.synthetic import write_synthetic_trace

POLICY = "treeflash:budget=6,previous=2,top_k=3"


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two traces of the same texts and draft set, with other channels of one name."""
    folder = tmp_path_factory.mktemp("channels")
    plain = write_synthetic_trace(folder / "plain", num_sequences=4, length=40)
    return tuple(  # type: ignore[return-value]
        with_head(Path(shutil.copytree(plain, folder / f"head-{tied}")), tied) for tied in (False, True)
    )


def replayed(trace: Path, out: Path, *more: str) -> pl.DataFrame:
    assert main(["replay", "--trace", str(trace), "-p", POLICY, "-p", "ddtree:budget=6", "--out", str(out), *more]) == 0
    return read_results(out)


def test_rows_name_the_channels_that_they_are_of(traces: tuple[Path, Path], tmp_path: Path) -> None:
    rows = replayed(traces[0], tmp_path / "rows.parquet")
    made = open_trace(traces[0]).channel_ids["treeflash"]
    by_name = dict(rows.select("name", "channel_ids").unique().iter_rows())
    assert json.loads(by_name["treeflash"]) == {"treeflash": made}
    assert json.loads(by_name["hindsight"]) == {"treeflash": made}
    assert {by_name[name] for name in ("ddtree", "chain")} == {"{}"}


def test_rows_of_another_head_are_made_anew(traces: tuple[Path, Path], tmp_path: Path) -> None:
    """With rounds too; and what no channel enters is kept."""
    out, rounds = tmp_path / "rows.parquet", tmp_path / "rounds.parquet"
    first = replayed(traces[0], out, "--rounds", str(rounds))
    again = replayed(traces[1], out, "--rounds", str(rounds), "--resume")
    fresh = replayed(traces[1], tmp_path / "fresh.parquet", "--rounds", str(tmp_path / "fresh-rounds.parquet"))
    order = ["policy_id", "sequence"]
    assert again.sort(order).equals(fresh.sort(order))
    assert not again.sort(order).equals(first.sort(order))
    key = ["policy_id", "sequence", "position"]
    assert pl.read_parquet(rounds).sort(key).equals(pl.read_parquet(tmp_path / "fresh-rounds.parquet").sort(key))


def test_rows_of_two_heads_are_no_table(traces: tuple[Path, Path], tmp_path: Path) -> None:
    whole, few = tmp_path / "whole.parquet", tmp_path / "few.parquet"
    replayed(traces[0], whole)
    replayed(traces[1], few, "--limit", "1")
    assert main(["merge", str(whole), str(few), "--out", str(tmp_path / "both.parquet")]) == 2
    before = whole.read_bytes()
    again = ["replay", "--trace", str(traces[1]), "-p", POLICY, "--out", str(whole), "--resume", "--limit", "1"]
    said = refusal_of(*again)
    assert whole.read_bytes() == before
    assert "all rows of a policy are of the same channels" in said


def test_why_rounds_ended_is_told_by_the_lists_of_the_channel(traces: tuple[Path, Path], tmp_path: Path) -> None:
    rounds = tmp_path / "rounds.parquet"
    replayed(traces[0], tmp_path / "rows.parquet", "--rounds", str(rounds))
    found = pl.read_parquet(rounds).filter(pl.col("policy") == POLICY)
    deepest = open_trace(traces[0]).manifest.draft_sets["synthetic"].depth
    assert set(found["ended"]) >= {"not kept", "not in tree"}
    assert (found.filter(ended="block end")["num_accepted"] == deepest).all()
    assert (found.filter(pl.col("num_accepted") == deepest)["ended"].is_in(["block end", "text end"])).all()


def test_speeds_of_what_no_latency_profile_prices_are_left_out(traces: tuple[Path, Path], tmp_path: Path) -> None:
    """A channel's network takes time that no cost file says; a speed without it would flatter."""
    rows = replayed(traces[0], tmp_path / "rows.parquet")
    assert rows.filter(name="treeflash")["draft_s"].null_count() == rows.filter(name="treeflash").height


HEAD = {"depth": 7, "top_k": 5, "order": BASE_RANK}


def priced(folder: Path, trace: Path, **changes: object) -> Path:
    """A made-up cost file with a price of the trace's channel; or of another one."""
    producer = open_trace(trace).manifest.channels["treeflash"].producer
    settings = {**HEAD, "depth": open_trace(trace).manifest.channels["treeflash"].setting("depth")}
    channel = replace(CostChannel("transitions", producer, settings, (2, 4)), **changes)  # type: ignore[arg-type]
    file = replace(EMPTY, visits=Visits(1, 1, paired=True), channels={"treeflash": channel})
    path = folder / f"cost-{len(list(folder.glob('cost-*')))}.json"
    write_cost_file(path, filled(file))
    return path


def test_a_channel_with_a_price_is_a_stage(traces: tuple[Path, Path], tmp_path: Path) -> None:
    """Its seconds are those of as many rounds at their contexts; other policies pay what they pay without."""
    cost = priced(tmp_path, traces[0])
    rows = replayed(traces[0], tmp_path / "rows.parquet", "--cost", str(cost))
    by_name = rows.group_by("name").agg(pl.col("channel_s").sum(), pl.col("draft_s").sum(), pl.col("rounds").sum())
    found = {name: (channel_s, draft_s, num) for name, channel_s, draft_s, num in by_name.iter_rows()}
    assert all(channel_s == 0 for name, (channel_s, *_) in found.items() if name != "treeflash")
    table = cost_table_of(read_cost_file(cost)).charged(parse_policies([POLICY])[0].policy)
    low, high = table.seconds["channel"][[0, -1], 0]
    channel_s, draft_s, num = found["treeflash"]
    assert num * low <= channel_s <= num * high
    assert draft_s > 0
    without = tmp_path / "plain.json"
    file = read_cost_file(cost)
    kept = {cell: seconds for cell, seconds in file.samples.items() if ":" not in cell[0]}
    write_cost_file(without, replace(file, channels={}, samples=kept))
    plainer = replayed(traces[0], tmp_path / "plainer.parquet", "--cost", str(without))
    others = pl.col("name").is_in(["ddtree", "chain", "ar"])
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
    changes: dict[str, object] | None, said: str, traces: tuple[Path, Path], tmp_path: Path
) -> None:
    """The others have speeds, and a sentence names the command that measures it."""
    if changes is None:
        cost = tmp_path / "cost.json"
        write_cost_file(cost, filled())
    else:
        cost = priced(tmp_path, traces[0], **changes)
    rows = replayed(traces[0], tmp_path / "rows.parquet", "--cost", str(cost))
    ours = rows.filter(name="treeflash")
    assert ours["channel_s"].null_count() == ours["verify_s"].null_count() == ours.height
    assert ours["rounds"].sum() > 0
    assert rows.filter(name="ddtree")["channel_s"].to_list() == [0.0] * ours.height
    asked = ["replay", "--trace", str(traces[0]), "-p", POLICY, "-p", "ddtree:budget=6", "--cost", str(cost)]
    shown = " ".join(output_of(*asked).split())
    assert f"No seconds of {POLICY}: the c" in shown
    assert said in shown
    assert "`simlab profile --channel treeflash=CHECKPOINT" in shown
    assert list(json_of(*asked, "--json")["unpriced"]) == [POLICY]


def test_a_policy_without_seconds_is_not_chosen_by_them(tmp_path: Path) -> None:
    """By tokens it may be."""
    trace, cost = write_synthetic_trace(tmp_path / "trace", num_sequences=40, length=8), tmp_path / "cost.json"
    with_head(trace, tied=False)
    write_cost_file(cost, filled())
    asked = ["optimize", "--trace", str(trace), "--cost", str(cost), "-p", POLICY]
    refused = " ".join(refusal_of(*asked).split())
    assert f"`{POLICY}` is chosen by its seconds, and the cost file" in refused
    assert "`simlab profile --channel treeflash=CHECKPOINT" in refused
    assert main([*asked, "--objective", "acceptance_length", "--node-cap", "16"]) == 0
