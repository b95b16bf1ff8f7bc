"""Recording with a block of another size: as if the checkpoint had that block, from the record to the confirmation."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from tiny_models import make_pair, write_prompts

from simlab.cli.main import main
from simlab.traces.reader import Trace, open_trace


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    folder = tmp_path_factory.mktemp("block")
    target, drafter = make_pair(folder, block_size=6)
    return target, drafter, write_prompts(folder / "prompts.jsonl", 3)


def record(pair: tuple[Path, Path, Path], out: Path, *more: str, code: int = 0) -> Path:
    target, drafter, prompts = map(str, pair)
    typed = ["record", "--target", target, "--draft", drafter, "--prompts", prompts, "--max-new-tokens", "12"]
    assert main([*typed, "--min-width", "4", "--exact-budget", "4", "--out", str(out), *more]) == code
    return out


def same_rows(trace: Trace, other: Trace) -> bool:
    pairs = zip(trace.recorded(trace.draft_name()), other.recorded(other.draft_name()), strict=True)
    return all(
        np.array_equal(a.text, b.text)
        and a.rows is not None
        and b.rows is not None
        and np.array_equal(a.rows.ids, b.rows.ids)
        and np.array_equal(a.rows.true_ranks, b.rows.true_ranks)
        for a, b in pairs
    )


def test_it_is_as_if_the_checkpoint_had_that_block(pair: tuple[Path, Path, Path], tmp_path: Path) -> None:
    asked = open_trace(record(pair, tmp_path / "asked", "--block", "3"))
    kept = asked.manifest.draft_sets[asked.draft_name()]
    assert (kept.block_size, kept.depth) == (3, 2)
    target, drafter, prompts = pair
    edited = shutil.copytree(drafter, tmp_path / "edited")
    config = json.loads((edited / "config.json").read_text())
    config["block_size"] = 3
    (edited / "config.json").write_text(json.dumps(config))
    assert same_rows(asked, open_trace(record((target, edited, prompts), tmp_path / "of_edited")))
    whole = open_trace(record(pair, tmp_path / "whole"))
    assert whole.manifest.draft_sets[whole.draft_name()].depth == 5
    assert whole.text_id == asked.text_id


def test_a_draft_set_of_another_block_is_added(pair: tuple[Path, Path, Path], tmp_path: Path) -> None:
    out = record(pair, tmp_path / "trace")
    target, drafter, _ = map(str, pair)
    typed = ["record", "--trace", str(out), "--target", target, "--add-draft", f"small={drafter}", "--block", "3"]
    assert main([*typed, "--min-width", "4", "--exact-budget", "4"]) == 0
    sets = open_trace(out).manifest.draft_sets
    assert sorted(one.depth for one in sets.values()) == [2, 5]
    assert main(["profile", "--target", target, "--draft", drafter, "--block", "3", "--node-counts", "0,2",
                 "--contexts", "128", "--repeats", "2", "--out", str(tmp_path / "cost.json")]) == 0  # fmt: skip
    assert json.loads((tmp_path / "cost.json").read_text())["block_size"] == 3
    assert main(["replay", "--trace", str(out), "--draft-set", "small", "--cost", str(tmp_path / "cost.json"), "-p",
                 "chain:length=1"]) == 0  # fmt: skip
