"""A trace of a target's own masks: recorded, resumed, inspected, priced, replayed, confirmed; and what is refused."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import polars as pl
import pytest
import tiny_models
from commands import json_of, output_of, refusal_of
from random_adapter import make_adapter
from training_runs import write_table

from simlab.cli.main import main
from simlab.real_runner.checkpoints.contents import checkpoint_digest
from simlab.traces.adder import DraftAdder
from simlab.traces.inspect import check_trace
from simlab.traces.reader import Trace, open_trace

NUM_MASKS = 3
MODES = ("self:budget=6,masked=-1", "self:budget=6,masked=0", "self:budget=6,masked=2", "self:budget=6,masked=6")
POLICIES = (*MODES, "chain", "ddtree:budget=6", "tree:budget=6,ngram_weight=0.2,counts=text,masked=1")


class Made:
    """A target, an adapter and prompts in a folder, and what was recorded of them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.target = tiny_models.make_target(folder / "target")
        self.adapter = str(make_adapter(folder / "adapter", self.target, num_masks=NUM_MASKS))
        self.prompts = str(tiny_models.write_prompts(folder / "prompts.jsonl", 4))

    @property
    def models(self) -> list[str]:
        return ["--target", str(self.target), "--draft", self.adapter]

    def record(self, out: Path, more: Sequence[str] = ()) -> int:
        texts = ["--prompts", self.prompts, "--max-new-tokens", "24", "--batch-size", "2", "--out", str(out)]
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


def test_the_draft_set_has_not_seen_its_roots(made: Made) -> None:
    manifest = made.trace.manifest
    assert (list(manifest.draft_sets), list(manifest.channels)) == (["self"], [])
    kept = manifest.draft_sets["self"]
    assert (kept.block_size, kept.depth, kept.mask_token_id, kept.tap_offset) == (NUM_MASKS + 1, NUM_MASKS, None, None)
    assert (kept.root_seen, kept.is_chain) == (False, False)
    assert kept.model.digest == checkpoint_digest(Path(made.adapter))
    assert json.loads((made.folder / "trace" / "manifest.json").read_text())["draft_sets"]["self"]["root_seen"] is False
    assert "the target's own masks, the root unseen" in output_of("inspect", made.folder / "trace")


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
    arguments = ["confirm", "--trace", trace, *policies, "--cost", str(cost), "--out", str(tmp_path / "out"), "--json"]
    confirmed = {row["policy"]: row for row in json_of(*arguments)["rows"]}
    assert set(POLICIES) <= set(confirmed)
    assert all(row["num_equal"] == row["num_texts"] for row in confirmed.values() if row["num_texts"] is not None)


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
    add = ["record", "--trace", trace, "--add-draft", f"self={made.adapter}"]
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


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--tap-offset", "0"], "taps no layer; leave --tap-offset out"),
        (["--block", "5"], "drafts in blocks of 2 to 4, the root counted; got 5"),
        (["--dry-run"], "give --dry-run sample"),
        (["--target", "OTHER"], "choose the target that it was trained for"),
    ],
)
def test_what_an_adapter_has_not_is_refused(
    made: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str], more: list[str], said: str
) -> None:
    if more[-1] == "OTHER":
        more = ["--target", str(tiny_models.make_target(tmp_path / "other", seed=5))]
    assert made.record(tmp_path / "none", more) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.strip().count("\n") == 0
    assert not (tmp_path / "none" / "manifest.json").exists()
