"""Training with filled slots, and causal heads: ``--variable-prefix`` and ``--causal``."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from commands import refusal_of
from safetensors.torch import load_file
from torch import Tensor
from training_runs import arguments, make_files, texts

from simlab.cli.main import main
from simlab.real_runner.drafters.dflash import DFlashDrafter
from simlab.real_runner.networks.drafter import load_drafter, save_drafter
from simlab.real_runner.targets.model import Target
from simlab.real_runner.train.features import block_loss
from simlab.real_runner.train.plan import TrainingPlan
from simlab.real_runner.train.text import FeatureStore
from simlab.real_runner.train.train import DrafterLoss

PLAN = TrainingPlan(steps=5, num_sequences=3, num_roots=4, head_tokens=0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Models, texts, and a run that read their hidden states."""
    folder = make_files(tmp_path_factory.mktemp("filled"))
    assert main(arguments(folder / "target", folder / "run", *texts(folder), steps=1)) == 0
    return folder


@pytest.fixture(scope="module")
def store(folder: Path) -> FeatureStore:
    return FeatureStore(folder / "run" / "features")


def drafter_of(folder: Path, causal: bool = False) -> DFlashDrafter:
    drafter = load_drafter(folder / "drafter", torch.float32)
    drafter.config = drafter.config.as_causal_head() if causal else drafter.config
    return drafter


def loss_block_by_block(loss: DrafterLoss, step: int) -> Tensor:
    """The loss of a step with one block a pass, and only the slots behind the filled ones looked at."""
    drafter, target, plan, config = loss.drafter, loss.target, loss.plan, loss.drafter.config
    batch = loss.store.batch(step, plan.seed, plan.num_sequences, plan.num_roots, config.block_size)
    chances = np.ones(config.depth) if loss.variable_prefix is None else loss.variable_prefix ** np.arange(config.depth)
    count = batch.roots.numel()
    lengths = np.random.default_rng([plan.seed, step, 3]).choice(config.depth, count, p=chances / chances.sum())
    best, of_truth = (torch.full((count, config.depth), -7.0) for _ in range(2))
    known = torch.zeros(count, config.depth, dtype=torch.bool)
    for block in range(count):
        sequence, index = divmod(block, plan.num_roots)
        root, length = int(batch.roots[sequence, index]), int(lengths[block])
        behind = batch.tokens[sequence, root + 1 : root + config.block_size].tolist()
        known_behind = [token for token in behind if token >= 0]
        filled = [int(batch.tokens[sequence, root]), *known_behind[:length]]
        ids = filled + [config.mask_token_id] * (config.block_size - len(filled))
        context = drafter.context(batch.features[sequence : sequence + 1, :root].float())
        states = drafter(target.embedding(torch.tensor([[ids]])), torch.tensor([[root]]), context)
        log_probs = (states[0, 0, 1:] @ target.head.weight.T).log_softmax(-1)
        for depth in range(length, len(known_behind)):
            best[block, depth - length] = log_probs[depth].max().detach()
            of_truth[block, depth - length] = log_probs[depth, known_behind[depth]]
            known[block, depth - length] = True
    return block_loss(-of_truth, of_truth.detach() >= best, known, plan.loss)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("prefix", [0.5, 0.8, 1.0])
def test_a_step_is_the_blocks_one_by_one(
    folder: Path, target: Target, store: FeatureStore, prefix: float, causal: bool
) -> None:
    loss = DrafterLoss(drafter_of(folder, causal), target, store, PLAN, prefix)
    for step in range(3):
        assert torch.allclose(loss(step), loss_block_by_block(loss, step), atol=1e-5)


def test_without_a_prefix_only_the_root_is_filled(folder: Path, target: Target, store: FeatureStore) -> None:
    plain = DrafterLoss(drafter_of(folder), target, store, PLAN)
    rarely = DrafterLoss(drafter_of(folder), target, store, PLAN, 1e-12)
    often = DrafterLoss(drafter_of(folder), target, store, PLAN, 1.0)
    assert torch.equal(plain(1), rarely(1))
    assert not torch.allclose(plain(1), often(1), atol=1e-4)


def test_a_slot_of_a_causal_head_sees_none_behind_it(folder: Path, target: Target) -> None:
    drafter = drafter_of(folder, causal=True)
    ids = torch.tensor([[[5, 6, 7, 8], [5, 6, 30, 31]]])
    context = drafter.context(torch.randn(1, 9, 96))
    states = drafter(target.embedding(ids), torch.tensor([[9, 9]]), context)[0]
    assert torch.equal(states[0, :2], states[1, :2])
    assert not torch.allclose(states[0, 2:], states[1, 2:], atol=1e-3)


def test_a_causal_head_is_read_as_it_was_written(folder: Path, tmp_path: Path) -> None:
    drafter = drafter_of(folder, causal=True)
    save_drafter(drafter, tmp_path / "causal")
    fields = json.loads((tmp_path / "causal" / "config.json").read_text())
    assert fields["dflash_config"]["causal_head"] is True
    assert set(fields["layer_types"]) == {"full_attention"}
    again = load_drafter(tmp_path / "causal", torch.float32)
    assert again.config == drafter.config
    fields["dflash_config"] = {"causal_head": True} | {
        name: value for name, value in fields["dflash_config"].items() if name != "causal"
    }
    (tmp_path / "causal" / "config.json").write_text(json.dumps(fields))
    assert load_drafter(tmp_path / "causal", torch.float32).config.is_causal_head


def test_a_causal_run_with_filled_slots_goes_on_from_a_drafter(folder: Path, tmp_path: Path) -> None:
    more = ("--init", str(folder / "drafter"), "--causal", "--variable-prefix", "0.8")
    options = arguments(folder / "target", tmp_path / "run", *texts(folder), *more, steps=6)
    for name in ("--layers", "--taps"):
        index = options.index(name)
        del options[index : index + 2]
    assert main(options) == 0
    card = (tmp_path / "run" / "README.md").read_text()
    assert "A causal draft head" in card
    assert "| variable prefix | 0.8 |" in card
    drafter = load_drafter(tmp_path / "run", torch.float32)
    assert drafter.config.is_causal_head
    before = load_file(folder / "drafter" / "model.safetensors")
    assert any(
        not torch.equal(tensor.float(), drafter.state_dict()[name].float())
        for name, tensor in before.items()
        if name in drafter.state_dict()
    )
    assert replace(drafter.config, layer_views=()) == load_drafter(folder / "drafter", torch.float32).config


@pytest.mark.parametrize("typed", ["0", "-1"])
def test_a_prefix_that_is_no_weight_is_refused(folder: Path, tmp_path: Path, typed: str) -> None:
    assert "variable prefix must be above 0" in refusal_of(
        *arguments(folder / "target", tmp_path / "o", *texts(folder), "--variable-prefix", typed)
    )
    assert not (tmp_path / "o").exists()
