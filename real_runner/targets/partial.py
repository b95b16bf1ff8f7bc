"""The part of a target that drafting from dumped hidden states needs: embedding, final norm and head.

The layers stay on disk: they are read neither into memory nor, where the hub has the checkpoint in several
files, from the network.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import cast

import torch
from safetensors import safe_open
from torch import Tensor, nn
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    GenerationConfig,
    PretrainedConfig,
    PreTrainedModel,
)

from simlab.errors import ModelError
from simlab.real_runner.attention import grouped as attention
from simlab.real_runner.targets import builtin
from simlab.real_runner.targets.hub_files import every_tensor, repository_of
from simlab.real_runner.targets.loading import DAMAGED, stop_token_ids, target_files, weights_digest
from simlab.real_runner.targets.model import Target
from simlab.real_runner.targets.support import HEAD_FIELDS


def load_partial_target(name: str, dtype: torch.dtype, device: str = "cpu") -> Target:
    """A target without its layers, from the built-in target, a folder, or a Hugging Face id.

    Its ``states`` are of no use; ``embedding``, ``logits`` and ``final_norm`` are those of the whole model.

    Raises:
        ModelError: nothing can be loaded under that name.
    """
    place = target_files(name, _is_needed)
    folder = place.folder
    try:
        config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
        num_layers = int(config.num_hidden_layers)
        model = _without_layers(name, config, dtype)
        _fill(name, model, folder)
        if (folder / "generation_config.json").is_file():
            model.generation_config = GenerationConfig.from_pretrained(folder)
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    except DAMAGED as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise ModelError(
            f"embedding, final norm and head of the target {name!r} could not be loaded ({reason}); expected "
            f"{builtin.NAME!r}, a folder with config.json and safetensors, or a Hugging Face id"
        ) from error
    model.config.num_hidden_layers = num_layers
    # A window limits the target's own passes, which have been made.
    model.config.sliding_window = None
    # Of a folder all files are at hand, as for `load_target`; of the hub's only those that were fetched.
    is_hashed = _is_needed if place.revision else every_tensor
    return Target(
        name=repository_of(name),
        revision=place.revision,
        digest=builtin.GGUF_SHA256 if name == builtin.NAME else weights_digest(folder, is_hashed),
        model=cast(PreTrainedModel, cast(nn.Module, model).to(device).eval().requires_grad_(False)),
        tokenizer=tokenizer,
        stop_token_ids=stop_token_ids(model, tokenizer),
    )


def final_norm(target: Target) -> nn.Module:
    """The norm between the last layer and the head."""
    norm = getattr(target.model.get_decoder(), "norm", None)
    if not isinstance(norm, nn.Module):
        raise ModelError(f"the target {target.name!r} has no final norm where the Llama and Qwen3 families have it")
    return norm


def _is_needed(tensor: str) -> bool:
    return ".layers." not in tensor


def _without_layers(name: str, config: PretrainedConfig, dtype: torch.dtype) -> PreTrainedModel:
    scaled = [key for key in HEAD_FIELDS if getattr(config, key, None) not in (None, 1)]
    if scaled:
        raise ModelError(f"the target {name!r} changes its logits after the head ({scaled[0]}); choose another target")
    config.num_hidden_layers = 0
    if getattr(config, "layer_types", None) is not None:
        config.layer_types = []
    if hasattr(config, "quantization_config"):
        delattr(config, "quantization_config")
    with torch.device("meta"):
        model: PreTrainedModel = AutoModelForCausalLM.from_config(
            config, dtype=dtype, attn_implementation=attention.NAME
        )
    return model


def _fill(name: str, model: PreTrainedModel, folder: Path) -> None:
    """Read the tensors of a model that was built without values."""
    shapes = {key: tuple(value.shape) for key, value in model.state_dict().items()}
    cast("nn.Module", model).to_empty(device="cpu")
    model.tie_weights()
    head = "lm_head.weight"
    if model.config.tie_word_embeddings:
        shapes.pop(head, None)
    tensors = _read(sorted(folder.glob("*.safetensors")), list(shapes))
    for key, shape in shapes.items():
        value = tensors.get(key)
        if value is None:
            raise ModelError(f"the checkpoint of the target {name!r} has no tensor {key!r}; it is not whole")
        if tuple(value.shape) != shape or not value.is_floating_point() or value.element_size() < 2:
            kind = str(value.dtype).removeprefix("torch.")
            raise ModelError(
                f"{key!r} of the target {name!r} is {kind} {list(value.shape)}; expected {list(shape)} in float32, "
                "bfloat16 or float16; give the checkpoint that is not quantised"
            )
    cast("nn.Module", model).load_state_dict(tensors, strict=False)


def _read(paths: Sequence[Path], names: Sequence[str]) -> dict[str, Tensor]:
    """The named tensors, out of the files that have them; of the others only the headers are read."""
    tensors: dict[str, Tensor] = {}
    for path in paths:
        with safe_open(path, "pt") as file:
            for key in set(file.keys()) & set(names):
                tensors[key] = file.get_tensor(key)
    return tensors
