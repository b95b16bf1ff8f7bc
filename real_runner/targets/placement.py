"""Where the parts of a target are, when it does not fit on one device: accelerate has spread it.

transformers hands out the map of its modules; a module whose weights lie in the machine's memory or on disk runs on
the first device all the same, for which its weights are fetched in each pass.
"""

from collections import Counter
from collections.abc import Iterator, Mapping

import torch
from torch import nn
from transformers import PreTrainedModel

from simlab.errors import ModelError

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


def layer_devices(layers: nn.ModuleList, first: torch.device) -> tuple[torch.device, ...]:
    """Where each layer computes, and so where its keys and values are.

    Args:
        layers: of a target.
        first: of a layer that does not say.
    """
    return tuple(running_device(layer) or first for layer in layers)


def placement(model: PreTrainedModel) -> str:
    """How many layers are where, in words; empty where all of the target is on one device."""
    spread: Mapping[str, object] = getattr(model, "hf_device_map", None) or {}
    if len({str(place) for place in spread.values()}) < 2:
        return ""
    counted = Counter(_layer_places(model, spread))
    return "layers on " + ", ".join(f"{place}: {num}" for place, num in counted.items())


def _layer_places(model: PreTrainedModel, spread: Mapping[str, object]) -> Iterator[str]:
    layers = model.get_decoder().layers
    assert isinstance(layers, nn.ModuleList)
    prefix = next(name for name, module in model.named_modules() if module is layers)
    for index in range(len(layers)):
        name = f"{prefix}.{index}"
        above = [key for key in spread if key == "" or name == key or name.startswith(f"{key}.")]
        below = [key for key in spread if key.startswith(f"{name}.")]
        place = str(spread[max(above, key=len)]) if above else "+".join(sorted({str(spread[key]) for key in below}))
        yield f"cuda:{place}" if place.isdigit() else place
