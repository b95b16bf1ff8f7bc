"""Where a drafter's training starts: from the target's own last layers."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from simlab.errors import ModelError
from simlab.real_runner.drafters.config import DFlashConfig
from simlab.real_runner.drafters.dflash import Attention, DFlashDrafter, Layer, RMSNorm
from simlab.real_runner.targets.model import Target, TargetConfig

_COPIED = (
    *(f"self_attn.{name}_proj" for name in "qkvo"),
    "mlp",
    "input_layernorm",
    "post_attention_layernorm",
)


def config_for(
    target: Target, block_size: int, num_layers: int, taps: Sequence[int], mask_token_id: int
) -> DFlashConfig:
    """A drafter's sizes, taken over from the target's."""
    config = target.config
    missing = sorted(name for name in TargetConfig.__annotations__ if not hasattr(config, name))
    if missing:
        raise ModelError(
            f"{target.name} has no {missing[0]} in its configuration; simlab trains drafters for targets of the "
            "Llama and Qwen3 families"
        )
    heads = config.num_attention_heads
    return DFlashConfig(
        block_size=block_size,
        mask_token_id=mask_token_id,
        target_layer_ids=tuple(taps),
        num_target_layers=len(target.layers),
        num_hidden_layers=num_layers,
        hidden_size=config.hidden_size,
        intermediate_size=config.intermediate_size,
        num_attention_heads=heads,
        num_key_value_heads=config.num_key_value_heads,
        head_dim=int(getattr(config, "head_dim", None) or config.hidden_size // heads),
        rms_norm_eps=config.rms_norm_eps,
        rope_theta=float(config.rope_parameters["rope_theta"]),
        vocab_size=target.vocab_size,
        max_position_embeddings=config.max_position_embeddings,
        attention_bias=bool(getattr(config, "attention_bias", False)),
    )


@torch.no_grad()
def from_target(config: DFlashConfig, target: Target, sample_ids: Tensor) -> DFlashDrafter:
    """A drafter whose layers are the target's last ones and whose context is the last tap.

    The per-head norms, which a Llama target has not, get the size that its queries and keys have
    on ``sample_ids`` (int64 ``[S, L]``), so that attention starts as sharp as the target's.
    """
    drafter = DFlashDrafter(config)
    first = len(target.layers) - config.num_hidden_layers
    if first < 0:
        raise ModelError(
            f"{config.num_hidden_layers} draft layers cannot start from the {len(target.layers)} layers of "
            f"{target.name}; ask for fewer, or start from random weights"
        )
    for i, layer in enumerate(drafter.each_layer()):
        _copy_layer(layer, target.layers[first + i])
    sizes = _head_sizes(target, range(first, len(target.layers)), sample_ids)
    for i, layer in enumerate(drafter.each_layer()):
        _set_head_norms(layer.self_attn, target.layers[first + i].get_submodule("self_attn"), sizes[first + i])
    after_last_tap = target.layers[max(config.target_layer_ids) + 1]
    copy_weights(drafter.hidden_norm, after_last_tap.get_submodule("input_layernorm"))
    copy_weights(drafter.norm, target.model.get_decoder().get_submodule("norm"))
    drafter.fc.weight.zero_()
    last = config.target_layer_ids.index(max(config.target_layer_ids))
    size = config.hidden_size
    drafter.fc.weight[:, last * size : (last + 1) * size] = torch.eye(size)
    return drafter


def copy_weights(into: nn.Module, source: nn.Module) -> None:
    """Take over the weights of a module of the same names and shapes, in the dtype of the one that is written to."""
    into.load_state_dict({name: tensor.float() for name, tensor in source.state_dict().items()})


def _copy_layer(layer: Layer, source: nn.Module) -> None:
    try:
        for name in _COPIED:
            copy_weights(layer.get_submodule(name), source.get_submodule(name))
    except (AttributeError, RuntimeError) as error:
        reason = str(error).strip().splitlines()[-1].strip()
        raise ModelError(
            f"the target's layers are not of the Llama or Qwen3 kind ({reason}); start from random weights instead"
        ) from error


def _set_head_norms(attention: Attention, source: nn.Module, sizes: tuple[float, float]) -> None:
    for name, size in zip(("q_norm", "k_norm"), sizes, strict=True):
        norm: RMSNorm = getattr(attention, name)
        own = getattr(source, name, None)
        norm.weight.fill_(size) if own is None else copy_weights(norm, own)


def _head_sizes(target: Target, layer_ids: Sequence[int], sample_ids: Tensor) -> dict[int, tuple[float, float]]:
    """Root mean square of queries and keys of some layers."""
    of_layer: dict[int, dict[str, float]] = {i: {} for i in layer_ids}
    handles = []
    for i in layer_ids:
        for name in ("q_proj", "k_proj"):

            def keep(_m: nn.Module, _x: object, out: Tensor, i: int = i, name: str = name) -> None:
                of_layer[i][name] = float(out.float().pow(2).mean().sqrt())

            handles.append(target.layers[i].get_submodule(f"self_attn.{name}").register_forward_hook(keep))
    try:
        target.model.get_decoder()(sample_ids.to(target.device), use_cache=False)
    finally:
        for handle in handles:
            handle.remove()
    return {i: (sizes["q_proj"], sizes["k_proj"]) for i, sizes in of_layer.items()}
