"""``simlab train eagle3``: what is unrolled is what decoding does, the loss by hand, a run on tiny models, refusals."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from random_eagle3 import random_eagle3_for
from tiny_models import NUM_LAYERS, VOCAB_SIZE

from simlab.errors import ModelError
from simlab.real_runner.networks.eagle3.head import Eagle3Head, KeyValues
from simlab.real_runner.targets.loading import load_target
from simlab.real_runner.targets.model import Target, features_of, tapped
from simlab.real_runner.train.features import read_features
from simlab.real_runner.train.networks.eagle3 import (
    Eagle3Loss,
    eagle3_config_for,
    eagle3_from_target,
    own_tokens,
    unrolled,
)
from simlab.real_runner.train.plan import LossWeights, TrainingPlan
from simlab.real_runner.train.text import FeatureStore, TrainingBatch, given_texts

PASSES, TAPS = 4, (0, 2)
PLAN = TrainingPlan(steps=5, num_sequences=3, num_roots=5, head_tokens=0, loss=LossWeights(4.0, 0.0, 0.0))
LAST = NUM_LAYERS - 1


@pytest.fixture(scope="module")
def target(folder: Path) -> Target:
    """With a last norm that matters: the state behind the last layer has passed it already."""
    loaded = load_target(str(folder / "target"), torch.float32)
    norm = loaded.model.get_decoder().get_submodule("norm")
    assert isinstance(norm.weight, torch.nn.Parameter)
    norm.weight.data.copy_(torch.linspace(0.3, 3.0, len(norm.weight)))
    return loaded


@pytest.fixture(scope="module")
def store(folder: Path, target: Target) -> FeatureStore:
    read_features(given_texts(folder / "texts.parquet", target, {}), target, (*TAPS, LAST), folder / "states", 640)
    return FeatureStore(folder / "states")


def head_for(target: Target, own: int | None = None) -> Eagle3Head:
    """Of random weights, in the target's dtype, with the taps of the store."""
    head = random_eagle3_for(target, 3, own)
    assert head.config.num_taps == len(TAPS)
    head.config = replace(head.config, target_layer_ids=TAPS)
    return head


def pass_by_pass(
    head: Eagle3Head, target: Target, states: torch.Tensor, tokens: torch.Tensor, root: int
) -> torch.Tensor:
    """Outputs ``[K, H]`` below one root, as a round makes them: one position at a time."""
    past, outputs = list[KeyValues](), list[torch.Tensor]()
    for position in range(root):
        hidden = head.fused(states[None, position : position + 1])
        read = head.embedded(target, tokens[None, position + 1 : position + 2])
        output, new = head(hidden, read, torch.tensor([[position]]), past)
        past.append(new)
        outputs = [output[0, 0]]
    for further in range(1, PASSES):
        token = tokens[None, root + further : root + further + 1].clamp(min=0)
        where = torch.tensor([[root - 1 + further]])
        output, new = head(outputs[-1][None, None], head.embedded(target, token), where, past)
        past.append(new)
        outputs.append(output[0, 0])
    return torch.stack(outputs)


def test_what_is_unrolled_is_what_decoding_does(target: Target, store: FeatureStore) -> None:
    """In float64 but for the shares of attention, which are float32; at every drawn root, also at the end of a text."""
    head = head_for(target).double()
    batch = store.batch(1, 0, 4, 6, PASSES + 1)
    states = batch.features[..., : -target.config.hidden_size].double()
    found = unrolled(head, target, states, batch.tokens, batch.roots, PASSES)
    assert found.shape == (4, PASSES, 6, head.config.hidden_size)
    for text, roots in enumerate(batch.roots.tolist()):
        for number, root in enumerate(roots):
            expected = pass_by_pass(head, target, states[text], batch.tokens[text], root)
            assert torch.allclose(found[text, :, number], expected, rtol=1e-6, atol=1e-5)


def by_hand(loss: Eagle3Loss, target: Target, batch: TrainingBatch) -> float:
    """The loss of a batch from whole texts: the target is run on each anew."""
    head, own = loss.network, loss.network.vocabulary
    ids = torch.arange(VOCAB_SIZE) if own is None else torch.tensor(own.target_ids.tolist())
    entropies: list[list[float]] = [[] for _ in range(PASSES)]
    for text, roots in enumerate(batch.roots.tolist()):
        tokens = batch.tokens[text][batch.tokens[text] >= 0]
        with tapped(target, (*TAPS, LAST)) as taken:
            logits = target.model(tokens[None]).logits[0]
            states = features_of(taken, TAPS)[0].to(torch.bfloat16).float()
        laws = logits[:, ids].softmax(-1)
        for root in roots:
            outputs = pass_by_pass(head, target, states, batch.tokens[text], root)
            said = head.logits(target, outputs).log_softmax(-1)
            for number in range(PASSES):
                behind = root + number + 1
                if behind < len(tokens) and tokens[behind] in ids:
                    entropies[number].append(-float((laws[behind - 1] * said[number]).sum()))
    weights = [0.7788007830714049**number for number in range(PASSES)]
    means = [sum(some) / max(1, len(some)) for some in entropies]
    return sum(weight * mean for weight, mean in zip(weights, means, strict=True)) / sum(weights)


@torch.no_grad()
@pytest.mark.parametrize("own", [None, 40])
def test_the_loss_is_cross_entropy_to_the_target(target: Target, store: FeatureStore, own: int | None) -> None:
    loss = Eagle3Loss(head_for(target, own), target, store, PLAN, PASSES)
    batch = store.batch(2, PLAN.seed, PLAN.num_sequences, PLAN.num_roots, PASSES + 1)
    # States are kept in bfloat16, those from which the target's probabilities come too.
    assert float(loss(2)) == pytest.approx(by_hand(loss, target, batch), rel=5e-3)


def test_its_own_tokens_are_the_commonest_and_those_that_end_a_text(target: Target, store: FeatureStore) -> None:
    own = own_tokens(store, target, 12)
    assert own is not None
    assert set(target.stop_token_ids) <= set(own.target_ids.tolist())
    counts = store.token_counts(target.vocab_size)
    others = sorted(set(own.target_ids.tolist()) - set(target.stop_token_ids))
    left_out = set(range(target.vocab_size)) - set(own.target_ids.tolist())
    assert len(own.target_ids) == 12
    assert min(int(counts[token]) for token in others) >= max(int(counts[token]) for token in left_out)
    assert own_tokens(store, target, 0) is None
    assert own_tokens(store, target, target.vocab_size) is None
    with pytest.raises(ModelError, match="leave no room"):
        own_tokens(store, target, len(target.stop_token_ids))


def test_it_starts_as_the_last_layer_of_the_target(target: Target, store: FeatureStore) -> None:
    """Its queries on a state alone are those of the layer, and its rows those of the output head."""
    own = own_tokens(store, target, 40)
    assert own is not None
    head = eagle3_from_target(eagle3_config_for(target, TAPS), target, own)
    layer, state = target.layers[-1], torch.randn(1, 3, target.config.hidden_size)
    fused = head.fused(torch.cat([torch.randn_like(state), state], -1))
    assert torch.equal(fused, state)
    nothing = torch.zeros_like(state)
    both = torch.cat([nothing, head.midlayer.hidden_norm(state)], -1)
    with torch.no_grad():
        expected = layer.get_submodule("self_attn.q_proj")(layer.get_submodule("input_layernorm")(state))
        assert torch.allclose(head.midlayer.self_attn.q_proj(both), expected, atol=1e-6)
    assert head.lm_head is not None
    rows = target.head.weight
    assert isinstance(rows, torch.Tensor)
    assert torch.equal(head.lm_head.weight, rows[torch.tensor(own.target_ids.tolist())])
