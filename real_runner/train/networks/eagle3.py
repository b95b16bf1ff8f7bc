"""Training an EAGLE-3 head, ``simlab train eagle3``: it learns below its own outputs, as it will be used.

Li and others 2025, "EAGLE-3", arXiv 2503.01840, whose training-time test this is. Below a root the first pass reads the
target's states; each further pass stands one position on, and reads what the pass before it put out instead. Only what
stands below the drawn roots is unrolled: a pass sees the text up to its root as the first pass read it, and behind the
root its own passes.

Letters: S sequences, C positions of each, G roots of each, K passes, H hidden size, V_d tokens of the head.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from simlab.arrays import read_only
from simlab.errors import ModelError
from simlab.real_runner.drafters.vocabulary import DraftVocabulary
from simlab.real_runner.networks.eagle3.config import Eagle3Config
from simlab.real_runner.networks.eagle3.head import Eagle3Head, save_eagle3
from simlab.real_runner.targets.model import Target
from simlab.real_runner.train.networks.run import (
    Learner,
    NetworkWords,
    Scored,
    Start,
    train_network,
)
from simlab.real_runner.train.options import Eagle3Options
from simlab.real_runner.train.plan import TrainingPlan
from simlab.real_runner.train.state import config_for, copy_weights
from simlab.real_runner.train.text import FeatureStore, TrainingBatch
from simlab.real_runner.train.trainer import commonest, indices_of

_EMBEDDING_SCALE = 0.02


def train_eagle3(options: Eagle3Options) -> Path:
    """Train a head; see `train_network`.

    Raises:
        SimlabError: text, target or folder cannot be used.
    """

    def start(target: Target) -> Start:
        config = eagle3_config_for(target, options.taps)
        # Behind what the head reads comes the last layer, from which the target's own probabilities are made.
        taps = (*config.target_layer_ids, len(target.layers) - 1)

        def begun(store: FeatureStore) -> Eagle3Loss:
            head = eagle3_from_target(config, target, own_tokens(store, target, options.plan.head_tokens))
            return Eagle3Loss(head, target, store, options.plan, options.passes)

        return Start(taps, begun)

    return train_network(options, start)


def eagle3_config_for(target: Target, taps: Sequence[int] | None) -> Eagle3Config:
    """A head's sizes, taken over from the target's; it has all of the target's tokens yet."""
    sizes = config_for(target, 2, 1, tuple(taps or (0,)), 0)
    last = len(target.layers) - 1
    if taps is not None and last in taps:
        raise ModelError(f"a head reads layers before the last of {target.name}, {last}; choose other --taps")
    names = (
        *("hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads", "head_dim"),
        *("rms_norm_eps", "rope_theta", "vocab_size", "num_target_layers", "max_position_embeddings"),
    )
    config = Eagle3Config(
        **{name: getattr(sizes, name) for name in names},
        target_hidden_size=sizes.hidden_size,
        target_layer_ids=tuple(taps or ()),
    )
    return config.for_target(len(target.layers))


def own_tokens(store: FeatureStore, target: Target, count: int) -> DraftVocabulary | None:
    """The commonest tokens of the texts and those that end a text, so many in all; None: all of the target's."""
    if count == 0 or count >= target.vocab_size:
        return None
    stops = torch.tensor(sorted(target.stop_token_ids), dtype=torch.int64)
    if count <= len(stops):
        raise ModelError(
            f"{count} tokens of the head's own leave no room beside the {len(stops)} that end a text; ask for more"
        )
    kept = commonest(store, target.vocab_size, count)
    missing = stops[~torch.isin(stops, kept)]
    if len(missing):
        fewer = commonest(store, target.vocab_size, count - len(missing))
        kept = torch.cat([fewer, missing]).unique()
    return DraftVocabulary(read_only(kept.to(torch.int32).numpy()), target.vocab_size)


@torch.no_grad()
def eagle3_from_target(config: Eagle3Config, target: Target, own: DraftVocabulary | None) -> Eagle3Head:
    """A head that starts as the target's last layer behind its last tap, with rows of the target's own output head.

    The half of the attention's inputs that the embedding feeds starts from small random numbers, and its norm at one.
    """
    size = None if own is None else len(own.target_ids)
    head = Eagle3Head(replace(config, draft_vocab_size=size)).to(target.device)
    hidden, source = config.hidden_size, target.layers[-1]
    try:
        for name in "qkv":
            into, given = (
                head.midlayer.get_submodule(f"self_attn.{name}_proj"),
                source.get_submodule(f"self_attn.{name}_proj"),
            )
            assert isinstance(into, nn.Linear)
            assert isinstance(given, nn.Linear)
            nn.init.normal_(into.weight[:, :hidden], std=_EMBEDDING_SCALE)
            into.weight[:, hidden:] = given.weight.float()
            if into.bias is not None:
                into.bias.copy_(given.bias.float())
        pairs = {
            "self_attn.o_proj": "self_attn.o_proj",
            "mlp": "mlp",
            "hidden_norm": "input_layernorm",
            "post_attention_layernorm": "post_attention_layernorm",
        }
        for name, other in pairs.items():
            copy_weights(head.midlayer.get_submodule(name), source.get_submodule(other))
    except (AttributeError, RuntimeError) as error:
        reason = str(error).strip().splitlines()[-1].strip()
        raise ModelError(f"the layers of {target.name} are not of the Llama or Qwen3 kind ({reason})") from error
    copy_weights(head.norm, target.model.get_decoder().get_submodule("norm"))
    nn.init.zeros_(head.fc.weight)
    head.fc.weight[:, -hidden:] = torch.eye(hidden, device=target.device)
    if own is not None:
        head.vocabulary = own
        head.lm_head = nn.Linear(hidden, len(own.target_ids), bias=False, device=target.device)
        head.lm_head.weight.copy_(_rows(target, own))
    return head


class Eagle3Loss(Learner[Eagle3Head]):
    """What an EAGLE-3 head learns."""

    def __init__(self, head: Eagle3Head, target: Target, store: FeatureStore, plan: TrainingPlan, passes: int) -> None:
        """Hold on to what a step needs.

        Args:
            head: that learns; the next three as of `Learner`.
            target: the same.
            store: behind the head's own layers each has the target's last.
            plan: the same.
            passes: K.
        """
        super().__init__(head, target, store, plan, passes + 1)
        self.passes = passes
        self._rows = _rows(target, head.vocabulary)
        ids = torch.arange(target.vocab_size) if head.vocabulary is None else _ids(head.vocabulary)
        self._place = indices_of(ids, target.vocab_size).to(target.device)

    def __call__(self, step: int) -> Tensor:
        """The loss of the step's batch, a scalar.

        What a pass learns of the outputs before it is worth little while these are poor. So the first half of the steps
        is on the first pass alone, at as many more roots.
        """
        plan, passes = self.plan, self._passes_of(step)
        num_roots = plan.num_roots * self.passes // passes
        batch = self.store.batch(step, plan.seed, plan.num_sequences, num_roots, passes + 1)
        return self.loss(self.scored(self.network, batch, step))

    def _passes_of(self, step: int | None) -> int:
        return self.passes if step is None or step >= self.plan.steps // 2 else 1

    def settings(self) -> dict[str, object]:
        return {"passes": self.passes, "taps": list(self.network.config.target_layer_ids)}

    def save(self, folder: Path) -> None:
        save_eagle3(self.network, folder)

    def described(self) -> NetworkWords:
        config = self.network.config
        return NetworkWords(
            kind="head",
            what="An EAGLE-3 head (arXiv 2503.01840)",
            command="simlab train eagle3",
            does="It goes on from the target's own states, token by token; a tree is grown from it pass by pass, "
            "and no drafter is needed.",
            sizes={"hidden size": config.hidden_size, "own tokens": config.num_tokens},
            borrowed="The embedding is the target's.",
            before="before the first step",
            start="the target's last layer behind the last layer that is read, with rows of the target's output head; "
            "the first half of the steps is on the first pass alone, at as many more roots",
            asked="the target's own probabilities over the head's tokens, by pass, where the text goes on with one of "
            "them",
        )

    def loss(self, scored: Scored) -> Tensor:
        """Mean cross-entropy of each pass; later passes weigh less, as in the release (0.8 for each)."""
        (entropies, _, counts), decay = scored, self.plan.loss.decay
        passes = torch.arange(entropies.shape[1], device=entropies.device)
        weights = torch.exp(-passes / decay) if decay > 0 else torch.ones_like(passes, dtype=torch.float32)
        means = (entropies * counts).sum(0) / counts.sum(0).clamp(min=1)
        return (means * weights).sum() / weights.sum()

    def scored(self, network: Eagle3Head, batch: TrainingBatch, step: int | None) -> Scored:
        """What the passes below some roots say; entropies are to the target's probabilities over the head's tokens."""
        target, device, passes = self.target, self.target.device, self._passes_of(step)
        # Before a root stands a token, whose state is read.
        tokens, roots = batch.tokens.to(device), batch.roots.clamp(min=1).to(device)
        features = batch.features.to(device, target.dtype)
        states, last = features.split([features.shape[-1] - self._rows.shape[1], self._rows.shape[1]], dim=-1)
        steps = torch.arange(passes, device=device)[:, None]
        below = (roots[:, None] + steps).flatten(1)
        truth = tokens.gather(1, below + 1)
        with torch.autocast(device.type, torch.bfloat16, enabled=target.dtype == torch.bfloat16):
            with torch.no_grad():
                # The state behind the last layer has passed the last norm.
                at = below.clamp(max=last.shape[1] - 1)[..., None].expand(-1, -1, last.shape[-1])
                laws = (last.gather(1, at) @ self._rows.T).float().softmax(-1)
            logits = network.logits(target, unrolled(network, target, states, tokens, roots, passes).flatten(1, 2))
        log_probs = logits.log_softmax(-1)
        index = torch.where(truth >= 0, self._place[truth.clamp(min=0)], -1)
        shape = (len(roots), passes, -1)
        parts = (-(laws * log_probs).sum(-1), log_probs.argmax(-1) == index, index >= 0)
        return tuple(part.view(shape).transpose(1, 2).reshape(-1, passes) for part in parts)


def unrolled(head: Eagle3Head, target: Target, features: Tensor, tokens: Tensor, roots: Tensor, passes: int) -> Tensor:
    """The head's outputs ``[S, K, G, H]`` below some roots of some texts, each pass on the text's own tokens.

    Args:
        head: of an EAGLE-3 drafter.
        target: that it belongs to; it may borrow its embedding.
        features: ``[S, C, taps x H_t]``, tapped states of the target.
        tokens: int64 ``[S, L]``, L at least C + 1; -1 where the text has ended.
        roots: int64 ``[S, G]``, positions from 1 on.
        passes: K.
    """
    count, length = features.shape[:2]
    num_roots, position_ids = roots.shape[1], torch.arange(length, device=features.device)
    embedded = head.embedded(target, tokens.clamp(min=0))
    hidden, kept = head(head.fused(features), embedded[:, 1 : length + 1], position_ids.expand(count, -1))
    outputs, past = [_at(hidden, roots - 1)], [kept]
    unseen = (position_ids > roots[..., None] - 1)[:, None]
    others = ~torch.eye(num_roots, dtype=torch.bool, device=features.device).expand(count, 1, -1, -1)
    for step in range(1, passes):
        unseen = torch.cat([unseen, others], dim=-1)
        reads = _at(embedded, (roots + step).clamp(max=tokens.shape[1] - 1))
        output, kept = head(outputs[-1], reads, roots - 1 + step, past, unseen)
        outputs.append(output)
        past.append(kept)
    return torch.stack(outputs, dim=1)


def _at(states: Tensor, positions: Tensor) -> Tensor:
    """Rows ``[S, G, H]`` of states ``[S, C, H]``."""
    return states.gather(1, positions[..., None].expand(-1, -1, states.shape[-1]))


def _ids(own: DraftVocabulary) -> Tensor:
    return torch.from_numpy(own.target_ids.astype(np.int64))


def _rows(target: Target, own: DraftVocabulary | None) -> Tensor:
    """``[V_d, H_t]``, the target's output head at the head's tokens."""
    weight = target.head.weight
    assert isinstance(weight, Tensor)
    return weight.detach() if own is None else weight.detach()[_ids(own).to(weight.device)]
