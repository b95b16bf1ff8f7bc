"""``simlab train`` of networks on tiny models: they learn, keep their best step, resume to the same bytes, refuse."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import polars as pl
import pytest
import torch
from commands import failure_of, refusal_of
from depth import some
from safetensors.torch import load_file
from tiny_models import make_drafter
from training_runs import (
    LAW,
    InterruptedWrites,
    arguments,
    content,
    curve_of,
    eagle3_arguments,
    head_arguments,
    scorer_arguments,
    self_arguments,
    texts,
)

from simlab.cli.main import main
from simlab.real_runner.checkpoints.contents import checkpoint_digest
from simlab.real_runner.networks.parts import checked_parts
from simlab.real_runner.networks.taps.config import PoolReach
from simlab.real_runner.train import features
from simlab.real_runner.train.networks import taps
from simlab.real_runner.train.networks.treeflash import HeadLoss
from simlab.real_runner.train.trainer import HeldOut


class Kind(NamedTuple):
    """How a network is trained, the share to which its held-out loss falls, what its configuration then says."""

    arguments: Callable[..., list[str]]
    typed: tuple[str, ...]
    share: float
    configured: dict[str, object]


KINDS = {
    "treeflash": Kind(head_arguments, ("0.02", "--patience", "0"), 0.8, {"hidden_size": 32, "inner_size": 24}),
    "taps": Kind(scorer_arguments, ("0.02", "--patience", "0"), 0.9, {"reach": PoolReach(4, 6)}),
    "eagle3": Kind(
        eagle3_arguments, ("0.01", "--patience", "0"), 0.8, {"target_layer_ids": (0, 2), "draft_vocab_size": 40}
    ),
    "self": Kind(self_arguments, ("0.01",), 0.8, {"num_masks": 3, "rank": 4}),
}
ON_DRAFTERS = ("treeflash", "taps")


def typed_for(kind: str, folder: Path, out: Path) -> list[str]:
    """A run that learns."""
    return KINDS[kind].arguments(folder, out, "--learning-rate", *KINDS[kind].typed, steps=60)


@pytest.mark.parametrize("kind", KINDS)
def test_the_held_out_loss_falls_and_the_card_says_so(kind: str, folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    assert main(typed_for(kind, folder, out)) == 0
    rows = curve_of(out)
    losses = [row["held_out"]["loss"] for row in rows]
    assert min(losses) < KINDS[kind].share * losses[0]
    assert [row["step"] for row in rows] == list(range(0, 61, 3))
    assert {len(row["held_out"]["agreement"]) for row in rows} == {3}
    config, card = checked_parts(out).head, (out / "README.md").read_text()
    assert {name: getattr(config, name) for name in KINDS[kind].configured} == KINDS[kind].configured
    assert f"`simlab train {kind}`" in card
    assert f"the weights of step {3 * losses.index(min(losses))}" in card
    assert "9 texts of" in card
    assert "3 further texts were held out" in card
    digest = checkpoint_digest(folder / "drafter")
    assert (digest in card) == ("rafter alone" in card) == (kind in ON_DRAFTERS)
    assert f"The {'drafter' if kind in ON_DRAFTERS else 'target'} itself was not changed" in card
    if kind in ON_DRAFTERS:
        assert getattr(config, "extends", None) == digest == checkpoint_digest(make_drafter(tmp_path / "again"))
    before = content(out)
    assert "add --resume" in refusal_of(*typed_for(kind, folder, out))
    assert main([*typed_for(kind, folder, out), "--resume"]) == 0
    assert "other settings" in failure_of(*typed_for(kind, folder, out), "--resume", "--weight-decay", "0.3")
    assert content(out) == before


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


def blocks(folder: Path) -> list[str]:
    return arguments(folder / "target", folder, *texts(folder), steps=6)


def a_head(folder: Path) -> list[str]:
    return head_arguments(folder, folder, "--learning-rate", "0.05", steps=9)


def laws(folder: Path) -> list[str]:
    return scorer_arguments(folder, folder, *LAW, steps=6)


@pytest.mark.parametrize(("kind", "every"), [(blocks, 1), (a_head, 1), (laws, 5)])
def test_interrupted_at_any_write_it_resumes_to_the_same_bytes(
    kind: Callable[[Path], list[str]],
    every: int,
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(features, "SEQUENCES_PER_SHARD", 3 if kind is blocks else 6)
    monkeypatch.setattr(taps, "TEXTS_PER_FILE", 2)
    whole, out = (tmp_path / name / "run" for name in ("unbroken", "broken"))
    writes = InterruptedWrites(monkeypatch)
    assert main([*kind(folder), "--out", str(whole)]) == 0
    writes_of_a_run = writes.num
    assert writes_of_a_run > 12
    assert kind is not laws or len(list((whole / "laws").glob("laws-*"))) > 2
    for stop_at in some(range(1 + every // 5, writes_of_a_run + 1, every), quick=5):
        writes.cut(stop_at)
        shutil.rmtree(out, ignore_errors=True)
        assert main([*kind(folder), "--out", str(out)]) == 130
        assert "--resume" in capsys.readouterr().err
        assert main([*kind(folder), "--out", str(out), "--resume"]) == 0
        assert content(out) == content(whole)


def test_prompts_are_answered_first(folder: Path, tmp_path: Path) -> None:
    typed = head_arguments(folder, tmp_path / "run", "--max-new-tokens", "12", steps=1)
    index = typed.index("--text")
    typed[index : index + 2] = ["--prompts", str(folder / "prompts.jsonl")]
    assert main(typed) == 0
    assert (tmp_path / "run" / "model.safetensors").is_file()


@pytest.mark.parametrize(
    ("kind", "num_texts", "more", "said"),
    [
        ("treeflash", 1, (), "one must be held out"),
        ("treeflash", 2, ("--held-out", "0.9"), "none of 2 texts is left"),
        ("treeflash", 4, ("--dropout", "1"), "dropout must be from 0"),
        ("treeflash", 4, ("--held-out", "0"), "held-out share must be between"),
        ("treeflash", 4, ("--draft", "./nowhere"), "could not be found"),
        ("treeflash", 4, ("--text", "nowhere.parquet"), "no file nowhere.parquet"),
        ("taps", 4, ("--reach-weight", "-1"), "reach_weight must be at least 0"),
        ("eagle3", 4, ("--taps", "0,3"), "layers before the last"),
        ("eagle3", 4, ("--taps", "0,99"), "99"),
        ("eagle3", 4, ("--draft-vocab", "1"), "leave no room"),
        ("self", 4, ("--masks", "65"), "num_masks must be at least 1 and at most 64"),
        ("self", 4, ("--consistency", "-1"), "consistency must be at least 0"),
        ("self", 4, ("--target", "./nowhere"), "nowhere"),
    ],
)
def test_what_a_person_gets_wrong_is_one_sentence(
    folder: Path, tmp_path: Path, kind: str, num_texts: int, more: tuple[str, ...], said: str
) -> None:
    pl.read_parquet(folder / "texts.parquet").head(num_texts).write_parquet(tmp_path / "few.parquet")
    typed = KINDS[kind].arguments(folder, tmp_path / "run", "--text", str(tmp_path / "few.parquet"), *more)
    assert said in failure_of(*typed)


def test_other_pools_are_other_settings(folder: Path, tmp_path: Path) -> None:
    assert main(scorer_arguments(folder, tmp_path / "run", steps=1)) == 0
    typed = scorer_arguments(folder, tmp_path / "run", "--resume", steps=1)
    for change in (("--beam", "5"), ("--extensions", "5"), ("--reach-weight", "1")):
        assert "other settings" in failure_of(*typed, *change)
