"""Traces of what drafts alone, a target's own masks or a head: recorded, priced, replayed, confirmed, refused."""

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import tiny_models
from commands import json_of, output_of, refusal_of
from depth import examples
from random_adapter import make_adapter
from random_eagle3 import make_eagle3
from training_runs import write_table

from simlab.cli.main import main
from simlab.real_runner.checkpoints.contents import checkpoint_digest
from simlab.traces.adder import DraftAdder
from simlab.traces.inspect import check_trace
from simlab.traces.reader import Trace, open_trace

NUM_MASKS, BLOCK = 3, 6
TREE = "eagle3:budget=20"
MODES = ("self:budget=6,masked=-1", "self:budget=6,masked=0", "self:budget=6,masked=2", "self:budget=6,masked=6")
POLICIES = (*MODES, "chain", "ddtree:budget=6", "tree:budget=6,ngram_weight=0.2,counts=text,masked=1")


class Made:
    """A target, what drafts with it alone and prompts in a folder, and what was recorded of them."""

    def __init__(self, folder: Path, make: Callable[[Path, Path], Path], *more: str) -> None:
        self.folder = folder
        self.target = tiny_models.make_target(folder / "target")
        self.drafter = str(make(folder / "own", self.target))
        self.prompts = str(tiny_models.write_prompts(folder / "prompts.jsonl", examples(4, quick=3)))
        self.more = more
        assert self.record(folder / "trace") == 0
        check_trace(folder / "trace")

    @property
    def models(self) -> list[str]:
        return ["--target", str(self.target), "--draft", self.drafter]

    def record(self, out: Path, more: Sequence[str] = ()) -> int:
        texts = ["--prompts", self.prompts, "--max-new-tokens", "24", "--batch-size", "2", "--out", str(out)]
        return main(["record", *self.models, *texts, *self.more, *more])

    @property
    def trace(self) -> Trace:
        return open_trace(self.folder / "trace")

    def confirmed(self, out: Path, policies: Sequence[str], cost: Path) -> dict[str, dict[str, Any]]:
        """Rows by policy, of which each text had the rounds of its replay."""
        typed = ["confirm", "--trace", self.folder / "trace", *policies, "--cost", cost, "--out", out, "--json"]
        rows = {row["policy"]: row for row in json_of(*typed)["rows"]}
        assert all(row["num_equal"] == row["num_texts"] for row in rows.values() if row["num_texts"] is not None)
        return rows


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return Made(tmp_path_factory.mktemp("self"), lambda out, target: make_adapter(out, target, num_masks=NUM_MASKS))


@pytest.fixture(scope="module")
def head(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """An EAGLE-3 head: its chain is the draft set, its trees a channel."""
    return Made(tmp_path_factory.mktemp("head"), lambda out, _target: make_eagle3(out), "--block", str(BLOCK))


def test_the_draft_set_has_not_seen_its_roots(made: Made) -> None:
    manifest = made.trace.manifest
    assert (list(manifest.draft_sets), list(manifest.channels)) == (["self"], [])
    kept = manifest.draft_sets["self"]
    assert (kept.block_size, kept.depth, kept.mask_token_id, kept.tap_offset) == (NUM_MASKS + 1, NUM_MASKS, None, None)
    assert (kept.root_seen, kept.is_chain) == (False, False)
    assert kept.model.digest == checkpoint_digest(Path(made.drafter))
    assert json.loads((made.folder / "trace" / "manifest.json").read_text())["draft_sets"]["self"]["root_seen"] is False
    assert "the target itself at its own masks, the root unseen" in output_of("inspect", made.folder / "trace")


def test_it_is_profiled_replayed_and_confirmed(made: Made, tmp_path: Path) -> None:
    trace, cost, rows = str(made.folder / "trace"), tmp_path / "cost.json", tmp_path / "rows.parquet"
    grid = ["--node-counts", "0,4,9", "--contexts", "8,120", "--repeats", "5"]
    assert main(["profile", *made.models, *grid, "--out", str(cost)]) == 0
    policies = [word for policy in POLICIES for word in ("-p", policy)]
    assert main(["replay", "--trace", trace, *policies, "--cost", str(cost), "--out", str(rows)]) == 0
    found = pl.read_parquet(rows)
    seconds = {
        name: float(part["verify_s"].sum()) / int(part["rounds"].sum()) for (name,), part in found.group_by("policy")
    }
    assert min(seconds.values()) > 0
    assert seconds[MODES[3]] == pytest.approx(seconds["ddtree:budget=6"])
    assert set(POLICIES) <= set(made.confirmed(tmp_path / "out", policies, cost))


@pytest.mark.thorough
def test_a_first_order_head_is_trained_on_it_recorded_priced_and_confirmed(made: Made, tmp_path: Path) -> None:
    head, trace, cost = str(tmp_path / "head"), str(tmp_path / "trace"), str(tmp_path / "cost.json")
    texts = ["--text", str(write_table(tmp_path / "texts.parquet")), "--held-out", "0.25"]
    plan = ["--steps", "6", "--eval-every", "3", "--sequences", "2", "--roots", "6", "--warmup-steps", "2"]
    train = ["train", "treeflash", *made.models, *texts, *plan, "--inner-size", "12", "--head-tokens", "60"]
    assert main([*train, "--out", head]) == 0
    curve = json.loads((tmp_path / "head" / "curve.json").read_text())
    assert len(curve[0]["held_out"]["agreement"]) == NUM_MASKS
    shutil.copytree(made.folder / "trace", trace)
    add = ["record", "--trace", trace, "--add-channel", f"treeflash={head},previous=6,top_k=6"]
    assert main(add) == 0
    check_trace(tmp_path / "trace")
    assert open_trace(trace).manifest.channels["treeflash"].extends == "self"
    policies = ["-p", "treeflash:budget=6", "-p", "tree:budget=6,edges=transitions,channel=treeflash,masked=1"]
    grid = ["--node-counts", "0,4,9", "--contexts", "8,120", "--repeats", "5"]
    channel = ["--channel", f"treeflash={head}", "--units", "6"]
    assert main(["profile", *made.models, *grid, *channel, "--out", cost]) == 0
    output_of("replay", "--trace", trace, *policies, "--cost", cost)
    rows = json_of("confirm", "--trace", trace, *policies, "--out", tmp_path / "out", "--json")["rows"]
    assert all(row["num_equal"] == row["num_texts"] for row in rows if row["num_texts"] is not None)


def test_it_is_added_to_a_trace_of_a_drafter(made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drafter, trace = str(tiny_models.make_drafter(tmp_path / "drafter")), str(tmp_path / "trace")
    texts = ["--prompts", made.prompts, "--max-new-tokens", "24", "--batch-size", "2", "--out", trace]
    assert main(["record", "--target", str(made.target), "--draft", drafter, *texts]) == 0
    add = ["record", "--trace", trace, "--add-draft", f"self={made.drafter}"]
    whole, written = DraftAdder.write, list[int]()

    def cut(self: DraftAdder, number: int, *rest: object) -> None:
        if written:
            raise KeyboardInterrupt
        written.append(number)
        whole(self, number, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(DraftAdder, "write", cut)
    assert main(add) == 130
    monkeypatch.undo()
    assert main([*add, "--resume"]) == 0
    assert open_trace(trace).draft_ids["self"] == made.trace.draft_ids["self"]
    output_of("replay", "--trace", trace, "--draft-set", "self", "-p", MODES[1])
    assert "the draft set dflash is a drafter's" in refusal_of(
        "replay", "--trace", trace, "--draft-set", "dflash", "-p", MODES[1]
    )


# An EAGLE-3 head alone: no DFlash drafter runs


def test_the_draft_set_is_the_chain_and_the_channel_the_trees(head: Made) -> None:
    manifest = head.trace.manifest
    assert (list(manifest.draft_sets), list(manifest.channels)) == (["eagle3"], ["eagle3"])
    kept, info = manifest.draft_sets["eagle3"], manifest.channels["eagle3"]
    assert (kept.block_size, kept.depth, kept.mask_token_id, kept.tap_offset) == (BLOCK, BLOCK - 1, None, None)
    assert kept.is_chain
    assert (kept.draft_vocab_size, kept.model.digest) == (40, info.producer.digest)
    assert (info.setting("steps"), info.setting("beam"), info.extends) == (7, 10, None)


def test_a_head_is_priced_by_its_steps_and_pays_no_drafter(head: Made, tmp_path: Path) -> None:
    trace, cost, found_in = str(head.folder / "trace"), tmp_path / "cost.json", tmp_path / "rows.parquet"
    grid = ["--node-counts", "0,8,20", "--contexts", "8,120", "--repeats", "5", "--block", str(BLOCK)]
    channel = ["--channel", f"eagle3={head.drafter}", "--units", "1,4,7"]
    assert main(["profile", *head.models, *grid, *channel, "--out", str(cost)]) == 0
    assert "steps 1, 4, 7" in output_of("inspect", cost)
    policies = ["-p", "chain", "-p", TREE, "-p", "eagle3:budget=5,steps=2", "-p", "ddtree:budget=8"]
    assert main(["replay", "--trace", trace, *policies, "--cost", str(cost), "--out", str(found_in)]) == 0
    found = pl.read_parquet(found_in)
    paid = {name: found.filter(pl.col("policy").str.contains(name)) for name in ("chain", "eagle3")}
    assert (paid["chain"]["draft_s"] > 0).all()
    assert paid["eagle3"]["draft_s"].sum() == 0
    assert (paid["eagle3"]["channel_s"] > 0).all()
    assert {"chain", TREE} <= set(head.confirmed(tmp_path / "out", policies, cost))


@pytest.mark.parametrize(
    ("which", "more", "said"),
    [
        ("made", ["--tap-offset", "0"], "taps no layer; leave --tap-offset out"),
        ("made", ["--block", "5"], "drafts in blocks of 2 to 4, the root counted; got 5"),
        ("made", ["--dry-run"], "give --dry-run sample"),
        ("made", ["--target", "OTHER"], "choose the target that it was trained for"),
        ("head", ["--tap-offset", "0"], "an EAGLE-3 head numbers the target's layers in one way; leave --tap-offset"),
        ("head", ["--tap-offset", "auto"], "an EAGLE-3 head, which drafts token by token"),
        ("head", ["--block", "1025"], "a chain has at least 2 and at most 1,024 tokens, the root counted; got 1025"),
    ],
)
def test_what_it_has_not_is_refused(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    which: str,
    more: list[str],
    said: str,
) -> None:
    if more[-1] == "OTHER":
        more = ["--target", str(tiny_models.make_target(tmp_path / "other", seed=5))]
    assert request.getfixturevalue(which).record(tmp_path / "none", more) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.strip().count("\n") == 0
    assert not (tmp_path / "none" / "manifest.json").exists()
