"""Both models with their layers compiled by ``torch.compile``, in regions that keep for trees of every size.

A target's layer is two regions, before its attention and behind it. Keys and values are written in place between
the two, and there the shape of every pass is another one, so that part stays as it is. The drafter keeps nothing
itself: its pass is one region, and the projection of its context another. Sizes of texts and trees are symbols in a
region, so none is compiled again for another size; a single token has its own code.
"""

from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor, nn
from transformers.cache_utils import Cache
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

from simlab.errors import ModelError
from simlab.real_runner.attention.batch_invariant import FixedPass
from simlab.real_runner.attention.grouped import grouped_attention
from simlab.real_runner.attention.packed import PackedPass
from simlab.real_runner.drafters.dense import TextContext, blocks_of, drafted_logits
from simlab.real_runner.drafters.dflash import DFlashDrafter
from simlab.real_runner.execution.executions import COMPILED, CUDA_GRAPHS, check_execution
from simlab.real_runner.execution.fused_layers import (
    LAYERS,
    Adapter,
    Compiler,
    DecoderLayer,
    compiled,
    where_torch_compiles,
)
from simlab.real_runner.execution.graph_models import GraphedModels
from simlab.real_runner.execution.kv_buffers import BufferCache
from simlab.real_runner.targets.model import Target, features_of, tapped

_MORE_THAN_A_BLOCK = 3
_ROOM = 101


def compile_target(target: Target, compiler: Compiler) -> None:
    """Cut each layer of a target into two regions."""
    kinds = {type(layer).__name__ for layer in target.layers}
    if not kinds <= set(LAYERS):
        raise ModelError(
            f"the target {target.name!r} has layers of the kind {', '.join(sorted(kinds - set(LAYERS)))}, and simlab "
            f"compiles {', '.join(LAYERS)}; give --execution eager"
        )
    before, behind = compiler(_before_attention), compiler(_behind_attention)
    for layer in target.layers:
        vars(layer)["forward"] = _layer_pass(layer, before, behind)


def compile_drafter(drafter: DFlashDrafter, compiler: Compiler) -> None:
    """The drafter's pass as one region, and the projection of its context as another."""
    vars(drafter)["states"] = compiler(drafter.states)
    vars(drafter)["context_at"] = compiler(drafter.context_at)


def _layer_pass(module: nn.Module, before: Callable[..., object], behind: Callable[..., object]) -> object:
    """What a layer does, in the form in which transformers calls it."""
    layer = cast(DecoderLayer, module)
    attention = layer.self_attn

    def forward(
        hidden_states: Tensor,
        attention_mask: Tensor | None = None,
        position_embeddings: tuple[Tensor, Tensor] | None = None,
        packed: PackedPass | None = None,
        fixed: FixedPass | None = None,
        **settings: object,
    ) -> Tensor:
        assert position_embeddings is not None
        query, key, value = cast(tuple[Tensor, Tensor, Tensor], before(layer, hidden_states, *position_embeddings))
        # Its name is past_key_values up to transformers 5.23, and cache from 5.24 on.
        for cache in settings.values():
            if isinstance(cache, Cache):
                key, value = cache.update(key, value, attention.layer_idx)
        mixed, _ = grouped_attention(
            cast(nn.Module, attention),
            query,
            key,
            value,
            attention_mask,
            scaling=attention.scaling,
            packed=packed,
            fixed=fixed,
        )
        # In one piece, so that every kind of attention hands over the same strides.
        return cast(Tensor, behind(layer, hidden_states, mixed.flatten(-2).contiguous()))

    return forward


def _before_attention(layer: DecoderLayer, x: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Rotated queries and keys, and values, ``[S, A or E, L, F]``, of inputs ``[S, L, H]``."""
    attention, normed = layer.self_attn, layer.input_layernorm(x)
    shape = (*x.shape[:-1], -1, attention.head_dim)
    query, key = attention.q_proj(normed).view(shape), attention.k_proj(normed).view(shape)
    if hasattr(attention, "q_norm"):
        query, key = attention.q_norm(query), attention.k_norm(key)
    query, key = apply_rotary_pos_emb(query.transpose(1, 2), key.transpose(1, 2), cos, sin)
    return query, key, attention.v_proj(normed).view(shape).transpose(1, 2)


def _behind_attention(layer: DecoderLayer, x: Tensor, mixed: Tensor) -> Tensor:
    """What the layer hands on, ``[S, L, H]``, of its input and of what its heads have mixed, ``[S, L, A x F]``."""
    x = x + layer.self_attn.o_proj(mixed)
    return cast(Tensor, x + layer.mlp(layer.post_attention_layernorm(x)))


@torch.inference_mode()
def _run_once(target: Target, drafter: DFlashDrafter) -> None:
    """Passes of one token and of several, below contexts whose length is no other size of the pass."""
    config, device = drafter.config, target.device
    cache, text = BufferCache(target, _ROOM), TextContext(drafter, target, _ROOM)
    for num in (config.block_size + _MORE_THAN_A_BLOCK, 1, 2):
        with tapped(target, config.target_layer_ids) as taken:
            target.states(torch.zeros(1, num, dtype=torch.int64), cache)
        text.read(features_of(taken, config.target_layer_ids))
        root, position = torch.zeros(1, dtype=torch.int64, device=device), torch.tensor([cache.length], device=device)
        drafted_logits(drafter, target, text.states(blocks_of(drafter, root), position).after, root)


# What each value of ``--execution`` does to loaded models.


def prepare(target: Target, drafter: object, execution: str) -> GraphedModels | None:
    """Make models run as they are to be executed; these models stay so, others are as they were.

    Args:
        target: any.
        drafter: of blocks, an adapter of the target, or another network, which has no compiled form.
        execution: one of `simlab.real_runner.execution.executions.EXECUTIONS`.

    Returns:
        What holds captured passes, where they are captured.
    """
    try:
        check_execution(execution, 1, target.device.type)
    except ValueError as error:
        raise ModelError(str(error)) from error
    of_blocks = drafter if isinstance(drafter, DFlashDrafter) else None
    if execution == COMPILED and of_blocks is not None:
        # Run once, so that no round compiles.
        with where_torch_compiles():
            compile_target(target, compiled)
            compile_drafter(of_blocks, compiled)
            _run_once(target, of_blocks)
    if execution != CUDA_GRAPHS:
        return None
    return GraphedModels(target, of_blocks, adapter=drafter if isinstance(drafter, Adapter) else None)
