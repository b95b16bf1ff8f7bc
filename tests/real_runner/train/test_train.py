"""``simlab train dflash`` on tiny models: it learns, it resumes to the same bytes, it refuses what cannot be."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import pytest
import torch
from commands import failure_of, refusal_of
from depth import some
from places import TESTS
from safetensors.torch import load_file
from tiny_models import (
    MASK_TOKEN_ID,
    SPECIAL,
    STOP_TOKEN_IDS,
    VOCAB_SIZE,
    drafter_config,
    make_drafter,
    tiny_tokenizer,
)
from training_runs import NUM_KILLS, arguments, content, curve_of, dev, finished, texts
from transformers import AddedToken, PreTrainedTokenizerFast

from simlab.cli.main import main
from simlab.errors import ModelError
from simlab.real_runner.drafters.dflash import DFlashDrafter
from simlab.real_runner.networks.drafter import load_drafter
from simlab.real_runner.targets.loading import load_target
from simlab.real_runner.targets.model import Target
from simlab.real_runner.train import train
from simlab.real_runner.train.model_card import model_card
from simlab.real_runner.train.options import TrainOptions
from simlab.real_runner.train.plan import TextOptions, TrainingPlan
from simlab.real_runner.train.setup import mask_token_id, spread_taps
from simlab.real_runner.train.state import config_for, from_target
from simlab.real_runner.train.text import FeatureStore
from simlab.real_runner.train.trainer import CurvePoint, DevScore, training_dtype


@pytest.fixture(scope="module")
def trained(folder: Path) -> Path:
    """A finished run, not to be changed."""
    return finished(folder)


def test_the_loss_falls(folder: Path, tmp_path: Path) -> None:
    typed = arguments(folder / "target", tmp_path, *texts(folder), steps=60)
    assert main([*typed, "--learning-rate", "0.01", "--eval-every", "15", "--chain-reward", "0"]) == 0
    losses = [row["loss"] for row in curve_of(tmp_path)[1:]]
    assert all(isinstance(loss, float) for loss in losses)
    assert losses[-1] < 0.7 * losses[0]


def test_a_finished_run_holds_a_drafter_its_card_and_its_curve(trained: Path, folder: Path) -> None:
    drafter = load_drafter(trained, torch.bfloat16)
    assert (drafter.config.block_size, drafter.config.target_layer_ids) == (4, (0, 1, 2))
    assert drafter.config.mask_token_id == MASK_TOKEN_ID
    assert [row["step"] for row in curve_of(trained)] == [0, 3, 6, 9, 12]
    for row in curve_of(trained):
        score = row["dev"]["dev"]
        assert 1 <= score["acceptance_length"] <= 4
        assert len(score["agreement"]) == 3
    card = (trained / "README.md").read_text()
    assert "texts.parquet" in card
    assert "12 texts" in card
    assert "dev: chain" in card
    assert not list(trained.rglob("*.partial"))


@pytest.mark.parametrize("family", ["target", "qwen"])
@pytest.mark.parametrize("source", [("--prompts", "prompts.jsonl"), ("--text", "texts.jsonl")])
def test_own_answers_and_completions_are_learnt_from(
    folder: Path, tmp_path: Path, family: str, source: tuple[str, str]
) -> None:
    typed = arguments(folder / family, tmp_path, source[0], str(folder / source[1]), steps=2)
    assert main(typed) == 0
    load_drafter(tmp_path, torch.float32)


@pytest.mark.parametrize("init", ["target", "random", "earlier"])
def test_a_run_starts_where_it_is_told_to(
    folder: Path, trained: Path, target: Target, tmp_path: Path, init: str
) -> None:
    """With a learning rate of almost nothing, the end is the start."""
    typed = arguments(folder / "target", tmp_path, *texts(folder), steps=1)
    start = str(trained) if init == "earlier" else init
    assert main([*typed, "--learning-rate", "1e-30", "--warmup-steps", "0", "--init", start]) == 0
    weights = load_file(tmp_path / "state.safetensors")
    query = weights["weight.layers.0.self_attn.q_proj.weight"]
    of_target = target.layers[3].get_submodule("self_attn.q_proj").weight
    assert isinstance(of_target, torch.Tensor)
    if init == "earlier":
        assert torch.equal(query, load_file(trained / "state.safetensors")["weight.layers.0.self_attn.q_proj.weight"])
    else:
        assert torch.equal(query, of_target.to(training_dtype("cpu")).float()) == (init == "target")


def test_a_run_goes_on_with_float32_weights_and_moments_where_there_are_any(
    folder: Path, trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shipped = tmp_path / "shipped"
    shipped.mkdir()
    for name in ("config.json", "model.safetensors"):
        shutil.copy(trained / name, shipped)
    ends = {}
    for start in (trained, shipped):
        out = tmp_path / f"from-{start.name}"
        typed = arguments(folder / "target", out, *texts(folder), "--init", str(start), steps=1)
        assert main([*typed, "--learning-rate", "1e-30", "--warmup-steps", "0"]) == 0
        said = capsys.readouterr().err
        assert ("moments of its state.safetensors" if start == trained else "the optimiser starts anew") in said
        ends[start.name] = load_file(out / "state.safetensors")
    name = "layers.0.self_attn.q_proj.weight"
    rounded = load_file(shipped / "model.safetensors")
    assert torch.equal(ends["shipped"][f"weight.{name}"], rounded[name].float())
    assert [int(end[f"step.{name}"]) for end in ends.values()] == [13, 1]
    moments = [end[f"exp_avg.{name}"] for end in (load_file(trained / "state.safetensors"), *ends.values())]
    gained = moments[1] - 0.9 * moments[0]
    assert torch.allclose(gained, moments[2], atol=0.2 * float(moments[2].abs().max()))


def test_a_state_of_another_drafter_is_not_gone_on_from(folder: Path, trained: Path, tmp_path: Path) -> None:
    other = make_drafter(tmp_path / "other")
    shutil.copy(trained / "state.safetensors", other)
    typed = arguments(folder / "target", tmp_path / "out", *texts(folder), "--init", str(other), "--layers", "2")
    assert "not of the drafter beside it" in failure_of(*typed)


def test_without_bfloat16_hardware_all_is_float32(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(train, "training_dtype", lambda _: torch.float32)
    typed = arguments(folder / "target", tmp_path, *texts(folder), *dev(folder), steps=2)
    assert main(typed) == 0
    assert json.loads((tmp_path / "features" / "source.json").read_text())["dtype"] == "torch.float32"
    monkeypatch.setattr(train, "training_dtype", lambda _: torch.bfloat16)
    assert "another dtype" in refusal_of(*typed, "--resume")


@dataclass(frozen=True)
class _Fixed:
    """As much of a target as the choice of a mask token reads."""

    tokenizer: PreTrainedTokenizerFast
    vocab_size: int = VOCAB_SIZE
    name: str = "tiny"
    stop_token_ids: tuple[int, ...] = STOP_TOKEN_IDS


def test_the_mask_token_is_one_that_no_text_contains() -> None:
    tokenizer = tiny_tokenizer()
    assert mask_token_id(None, cast(Target, _Fixed(tokenizer))) == MASK_TOKEN_ID
    assert mask_token_id(None, cast(Target, _Fixed(tokenizer, VOCAB_SIZE + 8))) == VOCAB_SIZE
    # Neither a token that text may contain nor one of the chat template.
    tokenizer.add_tokens([AddedToken("<think>", special=False)])
    assert mask_token_id(None, cast(Target, _Fixed(tokenizer, VOCAB_SIZE + 1))) == MASK_TOKEN_ID
    tokenizer.chat_template = "".join(SPECIAL)
    with pytest.raises(ModelError, match="name one with --mask-token"):
        mask_token_id(None, cast(Target, _Fixed(tokenizer, VOCAB_SIZE + 1)))


@pytest.mark.parametrize("family", ["target", "qwen"])
def test_the_start_from_the_target_takes_its_weights(folder: Path, family: str) -> None:
    model = load_target(str(folder / family), torch.float32)
    config = config_for(model, 8, 2, (0, 2), MASK_TOKEN_ID)
    drafter = from_target(config, model, torch.arange(40).view(2, 20))
    own, base = drafter.state_dict(), model.model.state_dict()
    for i in range(2):
        for name, tensor in own.items():
            there = f"model.layers.{i + 2}.{name.removeprefix(f'layers.{i}.')}"
            if name.startswith(f"layers.{i}.") and there in base:
                assert torch.equal(tensor, base[there])
    assert torch.equal(own["norm.weight"], base["model.norm.weight"])
    assert torch.equal(own["hidden_norm.weight"], base["model.layers.3.input_layernorm.weight"])
    assert torch.equal(own["fc.weight"], torch.cat([torch.zeros(32, 32), torch.eye(32)], dim=1))
    if family == "qwen":
        assert torch.equal(own["layers.1.self_attn.q_norm.weight"], base["model.layers.3.self_attn.q_norm.weight"])
    else:
        size = own["layers.1.self_attn.q_norm.weight"]
        assert size[0] > 0
        assert torch.all(size == size[0])


@pytest.mark.thorough
def test_killed_at_ten_moments_and_resumed_it_is_the_same_run(folder: Path, tmp_path: Path) -> None:
    sources = ["--prompts", str(folder / "prompts.jsonl"), "--dev", str(folder / "dev.jsonl")]
    typed = arguments(folder / "target", tmp_path / "replaced", *sources, "--temperature", "0.8", steps=30)
    done = subprocess.run(
        [sys.executable, str(TESTS / "helpers" / "training_runs.py"), str(tmp_path), "7", *typed],
        env={**os.environ, "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    kills = json.loads(done.stdout)
    assert len(kills) == NUM_KILLS
    assert "README.md" not in kills[0]
    unbroken, killed = content(tmp_path / "unbroken" / "run"), content(tmp_path / "killed" / "run")
    assert {"model.safetensors", "config.json", "curve.json", "state.safetensors", "README.md"} <= set(unbroken)
    assert list(unbroken) == list(killed)
    assert [name for name in unbroken if unbroken[name] != killed[name]] == []


def test_a_finished_run_is_left_alone_without_resume_and_unchanged_with_it(trained: Path, folder: Path) -> None:
    before = content(trained)
    typed = arguments(folder / "target", trained, *texts(folder), *dev(folder))
    assert "add --resume" in refusal_of(*typed)
    assert main([*typed, "--resume"]) == 0
    assert content(trained) == before


@pytest.mark.parametrize("num_layers", some(range(1, 70), quick=8))
def test_spread_taps_are_layers_of_the_target(num_layers: int) -> None:
    taps = spread_taps(num_layers)
    assert 1 <= len(taps) <= 5
    assert all(0 <= tap < max(num_layers - 1, 1) for tap in taps)
    assert num_layers != 30 or taps == (1, 8, 14, 20, 27)


def test_a_batch_is_a_function_of_seed_and_step(trained: Path) -> None:
    store = FeatureStore(trained / "features")
    first, again, other = (store.batch(step, 3, 4, 6, 4) for step in (5, 5, 6))
    assert torch.equal(first.roots, again.roots)
    assert torch.equal(first.features, again.features)
    assert not torch.equal(first.roots, other.roots)
    for row in range(4):
        length = int((first.tokens[row] >= 0).sum())
        assert int(first.roots[row].max()) <= length - 2
        assert torch.all(first.features[row, length:] == 0)


# The model card says what it is told, no more, and the same each time


CONFIG = drafter_config()
TINY = TrainOptions(out=Path("tiny"), texts=TextOptions(text=Path("text.parquet")), plan=TrainingPlan(steps=500))
CURVE = (
    CurvePoint(0, None, {"gsm8k": DevScore(1.1, (0.2, 0.1, 0.05))}),
    CurvePoint(500, 2.34567, {"gsm8k": DevScore(1.8765, (0.55, 0.31, 0.2))}),
)


def test_the_card_says_what_was_done() -> None:
    card = model_card(TINY, DFlashDrafter(CONFIG), 1000, 50_000, CURVE)
    for said in (
        "# tiny",
        "next 3 tokens",
        "1,000 texts of 50,000 tokens",
        "2,000 texts with 32 random roots each, 2.00 passes over the text, 64,000 blocks, 192,000 predicted tokens",
        "| start | the target's last layers |",
        "| loss focal | 0.3 |",
        "| step | loss | gsm8k: chain | gsm8k: first right |",
        "| 0 |  | 1.100 | 20.0 % |",
        "| 500 | 2.346 | 1.877 | 55.0 % |",
        "| gsm8k | 55.0 % | 31.0 % | 20.0 % |",
        "| own parameters | 17,120 |",
    ):
        assert said in card


def test_what_is_not_known_is_left_out() -> None:
    card = model_card(TINY, DFlashDrafter(CONFIG), 1000, 50_000, CURVE)
    assert "\n\n\n" not in card
    assert "None" not in card
    assert "## Curve" not in model_card(TINY, DFlashDrafter(CONFIG), 1000, 50_000, ())
