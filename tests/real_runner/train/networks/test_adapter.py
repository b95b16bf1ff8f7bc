"""``simlab train self``: the loss by hand, a run on tiny models, the same bytes after interruptions, refusals."""

import json
from pathlib import Path

import pytest
import torch
from commands import refusal_of
from random_adapter import random_adapter
from tiny_models import MASK_TOKEN_ID, VOCAB_SIZE
from training_runs import make_files, self_arguments

from simlab.cli.main import main
from simlab.real_runner.networks.adapter.gated import MaskRows, adapted, load_adapter
from simlab.real_runner.targets.loading import load_target
from simlab.real_runner.targets.model import Target
from simlab.real_runner.train.features import read_features
from simlab.real_runner.train.networks.adapter import AdapterLoss
from simlab.real_runner.train.plan import LossWeights, TrainingPlan
from simlab.real_runner.train.text import FeatureStore, TrainingBatch, given_texts

MASKS, CONSISTENCY = 3, 0.1
PLAN = TrainingPlan(steps=5, num_sequences=3, num_roots=5, head_tokens=0, loss=LossWeights(4.0, 0.0, 0.0))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_files(tmp_path_factory.mktemp("train"))


@pytest.fixture(scope="module")
def target(folder: Path) -> Target:
    return load_target(str(folder / "target"), torch.float32)


@pytest.fixture(scope="module")
def store(folder: Path, target: Target) -> FeatureStore:
    read_features(given_texts(folder / "texts.parquet", target, {}), target, (), folder / "states", 640)
    return FeatureStore(folder / "states")


@pytest.fixture(scope="module")
def trained(folder: Path) -> Path:
    """A finished run that learns, not to be changed."""
    out = folder / "trained"
    assert main(self_arguments(folder, out, "--learning-rate", "0.01", steps=60)) == 0
    return out


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
    loss = AdapterLoss(random_adapter(target, 3, MASKS), target, store, PLAN, CONSISTENCY)
    for step in (0, 2):
        batch = store.batch(step, PLAN.seed, PLAN.num_sequences, PLAN.num_roots, MASKS + 1)
        assert float(loss(step)) == pytest.approx(by_hand(loss, target, batch), rel=1e-4)


def test_texts_alone_are_kept(store: FeatureStore) -> None:
    batch = store.batch(0, 0, 2, 3, MASKS + 1)
    assert batch.features.shape[-1] == 0
    assert batch.features.shape[1] + MASKS + 1 == batch.tokens.shape[1]
    assert int(store.token_counts(VOCAB_SIZE).sum()) > 0


def test_it_learns_and_its_checkpoint_loads(trained: Path, target: Target) -> None:
    rows = json.loads((trained / "curve.json").read_text())
    losses = [row["held_out"]["loss"] for row in rows]
    assert min(losses) < 0.8 * losses[0]
    assert all(len(row["held_out"]["agreement"]) == MASKS for row in rows)
    config = load_adapter(trained, target).config
    assert (config.num_masks, config.rank, config.target_digest) == (MASKS, 4, target.digest)
    card = (trained / "README.md").read_text()
    assert "`simlab train self`" in card
    assert "The target itself was not changed" in card
    assert f"the weights of step {3 * losses.index(min(losses))}" in card


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--masks", "65"), "num_masks must be at least 1 and at most 64"),
        (("--consistency", "-1"), "consistency must be at least 0"),
        (("--held-out", "1"), "held-out share must be between"),
        (("--target", "./nowhere"), "nowhere"),
    ],
)
def test_what_a_person_gets_wrong_is_one_sentence(
    folder: Path, tmp_path: Path, more: tuple[str, ...], said: str
) -> None:
    assert said in refusal_of(*self_arguments(folder, tmp_path / "run", *more))
