"""``simlab train self``: the loss by hand, a run on tiny models, the same bytes after interruptions, refusals."""

from pathlib import Path

import pytest
import torch
from random_adapter import random_adapter
from tiny_models import MASK_TOKEN_ID, VOCAB_SIZE

from simlab.real_runner.networks.adapter.gated import MaskRows, adapted
from simlab.real_runner.targets.model import Target
from simlab.real_runner.train.features import read_features
from simlab.real_runner.train.networks.adapter import AdapterLoss
from simlab.real_runner.train.plan import LossWeights, TrainingPlan
from simlab.real_runner.train.text import FeatureStore, TrainingBatch, given_texts

MASKS, CONSISTENCY = 3, 0.1
PLAN = TrainingPlan(steps=5, num_sequences=3, num_roots=5, head_tokens=0, loss=LossWeights(4.0, 0.0, 0.0))


@pytest.fixture(scope="module")
def store(folder: Path, target: Target) -> FeatureStore:
    read_features(given_texts(folder / "texts.parquet", target, {}), target, (), folder / "states", 640)
    return FeatureStore(folder / "states")


@torch.no_grad()
def by_hand(loss: AdapterLoss, target: Target, batch: TrainingBatch) -> float:
    """The loss of a batch, root by root: text up to the token before it, and masks, in one causal pass."""
    weights = [0.7788007830714049**number for number in range(MASKS)]
    total, distances = 0.0, list[float]()
    blocks = sum(
        int(batch.tokens[text, root + 1] >= 0) for text, row in enumerate(batch.roots.tolist()) for root in row
    )
    for text, roots in enumerate(batch.roots.tolist()):
        tokens = batch.tokens[text][batch.tokens[text] >= 0]
        own = target.states(tokens[None])[0]
        for root in roots:
            ids = torch.cat([tokens[:root], torch.full((MASKS,), MASK_TOKEN_ID)])[None]
            masks = MaskRows(torch.arange(root, root + MASKS), torch.arange(MASKS))
            with adapted(target, loss.network, masks):
                states = target.states(ids)[0, root:]
            said = target.logits(states).log_softmax(-1)
            for number in range(MASKS):
                place = root + number
                if place + 1 < len(tokens):
                    total -= weights[number] / sum(weights) * float(said[number, tokens[place + 1]])
                if place < len(tokens):
                    distances.append(float((states[number] - own[place]).square().mean()))
    return total / blocks + CONSISTENCY * sum(distances) / len(distances)


@torch.no_grad()
def test_the_loss_is_that_of_masks_behind_each_root(target: Target, store: FeatureStore) -> None:
    loss = AdapterLoss(random_adapter(target, 3, MASKS), target, store, PLAN, CONSISTENCY, None)
    for step in (0, 2):
        batch = store.batch(step, PLAN.seed, PLAN.num_sequences, PLAN.num_roots, MASKS + 1)
        assert float(loss(step)) == pytest.approx(by_hand(loss, target, batch), rel=1e-4)


def test_texts_alone_are_kept(store: FeatureStore) -> None:
    batch = store.batch(0, 0, 2, 3, MASKS + 1)
    assert batch.features.shape[-1] == 0
    assert batch.features.shape[1] + MASKS + 1 == batch.tokens.shape[1]
    assert int(store.token_counts(VOCAB_SIZE).sum()) > 0
