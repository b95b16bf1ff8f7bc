"""What a selector learns: the true token among a drafter's candidates, the true token above it known."""

from pathlib import Path

import numpy as np
import pytest
import torch
from tiny_models import VOCAB_SIZE

from simlab.real_runner.checkpoints.contents import checkpoint_digest
from simlab.real_runner.drafters.dense import draft_states
from simlab.real_runner.drafters.dflash import DFlashDrafter
from simlab.real_runner.networks.dflash2.config import SelectorConfig
from simlab.real_runner.networks.dflash2.selector import Selector, load_selector
from simlab.real_runner.networks.drafter import load_drafter
from simlab.real_runner.targets.model import Target
from simlab.real_runner.train.networks.dflash2 import SelectorLoss, train_selector
from simlab.real_runner.train.options import SelectorOptions
from simlab.real_runner.train.plan import LossWeights, TextOptions, TrainingPlan
from simlab.real_runner.train.text import FeatureStore

PLAN = TrainingPlan(
    steps=4, num_sequences=3, num_roots=4, head_tokens=0, loss=LossWeights(decay=4.0, focal=0.0, chain=0.0)
)
TOP_K = 5


@pytest.fixture(scope="module")
def trained(folder: Path) -> Path:
    texts = TextOptions(text=folder / "texts.parquet")
    return train_selector(
        SelectorOptions(
            target=str(folder / "target"),
            draft=str(folder / "drafter"),
            texts=texts,
            plan=PLAN,
            rank=6,
            top_k=TOP_K,
            eval_every=2,
            out=folder / "selector",
        )
    )


def test_a_run_ends_in_a_selector_of_its_drafter(folder: Path, trained: Path) -> None:
    digest, drafter = checkpoint_digest(folder / "drafter"), load_drafter(folder / "drafter", torch.float32)
    selector = load_selector(trained, drafter, digest, torch.float32)
    assert selector.config == SelectorConfig(32, VOCAB_SIZE, 6, TOP_K, digest)
    assert "It chooses among the drafter's first candidates" in (trained / "README.md").read_text()


def test_the_loss_is_that_of_plain_scores(folder: Path, target: Target, trained: Path) -> None:
    """Root by root: candidates by the drafter's law, scored, with its mass; other tokens as the drafter has them."""
    store = FeatureStore(trained / "features")
    drafter = load_drafter(folder / "drafter", torch.float32)
    torch.manual_seed(0)
    selector = Selector(SelectorConfig(32, VOCAB_SIZE, 6, TOP_K))
    torch.nn.init.normal_(selector.successor_codebook.weight)
    loss = SelectorLoss(selector, drafter, target, store, PLAN, "digest")
    assert isinstance(loss.drafter, DFlashDrafter)
    a, b, p = (one.detach().double().numpy() for one in selector.parameters())
    assert isinstance(target.head.weight, torch.Tensor)
    matrix = target.head.weight.double().numpy()
    per_depth = np.exp(-np.arange(3) / 4)
    batch, total, num = store.batch(2, PLAN.seed, PLAN.num_sequences, PLAN.num_roots, 4), 0.0, 0
    for features, tokens, roots in zip(batch.features, batch.tokens, batch.roots, strict=True):
        ((_, states),) = draft_states(drafter, target, features.float(), tokens.clamp(min=0), roots, 9)
        for t, root in enumerate(roots.tolist()):
            for depth in range(3):
                above, truth = int(tokens[root + depth]), int(tokens[root + depth + 1])
                if truth < 0:
                    continue
                state = states.after[t, depth].double().numpy()
                logits = matrix @ state
                law = logits - np.log(np.exp(logits).sum())
                first = np.argsort(-law)[:TOP_K]
                scores = law[first] + (a[above] * (p @ state)) @ b[first].T
                chosen = scores - np.log(np.exp(scores).sum()) + np.log(np.exp(law[first]).sum())
                law[first] = chosen
                total -= law[truth] * per_depth[depth] / per_depth.sum()
                num += depth == 0
    assert float(loss(2).detach()) == pytest.approx(total / num, rel=1e-3)


def test_only_the_selector_learns(folder: Path, target: Target, trained: Path) -> None:
    drafter = load_drafter(folder / "drafter", torch.float32)
    selector = Selector(SelectorConfig(32, VOCAB_SIZE, 6, TOP_K))
    SelectorLoss(selector, drafter, target, FeatureStore(trained / "features"), PLAN, "digest")(0).backward()
    assert selector.successor_codebook.weight.grad is not None
    assert all(parameter.grad is None for parameter in (*drafter.parameters(), *target.model.parameters()))


def test_numbers_that_cannot_be_are_refused(folder: Path) -> None:
    texts = TextOptions(text=folder / "texts.parquet")
    with pytest.raises(ValueError, match="top_k must be at least 1"):
        SelectorOptions(texts=texts, plan=PLAN, top_k=0, out=folder / "none")
