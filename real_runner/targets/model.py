"""The target model: its passes, and reading hidden states off its layers."""

import functools
import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol, cast

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.cache_utils import Cache

from simlab.arrays import Floats
from simlab.errors import ModelError
from simlab.real_runner.attention import grouped as attention
from simlab.real_runner.attention.batch_invariant import FixedPass
from simlab.real_runner.attention.packed import PackedPass
from simlab.real_runner.targets.placement import longest_context, placement, running_device
from simlab.traces.format.manifest_entries import ModelInfo

# Keys and values that are written in place: room is doubled when it runs out, never copied per token.


LEAST_ROOM = 64
"""Tokens for which there is room at least, beyond those that are written."""


class KeyValueRows:
    """Rows of layers in one tensor, ``[parts, S, E, room, F]``; a part is the keys or values of a layer."""

    def __init__(self, num_parts: int, room: int) -> None:
        self.num_parts = num_parts
        self.room = room
        self.tensor: Tensor | None = None

    def write(self, part: int, start: int, new: Tensor) -> Tensor:
        """Write ``[S, E, L, F]`` from row ``start`` on; what now lies before its end, as a view."""
        stop = start + new.shape[2]
        if self.tensor is None or stop > self.tensor.shape[3]:
            self._grow(stop, new)
        assert self.tensor is not None
        self.tensor[part, :, :, start:stop] = new
        return self.tensor[part, :, :, :stop]

    def _grow(self, wanted: int, like: Tensor) -> None:
        held = 0 if self.tensor is None else self.tensor.shape[3]
        room = max(self.room, wanted + LEAST_ROOM, 2 * held)
        grown = like.new_empty(self.num_parts, *like.shape[:2], room, like.shape[3])
        if self.tensor is not None:
            # Some layers may have rows of this pass already: all that there is goes along.
            grown[:, :, :, :held] = self.tensor
        self.tensor = grown


class TargetConfig(Protocol):
    """What is read of a target's ``config.json``."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_attention_heads: int
    num_key_value_heads: int
    rms_norm_eps: float
    rope_parameters: dict[str, float]
    max_position_embeddings: int
    num_hidden_layers: int


@dataclass(frozen=True, slots=True, eq=False)
class Target:
    """A causal language model with its tokenizer, ready to run.

    ``digest`` hashes the published weights' files, so that a trace can say whose text it holds. ``quantised`` says how
    these store the weights, see `simlab.real_runner.targets.quantised.quantisation_of`; they run dequantised.
    """

    name: str
    revision: str
    digest: str
    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    stop_token_ids: tuple[int, ...]
    quantised: str = ""

    @property
    def info(self) -> ModelInfo:
        """What files say of it."""
        return ModelInfo(self.name, self.revision, self.digest, self.quantised)

    @property
    def end_of_turn_id(self) -> int | None:
        """The tokenizer's own stop token."""
        token = self.tokenizer.eos_token_id
        return token if isinstance(token, int) else None

    @property
    def config(self) -> TargetConfig:
        """The sizes of the model."""
        return cast(TargetConfig, self.model.config)

    @property
    def device(self) -> torch.device:
        """Where the weights are; of a target that is spread over devices, where its passes begin and end."""
        return self.embedding.weight.device

    @property
    def layer_devices(self) -> tuple[torch.device, ...]:
        """Where each layer computes, and so where its keys and values are."""
        return tuple(running_device(layer) or self.device for layer in self.layers)

    @property
    def placement(self) -> str:
        """How many layers are where, in words; empty where all of it is on one device."""
        return placement(self.model)

    @property
    def dtype(self) -> torch.dtype:
        """The dtype the weights run in."""
        return self.embedding.weight.dtype

    @property
    def embedding(self) -> nn.Embedding:
        """The input embedding, which the drafter borrows."""
        embedding = self.model.get_input_embeddings()
        assert isinstance(embedding, nn.Embedding)
        return embedding

    @property
    def head(self) -> nn.Module:
        """The output head, which the drafter borrows."""
        head = self.model.get_output_embeddings()
        assert isinstance(head, nn.Module)
        return head

    @property
    def layers(self) -> nn.ModuleList:
        """The decoder layers, in order."""
        layers = self.model.get_decoder().layers
        assert isinstance(layers, nn.ModuleList)
        return layers

    @property
    def num_layers(self) -> int:
        """Decoder layers of the published model, also where they were not loaded."""
        return self.config.num_hidden_layers

    @property
    def longest_context(self) -> int:
        """Tokens that a text may have: its positions, or its sliding window where that is shorter."""
        return longest_context(self.model.config)

    @property
    def reach(self) -> str:
        """What bounds the length of a text, in words that follow "and"."""
        length, positions = self.longest_context, self.config.max_position_embeddings
        if length == positions:
            return f"{self.name} has {positions:,}"
        return f"{self.name} has sliding windows of {length:,} tokens, within which simlab runs it"

    @property
    def vocab_size(self) -> int:
        """Rows of the output head."""
        return self.config.vocab_size

    @property
    def heads_per_group(self) -> int:
        """Query heads that share a key."""
        return self.config.num_attention_heads // self.config.num_key_value_heads

    def states(
        self,
        ids: Tensor,
        cache: Cache | None = None,
        visible: Tensor | None = None,
        positions: Tensor | None = None,
        packed: PackedPass | None = None,
        fixed: FixedPass | None = None,
    ) -> Tensor:
        """One pass through the decoder.

        Args:
            ids: int64 ``[S, L]``.
            cache: takes part in the pass and receives its keys and values.
            visible: bool ``[S, 1, L, past + L]``, or what `additive_mask` makes of that; None: everything before each
                token.
            positions: int64 ``[S, L]``; None: they follow the cache.
            packed: which token belongs to which sequence, in place of ``visible``; positions must be given.
            fixed: the same, what each row of a pass of fixed shape attends to.

        Returns:
            ``[S, L, H]``, after the final norm, on ``device``.
        """
        decoder = cast(nn.Module, self.model.get_decoder())
        num_before = 0 if cache is None else cache.get_seq_length()
        layouts = {name: value for name, value in (("packed", packed), ("fixed", fixed)) if value is not None}
        if not layouts and visible is None and num_before and ids.shape[1] > 1:
            visible = attention.causal_after(num_before, ids.shape[1], self.device)
        added = visible
        if visible is not None and visible.dtype == torch.bool:
            added = attention.additive_mask(visible, self.heads_per_group, self.dtype)
        masks = {"attention_mask": added, "position_ids": positions}
        kept = {_cache_keyword(type(decoder).forward): cache, "use_cache": cache is not None}
        output = decoder(ids.to(self.device), **kept, **masks, **layouts)
        return cast(Tensor, output.last_hidden_state).to(self.device)

    def logits(self, states: Tensor) -> Tensor:
        """float32 logits ``[..., V]`` of final states ``[..., H]``, on ``device``."""
        return cast(Tensor, self.head(states)).to(self.device).float()

    def rows(self, logits: Tensor) -> Floats:
        """Logits ``[R, V]`` as an array, each row seen to be a law."""
        rows: Floats = logits.cpu().numpy()
        if not np.isfinite(rows.max(axis=-1)).all():
            raise self.no_law()
        return rows

    def no_law(self) -> ModelError:
        """What is raised where a row of logits is no law."""
        kind = str(self.dtype).removeprefix("torch.")
        return ModelError(f"the logits of {self.name} are not numbers in {kind}; give another --dtype, such as float32")


@functools.cache
def _cache_keyword(forward: Callable[..., object]) -> str:
    """How a kind of decoder calls the keys and values it is given; transformers 5.24 gave them a new name."""
    return "cache" if "cache" in inspect.signature(forward).parameters else "past_key_values"


@contextmanager
def tapped(target: Target, layer_ids: Sequence[int]) -> Iterator[dict[int, Tensor]]:
    """Collect the output of some layers during forward passes.

    The yielded dictionary holds, per layer id, ``[S, L, H]`` of the latest pass: the state that transformers
    hands out behind that layer. That is the raw output, but for the last layer, whose state has passed the final
    norm, and for -1, the embedding.
    """
    taken: dict[int, Tensor] = {}
    device = target.device

    def hook_for(layer_id: int) -> Callable[[nn.Module, object, object], None]:
        def keep(_module: nn.Module, _inputs: object, output: object) -> None:
            # The drafter reads the states of all layers, wherever these are, beside each other.
            taken[layer_id] = cast(Tensor, output[0] if isinstance(output, tuple) else output).to(device)

        return keep

    handles = [_tap(target, i).register_forward_hook(hook_for(i)) for i in layer_ids]
    try:
        yield taken
    finally:
        for handle in handles:
            handle.remove()


def _tap(target: Target, layer_id: int) -> nn.Module:
    """The module whose output is the state behind a layer."""
    if layer_id == -1:
        return target.embedding
    if layer_id < len(target.layers) - 1:
        return target.layers[layer_id]
    norm = getattr(target.model.get_decoder(), "norm", None)
    if not isinstance(norm, nn.Module) or layer_id >= len(target.layers):
        raise ModelError(f"the target {target.name!r} has no state behind a layer {layer_id}")
    return norm


def final_norm(target: Target) -> nn.Module:
    """The norm between the last layer and the head."""
    norm = getattr(target.model.get_decoder(), "norm", None)
    if not isinstance(norm, nn.Module):
        raise ModelError(f"the target {target.name!r} has no final norm where the Llama and Qwen3 families have it")
    return norm


def features_of(taken: dict[int, Tensor], layer_ids: Sequence[int]) -> Tensor:
    """The tapped states side by side, ``[S, L, taps x H]``, in the order of the ids."""
    return torch.cat([taken[i] for i in layer_ids], dim=-1)


def entropies_of(log_probs: Tensor) -> Tensor:
    """The entropies of laws ``[..., V]``, in nats; a token of -inf has no share."""
    return -(log_probs.exp() * log_probs.clamp(min=-1e4)).sum(-1)
