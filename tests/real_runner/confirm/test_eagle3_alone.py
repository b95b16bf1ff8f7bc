"""A trace of an EAGLE-3 head alone: its chain is the draft set, its trees a channel, and no DFlash drafter runs."""

from collections.abc import Sequence
from pathlib import Path

import polars as pl
import pytest
import tiny_models
from commands import json_of
from random_eagle3 import make_eagle3

from simlab.cli.main import main
from simlab.traces.inspect import check_trace
from simlab.traces.reader import Trace, open_trace

CHAIN, TREE = "chain", "eagle3:budget=20"
BLOCK = 6


class Made:
    """A target, a head and prompts in a folder, and what was recorded of them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.target = str(tiny_models.make_target(folder / "target"))
        self.head = str(make_eagle3(folder / "head"))
        self.prompts = str(tiny_models.write_prompts(folder / "prompts.jsonl", 3, num_turns=1))

    @property
    def models(self) -> list[str]:
        return ["--target", self.target, "--draft", self.head]

    def record(self, out: Path, more: Sequence[str] = ()) -> int:
        texts = ["--prompts", self.prompts, "--max-new-tokens", "24", "--block", str(BLOCK), "--out", str(out)]
        return main(["record", *self.models, *texts, *more])

    @property
    def trace(self) -> Trace:
        return open_trace(self.folder / "trace")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    made = Made(tmp_path_factory.mktemp("alone"))
    assert made.record(made.folder / "trace") == 0
    check_trace(made.folder / "trace")
    return made


def test_the_draft_set_is_the_chain_and_the_channel_the_trees(made: Made) -> None:
    manifest = made.trace.manifest
    assert (list(manifest.draft_sets), list(manifest.channels)) == (["eagle3"], ["eagle3"])
    kept, info = manifest.draft_sets["eagle3"], manifest.channels["eagle3"]
    assert (kept.block_size, kept.depth, kept.mask_token_id, kept.tap_offset) == (BLOCK, BLOCK - 1, None, None)
    assert kept.is_chain
    assert (kept.draft_vocab_size, kept.model.digest) == (40, info.producer.digest)
    assert (info.setting("steps"), info.setting("beam"), info.extends) == (7, 10, None)


def test_it_is_profiled_replayed_and_confirmed(made: Made, tmp_path: Path) -> None:
    trace, cost, found_in = str(made.folder / "trace"), tmp_path / "cost.json", tmp_path / "rows.parquet"
    grid = ["--node-counts", "0,8,20", "--contexts", "8,120", "--repeats", "5", "--block", str(BLOCK)]
    channel = ["--channel", f"eagle3={made.head}", "--units", "7"]
    assert main(["profile", *made.models, *grid, *channel, "--out", str(cost)]) == 0
    policies = ["-p", CHAIN, "-p", TREE, "-p", "ddtree:budget=8"]
    assert main(["replay", "--trace", trace, *policies, "--cost", str(cost), "--out", str(found_in)]) == 0
    found = pl.read_parquet(found_in)
    paid = {name: found.filter(pl.col("policy").str.contains(name)) for name in (CHAIN, "eagle3")}
    assert (paid[CHAIN]["draft_s"] > 0).all()
    assert paid["eagle3"]["draft_s"].sum() == 0
    assert (paid["eagle3"]["channel_s"] > 0).all()
    arguments = ["confirm", "--trace", trace, *policies, "--cost", str(cost), "--out", str(tmp_path / "out"), "--json"]
    said = json_of(*arguments)
    rows = {row["policy"]: row for row in said["rows"]}
    assert {CHAIN, TREE} <= set(rows)
    assert all(row["num_equal"] == row["num_texts"] for row in rows.values() if row["num_texts"] is not None)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--tap-offset", "0"], "an EAGLE-3 head numbers the target's layers in one way; leave --tap-offset out"),
        (["--tap-offset", "auto"], "an EAGLE-3 head, which drafts token by token"),
        (["--block", "1025"], "a chain has at least 2 and at most 1,024 tokens, the root counted; got 1025"),
    ],
)
def test_what_a_head_has_not_is_refused(
    made: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str], more: list[str], said: str
) -> None:
    assert made.record(tmp_path / "none", more) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.strip().count("\n") == 0
    assert not (tmp_path / "none" / "manifest.json").exists()
