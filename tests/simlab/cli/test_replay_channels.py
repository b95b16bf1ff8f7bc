"""Replaying policies that read a channel: its id stands in every row, and rows of another channel are made anew."""

import json
import shutil
from pathlib import Path

import polars as pl
import pytest

from simlab.cli.main import main
from simlab.recorded import RecordedSequence
from simlab.testing.made_up_channels import made_up_transitions
from simlab.traces.adder import add_channel
from simlab.traces.channels.columns import TransitionColumns
from simlab.traces.format.manifest import BASE_RANK, ChannelInfo, ModelInfo
from simlab.traces.reader import open_trace
from simlab.traces.results.files import read_results
from simlab.traces.synthetic import write_synthetic_trace

POLICY = "treeflash:budget=6,previous=2,top_k=3"


def with_head(folder: Path, tied: bool) -> Path:
    """A trace to which a channel is added; of the other kind it says something else."""
    trace = open_trace(folder)
    name = trace.draft_name()
    settings = {"depth": trace.manifest.draft_sets[name].depth, "previous": 4, "top_k": 5, "order": BASE_RANK}
    vocab_size = trace.manifest.vocab_size

    def columns(recorded: RecordedSequence) -> TransitionColumns:
        return TransitionColumns(*made_up_transitions(recorded, 4, 5, vocab_size, tied))

    producer = ModelInfo("made-up", "", f"tied {tied}")
    info = ChannelInfo("transitions", producer, name, trace.draft_ids[name], settings, "float32")
    add_channel(folder, "treeflash", info, columns)
    return folder


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


def test_rows_of_two_heads_are_no_table(
    traces: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole, few = tmp_path / "whole.parquet", tmp_path / "few.parquet"
    replayed(traces[0], whole)
    replayed(traces[1], few, "--limit", "1")
    assert main(["merge", str(whole), str(few), "--out", str(tmp_path / "both.parquet")]) == 2
    before = whole.read_bytes()
    again = ["replay", "--trace", str(traces[1]), "-p", POLICY, "--out", str(whole), "--resume", "--limit", "1"]
    assert main(again) == 2
    assert whole.read_bytes() == before
    assert "all rows of a policy are of the same channels" in capsys.readouterr().err


def test_why_rounds_ended_is_told_by_the_lists_of_the_channel(traces: tuple[Path, Path], tmp_path: Path) -> None:
    rounds = tmp_path / "rounds.parquet"
    replayed(traces[0], tmp_path / "rows.parquet", "--rounds", str(rounds))
    found = pl.read_parquet(rounds).filter(pl.col("policy") == POLICY)
    deepest = open_trace(traces[0]).manifest.draft_sets["synthetic"].depth
    assert set(found["ended"]) >= {"not kept", "not in tree"}
    assert (found.filter(ended="block end")["num_accepted"] == deepest).all()
    assert (found.filter(pl.col("num_accepted") == deepest)["ended"].is_in(["block end", "text end"])).all()


def test_speeds_of_what_no_latency_profile_prices_are_left_out(
    traces: tuple[Path, Path], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """A channel's network takes time that no cost file says; a speed without it would flatter."""
    rows = replayed(traces[0], tmp_path / "rows.parquet")
    assert rows.filter(name="treeflash")["draft_s"].null_count() == rows.filter(name="treeflash").height
    capsys.readouterr()
