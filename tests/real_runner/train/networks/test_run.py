"""``simlab train treeflash`` on tiny models: it learns, keeps its best step, resumes to the same bytes, refuses."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import torch
from commands import failure_of
from safetensors.torch import load_file
from tiny_models import make_drafter
from training_runs import InterruptedWrites, content, head_arguments, make_files

from simlab.cli.main import main
from simlab.real_runner.checkpoints.contents import checkpoint_digest
from simlab.real_runner.networks.drafter import load_drafter
from simlab.real_runner.networks.treeflash.head import load_head
from simlab.real_runner.train import features
from simlab.real_runner.train.networks.treeflash import HeadLoss
from simlab.real_runner.train.trainer import CurvePoint, HeldOut


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_files(tmp_path_factory.mktemp("train"))


@pytest.fixture(scope="module")
def trained(folder: Path) -> Path:
    """A finished run that learns, not to be changed."""
    out = folder / "trained"
    assert main(head_arguments(folder, out, "--learning-rate", "0.02", "--patience", "0", steps=60)) == 0
    return out


def curve_of(run: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads((run / "curve.json").read_text())
    return rows


def held_out(losses: list[float]) -> list[CurvePoint]:
    return [CurvePoint(3 * i, None, {}, HeldOut(loss, (loss,), (0.5,))) for i, loss in enumerate(losses)]


def test_the_held_out_loss_falls_and_the_card_says_so(trained: Path, folder: Path) -> None:
    losses = [row["held_out"]["loss"] for row in curve_of(trained)]
    assert min(losses) < 0.8 * losses[0]
    assert [row["step"] for row in curve_of(trained)] == list(range(0, 61, 3))
    drafter = load_drafter(folder / "drafter", torch.float32)
    head = load_head(trained, drafter, checkpoint_digest(folder / "drafter"), torch.float32)
    assert (head.hidden_size, head.inner_size) == (32, 24)
    card = (trained / "README.md").read_text()
    assert f"the weights of step {3 * losses.index(min(losses))}" in card
    assert "9 texts of" in card
    assert "3 further texts were held out" in card
    assert checkpoint_digest(folder / "drafter") in card


def test_the_drafter_is_not_changed(trained: Path, folder: Path, tmp_path: Path) -> None:
    again = make_drafter(tmp_path / "again")
    assert checkpoint_digest(again) == checkpoint_digest(folder / "drafter")
    assert set(load_file(trained / "model.safetensors")) == {
        f"ar_approximation.{name}" for name in ("ug.weight", "ug.bias", "d.weight", "norm.weight")
    }


def test_the_best_step_is_kept_and_no_more_is_learnt(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By planted losses: 5, 4, 3, then never better; the third evaluation behind the best ends the run."""
    said = iter([5.0, 4.0, 3.0, 3.5, 3.0, 3.1, 0.1])
    monkeypatch.setattr(HeadLoss, "held_out", lambda *_: HeldOut(next(said), (1.0,) * 3, (0.0,) * 3))
    assert main(head_arguments(folder, tmp_path / "run", "--patience", "3", steps=30)) == 0
    assert [row["step"] for row in curve_of(tmp_path / "run")] == [0, 3, 6, 9, 12, 15]
    kept = load_file(tmp_path / "run" / "model.safetensors")
    last = load_file(tmp_path / "run" / "state.safetensors")
    assert not any(torch.equal(kept[name], there) for name, there in shipped(last).items())
    # The same run, interrupted behind its best step.
    evaluations = iter([5.0, 4.0, 3.0])
    monkeypatch.setattr(HeadLoss, "held_out", lambda *_: HeldOut(_next_or_end(evaluations), (1.0,) * 3, (0.0,) * 3))
    assert main(head_arguments(folder, tmp_path / "cut", "--patience", "3", steps=30)) == 130
    best = shipped(load_file(tmp_path / "cut" / "state.safetensors"))
    assert all(torch.equal(kept[name], there) for name, there in best.items())


def shipped(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The weights of a state that learn, as a checkpoint has them."""
    return {
        f"ar_approximation.{name}": state[f"weight.{name}"].to(torch.bfloat16) for name in ("ug.weight", "d.weight")
    }


def _next_or_end(losses: Iterator[float]) -> float:
    for loss in losses:
        return loss
    raise KeyboardInterrupt


def test_interrupted_at_any_write_it_resumes_to_the_same_bytes(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(features, "SEQUENCES_PER_SHARD", 6)
    typed = ("--learning-rate", "0.05")
    writes = InterruptedWrites(monkeypatch)
    assert main(head_arguments(folder, tmp_path / "unbroken" / "run", *typed, steps=9)) == 0
    out, writes_of_a_run = tmp_path / "broken" / "run", writes.num
    assert writes_of_a_run > 12
    for stop_at in range(1, writes_of_a_run + 1):
        writes.cut(stop_at)
        shutil.rmtree(out, ignore_errors=True)
        assert main(head_arguments(folder, out, *typed, steps=9)) == 130
        assert "--resume" in capsys.readouterr().err
        assert main(head_arguments(folder, out, *typed, "--resume", steps=9)) == 0
        assert content(out) == content(tmp_path / "unbroken" / "run")


def test_prompts_are_answered_first(folder: Path, tmp_path: Path) -> None:
    typed = head_arguments(folder, tmp_path / "run", "--max-new-tokens", "12", steps=1)
    place = typed.index("--text")
    typed[place : place + 2] = ["--prompts", str(folder / "prompts.jsonl")]
    assert main(typed) == 0
    assert (tmp_path / "run" / "model.safetensors").is_file()


@pytest.mark.parametrize(
    ("num_texts", "more", "said"),
    [
        (1, (), "one must be held out"),
        (2, ("--held-out", "0.9"), "none of 2 texts is left"),
        (4, ("--dropout", "1"), "dropout must be from 0"),
        (4, ("--held-out", "0"), "held-out share must be between"),
        (4, ("--draft", "./nowhere"), "could not be found"),
        (4, ("--text", "nowhere.parquet"), "no file nowhere.parquet"),
    ],
)
def test_what_a_person_gets_wrong_is_one_sentence(
    folder: Path, tmp_path: Path, num_texts: int, more: tuple[str, ...], said: str
) -> None:
    pl.read_parquet(folder / "texts.parquet").head(num_texts).write_parquet(tmp_path / "few.parquet")
    typed = head_arguments(folder, tmp_path / "run", "--text", str(tmp_path / "few.parquet"), *more)
    assert said in failure_of(*typed)
