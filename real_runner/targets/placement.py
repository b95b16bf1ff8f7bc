"""Where the parts of a target are, when it does not fit on one device: accelerate has spread it.

transformers hands out the map of its modules; a module whose weights lie in the machine's memory or on disk runs on
the first device all the same, for which its weights are fetched in each pass.
"""

from collections import Counter
from collections.abc import Iterator, Mapping

import torch
from torch import nn
from transformers import DynamicCache, PretrainedConfig, PreTrainedModel
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer

from simlab.errors import ModelError

# Which targets this runner computes rightly, and up to which length of text.
#
# A tree is verified in one pass under a mask of its own, over a cache of keys and values of which the rejected
# ones are dropped again. Layers that hold a running state (linear attention, Mamba) can do neither. Layers with a
# sliding window show what layers without one show, as long as the text is no longer than the window.


HEAD_FIELDS = ("final_logit_softcapping", "logits_scaling", "logit_scale")
_FULL, _SLIDING = "full_attention", "sliding_attention"
FAMILIES = "simlab runs targets that are built as those of the Llama and Qwen3 families; choose one of these"
_DUMPED = (
    "of this one it records the states that an engine dumps: `simlab record --completions FILE --hidden-states DIR "
    "--hidden-layers K,K,...`"
)


def check_supported(name: str, model: PreTrainedModel) -> None:
    """Refuse what this runner would compute wrongly, and say of what it can record states that were dumped."""
    check_head(name, model.config)
    problem = _state_problem(model) or _attention_problem(model)
    if problem is not None:
        has_norm = isinstance(getattr(model.get_decoder(), "norm", None), nn.Module)
        raise ModelError(f"the target {name!r} {problem}; {FAMILIES}{f', or {_DUMPED}' if has_norm else ''}")


ROTATED_BY_TYPE = "has rotary positions by layer type (rope_parameters), which its class in transformers does not read"


def rotates_by_type(config: PretrainedConfig) -> bool:
    """Whether a configuration has rotary positions for each type of layer."""
    ropes = getattr(config, "rope_parameters", None)
    return isinstance(ropes, Mapping) and any(isinstance(rope, Mapping) for rope in ropes.values())


def check_head(name: str, config: PretrainedConfig) -> None:
    """Refuse a target whose logits are not those of its head."""
    scaled = [key for key in HEAD_FIELDS if getattr(config, key, None) not in (None, 1)]
    if scaled:
        raise ModelError(f"the target {name!r} changes its logits after the head ({scaled[0]}); {FAMILIES}")


def longest_context(config: PretrainedConfig) -> int:
    """Tokens that a text may have: the model's positions, or its sliding window where that is shorter."""
    window = window_of(config)
    positions = int(config.max_position_embeddings)
    return positions if window is None else min(positions, window)


def window_of(config: PretrainedConfig) -> int | None:
    """The sliding window of a target's layers; None where every layer attends to everything."""
    kinds = getattr(config, "layer_types", None)
    window = getattr(config, "sliding_window", None)
    return None if window is None or (kinds and _SLIDING not in kinds) else int(window)


def _state_problem(model: PreTrainedModel) -> str | None:
    """Why its cache cannot be cropped, or takes no mask."""
    config = model.config
    kinds = set(getattr(config, "layer_types", None) or ())
    others = sorted(str(kind) for kind in kinds - {_FULL, _SLIDING})
    if others:
        return f"has layers of {', '.join(others)}, whose state cannot be taken back when drafted tokens are rejected"
    if getattr(model, "_is_stateful", False) or getattr(config, "layers_block_type", None):
        return "has layers with a running state, which cannot be taken back when drafted tokens are rejected"
    if not isinstance(getattr(model.get_decoder(), "layers", None), nn.ModuleList) or not hasattr(config, "vocab_size"):
        return f"is a {config.model_type} model"
    caches = {type(layer) for layer in DynamicCache(config=config).layers} - {
        DynamicLayer,
        DynamicSlidingWindowLayer,
    }
    if caches:
        return f"keeps its past in {', '.join(sorted(kind.__name__ for kind in caches))}, which simlab cannot shorten"
    return None


def _attention_problem(model: PreTrainedModel) -> str | None:
    """What its attention does that `simlab.real_runner.attention.grouped` does not."""
    config = model.config
    asks = {
        ROTATED_BY_TYPE: rotates_by_type(config)
        and not any(key.endswith("attention_inv_freq") for key, _ in model.named_buffers()),
        "soft-caps its attention scores (attn_logit_softcapping)": getattr(config, "attn_logit_softcapping", None),
        "attends in chunks (attention_chunk_size)": getattr(config, "attention_chunk_size", None),
        "compresses its keys (kv_lora_rank)": getattr(config, "kv_lora_rank", None),
        "shares keys between layers (num_kv_shared_layers)": getattr(config, "num_kv_shared_layers", None),
        "is not causal (use_bidirectional_attention)": getattr(config, "use_bidirectional_attention", None),
        "has attention sinks": any(name.endswith("sinks") for name, _ in model.named_parameters()),
        "takes no attention from outside its class in transformers": not model._supports_sdpa,
    }
    return next((what for what, value in asks.items() if value), None)


DeviceMap = str | Mapping[str, str | int]
"""``auto``: over all GPUs and, where these are full, the machine's memory; or a device for each module, by its name."""


def check_embedding(name: str, model: PreTrainedModel) -> None:
    """Refuse a target of which not even the embedding is on a device: the drafter reads it in every round."""
    embedding = model.get_input_embeddings()
    if any(weight.device.type == "meta" for weight in embedding.parameters()):
        raise ModelError(
            f"the embedding of the target {name!r} does not fit on the first device; free some of its memory, or give "
            "--dtype bfloat16"
        )


def running_device(module: nn.Module) -> torch.device | None:
    """Where a module computes; None: it has no weights."""
    hook = getattr(module, "_hf_hook", None)
    device = getattr(hook, "execution_device", None)
    if device is not None:
        return torch.device(device)
    return next((weight.device for weight in module.parameters() if weight.device.type != "meta"), None)


def placement(model: PreTrainedModel) -> str:
    """How many layers are where, in words; empty where all of the target is on one device."""
    spread: Mapping[str, object] = getattr(model, "hf_device_map", None) or {}
    if len({str(device) for device in spread.values()}) < 2:
        return ""
    counted = Counter(_layer_places(model, spread))
    return "layers on " + ", ".join(f"{device}: {num}" for device, num in counted.items())


def _layer_places(model: PreTrainedModel, spread: Mapping[str, object]) -> Iterator[str]:
    layers = model.get_decoder().layers
    assert isinstance(layers, nn.ModuleList)
    prefix = next(name for name, module in model.named_modules() if module is layers)
    for index in range(len(layers)):
        name = f"{prefix}.{index}"
        above = [key for key in spread if key == "" or name == key or name.startswith(f"{key}.")]
        below = [key for key in spread if key.startswith(f"{name}.")]
        device = str(spread[max(above, key=len)]) if above else "+".join(sorted({str(spread[key]) for key in below}))
        yield f"cuda:{device}" if device.isdigit() else device
