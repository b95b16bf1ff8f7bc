"""What a head learns: cross-entropy of the true token at each depth, the true token above it known."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny_models import VOCAB_SIZE
from treeflash_oracle import corrected, rms

from simlab.real_runner.drafters.dense import draft_states
from simlab.real_runner.drafters.dflash import DFlashDrafter
from simlab.real_runner.networks.drafter import load_drafter
from simlab.real_runner.networks.treeflash.head import TreeFlashHead
from simlab.real_runner.targets.model import Target
from simlab.real_runner.train.features import read_features
from simlab.real_runner.train.networks.treeflash import HeadLoss
from simlab.real_runner.train.plan import LossWeights, TrainingPlan
from simlab.real_runner.train.text import FeatureStore, given_texts

PLAN = TrainingPlan(
    steps=5, num_sequences=3, num_roots=4, head_tokens=0, loss=LossWeights(decay=4.0, focal=0.0, chain=0.0)
)


@pytest.fixture(scope="module")
def store(folder: Path, target: Target) -> FeatureStore:
    drafter = load_drafter(folder / "drafter", torch.float32)
    texts = given_texts(folder / "texts.parquet", target, {})
    read_features(texts, target, drafter.config.target_layer_ids, folder / "states", 640)
    return FeatureStore(folder / "states")


def loss_of(folder: Path, target: Target, store: FeatureStore, plan: TrainingPlan, dropout: float = 0.0) -> HeadLoss:
    torch.manual_seed(0)
    head = TreeFlashHead(32, 20, dropout)
    torch.nn.init.normal_(head.d.weight, std=0.5)
    return HeadLoss(head, load_drafter(folder / "drafter", torch.float32), target, store, plan, "digest")


@pytest.mark.parametrize("head_tokens", [0, 25])
def test_the_loss_is_that_of_the_plain_head(
    folder: Path, target: Target, store: FeatureStore, head_tokens: int
) -> None:
    plan = replace(PLAN, head_tokens=head_tokens)
    loss = loss_of(folder, target, store, plan)
    assert isinstance(loss.drafter, DFlashDrafter)
    drafter, batch = loss.drafter, store.batch(2, plan.seed, plan.num_sequences, plan.num_roots, 4)
    weights = {name: tensor.detach().double().numpy() for name, tensor in loss.network.state_dict().items()}
    assert isinstance(target.head.weight, torch.Tensor)
    matrix, embedding = target.head.weight.double().numpy(), target.embedding.weight.double().numpy()
    counts = store.token_counts(VOCAB_SIZE).numpy()
    scored = sorted(sorted(range(VOCAB_SIZE), key=lambda token: -counts[token])[: head_tokens or VOCAB_SIZE])
    per_depth = np.exp(-np.arange(3) / 4)
    total = num = 0.0
    for features, tokens, roots in zip(batch.features, batch.tokens, batch.roots, strict=True):
        ((_, states),) = draft_states(drafter, target, features.float(), tokens.clamp(min=0), roots, 9)
        for t, root in enumerate(roots.tolist()):
            for depth in range(3):
                above, truth = int(tokens[root + depth]), int(tokens[root + depth + 1])
                if truth not in scored:
                    continue
                before, after = (one[t, depth].double().numpy() for one in (states.before, states.after))
                state = corrected(weights, before, after, embedding[above])
                logits = matrix[scored] @ rms(state, drafter.norm.weight.double().numpy(), drafter.norm.eps)
                log_prob = logits[scored.index(truth)] - np.log(np.exp(logits).sum())
                total -= log_prob * per_depth[depth] / per_depth.sum()
                num += depth == 0
    assert float(loss(2).detach()) == pytest.approx(total / num, rel=1e-4)


def test_only_the_head_learns(folder: Path, target: Target, store: FeatureStore) -> None:
    loss = loss_of(folder, target, store, PLAN)
    loss(0).backward()
    assert isinstance(loss.drafter, DFlashDrafter)
    assert all(parameter.grad is not None for parameter in loss.network.parameters())
    assert all(parameter.grad is None for parameter in loss.drafter.parameters())
    assert all(parameter.grad is None for parameter in target.model.parameters())


def test_what_is_dropped_is_a_function_of_the_step(folder: Path, target: Target, store: FeatureStore) -> None:
    loss = loss_of(folder, target, store, PLAN, dropout=0.5)
    first, torch_moved = float(loss(1).detach()), torch.rand(7)
    assert len(torch_moved) == 7
    assert float(loss(1).detach()) == first
    whole = loss_of(folder, target, store, PLAN)
    assert float(whole(1).detach()) != first
    assert loss.held_out(store) == whole.held_out(store)


def test_held_out_texts_are_others_and_their_roots_stay(folder: Path, target: Target, store: FeatureStore) -> None:
    texts, held = store.split(0.25)
    assert texts.usable + held.usable == store.usable
    assert len(held.usable) == 3
    loss = loss_of(folder, target, texts, PLAN)
    assert loss.held_out(held) == loss.held_out(held)
    scores = loss.held_out(held)
    per_depth = np.exp(-np.arange(3) / 4)
    assert len(scores.cross_entropy) == len(scores.agreement) == 3
    assert scores.loss < float((np.array(scores.cross_entropy) * per_depth / per_depth.sum()).sum()) + 1e-3
    drawn = {index for step in range(4) for index in texts.drawn(step, 0, 3)}
    assert drawn <= set(texts.usable)
    assert len(store.split(1e-9)[1].usable) == 1
