"""Both models without their weights: how large they are and whether they fit, from two ``config.json`` alone.

Tensors are made on torch's device ``meta``, which gives them shapes and no memory; so every architecture that
transformers knows is counted as it would be loaded.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import cast

import torch
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM, PretrainedConfig, PreTrainedModel

from simlab.errors import ModelError, SimlabError
from simlab.real_runner.attention import grouped as attention
from simlab.real_runner.checkpoints.contents import config_file, packaged_checkpoints, read_fields
from simlab.real_runner.checkpoints.files import find_drafter
from simlab.real_runner.checkpoints.layouts import read_config
from simlab.real_runner.checkpoints.networks.adapter import is_adapter
from simlab.real_runner.checkpoints.networks.eagle3 import eagle3_from_json
from simlab.real_runner.drafters.config import DFlashConfig, check_sizes
from simlab.real_runner.drafters.dflash import DFlashDrafter
from simlab.real_runner.drafters.eagle3_config import Eagle3Config
from simlab.real_runner.heads.eagle3.head import Eagle3Head
from simlab.real_runner.models import dtype_of
from simlab.real_runner.record.options import RecordOptions
from simlab.real_runner.tap_offset import parse_tap_offset
from simlab.real_runner.targets import builtin
from simlab.real_runner.targets.hub_files import CONFIG, fetch, is_hub_id
from simlab.real_runner.targets.support import check_supported
from simlab.traces.artefacts.model_config import find_packaged_config


@dataclass(frozen=True, slots=True)
class ModelShapes:
    """Sizes of a target and a drafter that fit each other.

    Attributes:
        config: of the drafter.
        target_parameters: of the target; with hidden states from elsewhere without its layers.
        drafter_parameters: of the drafter; an embedding and a head of its own come on top, where it has them and its
            configuration does not say so.
        whole_target_parameters: with its layers in any case.
        num_layers: of the target.
        hidden_size: of the target.
        feed_forward: inner width of its feed-forward network.
        vocab_size: of the target.
        key_value_elements: numbers that the target keeps of one token, in all layers.
    """

    config: DFlashConfig | Eagle3Config
    target_parameters: int
    drafter_parameters: int
    whole_target_parameters: int
    num_layers: int
    hidden_size: int
    feed_forward: int
    vocab_size: int
    key_value_elements: int


def read_shapes(options: RecordOptions) -> ModelShapes:
    """The shapes of both models, seen to fit; of the hub only the two configurations are fetched.

    Raises:
        ModelError: a configuration cannot be had or read, or simlab would refuse the models.
    """
    model = _target_shape(options)
    text = model.config
    config = any_config(options)
    if isinstance(config, Eagle3Config):
        config = config.for_target(text.num_hidden_layers)
    check_sizes(config, options.target_name, text.num_hidden_layers, text.hidden_size, text.vocab_size)
    with torch.device("meta"):
        drafter = Eagle3Head(config) if isinstance(config, Eagle3Config) else DFlashDrafter(config)
    counted = dict(cast(nn.Module, model).named_parameters())
    kept = [weight for name, weight in counted.items() if options.hidden_states is None or ".layers." not in name]
    head = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    return ModelShapes(
        config=config,
        target_parameters=sum(weight.numel() for weight in kept),
        drafter_parameters=sum(weight.numel() for weight in drafter.parameters()) + _own_head(config),
        whole_target_parameters=sum(weight.numel() for weight in counted.values()),
        num_layers=text.num_hidden_layers,
        hidden_size=text.hidden_size,
        feed_forward=text.intermediate_size,
        vocab_size=text.vocab_size,
        key_value_elements=2 * text.num_hidden_layers * text.num_key_value_heads * head,
    )


def _own_head(config: DFlashConfig | Eagle3Config) -> int:
    return 0 if config.draft_vocab_size is None else config.draft_vocab_size * config.hidden_size


def _target_shape(options: RecordOptions) -> PreTrainedModel:
    name = options.target_name
    try:
        config = _target_config(name)
        with torch.device("meta"):
            model: PreTrainedModel = AutoModelForCausalLM.from_config(
                config, dtype=dtype_of(options.model_dtype), attn_implementation=attention.NAME, trust_remote_code=False
            )
    except Exception as error:
        if isinstance(error, SimlabError):
            raise
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise ModelError(
            f"the {CONFIG} of the target {name!r} could not be read ({reason}); give a target of the Llama and Qwen3 "
            "families"
        ) from error
    check_supported(name, model)
    return model


def _target_config(name: str) -> PretrainedConfig:
    if name == builtin.NAME and builtin.target_at_hand() is None:
        sizes = find_packaged_config(builtin.GGUF_SHA256)
        assert sizes is not None
        return AutoConfig.for_model("llama", tie_word_embeddings=True, **sizes)
    if name == builtin.NAME:
        folder = builtin.builtin_target_dir()
    elif Path(name).is_dir() or not is_hub_id(name):
        folder = Path(name)
    else:
        folder = fetch("target", name, [CONFIG]).folder
    if not (folder / CONFIG).is_file():
        raise ModelError(f"the target {name!r} has no {CONFIG}; give a folder with one, or an id ORG/NAME of the hub")
    config: PretrainedConfig = AutoConfig.from_pretrained(folder, trust_remote_code=False)
    return config


def any_config(options: RecordOptions) -> DFlashConfig | Eagle3Config:
    """The configuration of what a recording is to draft with; of the hub only that file is fetched."""
    fields = config_fields(options.draft_name)
    if is_adapter(fields):
        raise ModelError(
            "what a target that drafts for itself takes is measured, and not computed from configurations; give "
            "--dry-run sample"
        )
    head = eagle3_from_json(fields)
    if head is None:
        return drafter_config(options.draft_name, options.tap_offset, options.block)
    return head if options.block is None else head.with_block(options.block)


def drafter_config(name: str, tap_offset: str | None, block: int | None) -> DFlashConfig:
    """A drafter's configuration, with the layer numbers and block that were asked for; of the hub only that file.

    Args:
        name: of the drafter.
        tap_offset: one of `simlab.real_runner.tap_offset.CHOICES`, or None.
        block: slots of its block, the root's counted; None: as the checkpoint has it.
    """
    config = read_config(config_fields(name))
    offset = parse_tap_offset(tap_offset)
    config = config if offset is None else config.with_tap_offset(offset)
    return config if block is None else config.with_block(block)


def is_at_hand(name: str) -> bool:
    """Whether a checkpoint comes with simlab or is named by its place, so that nothing is fetched for it."""
    return name in packaged_checkpoints() or Path(name).exists() or name.endswith(".safetensors")


def config_fields(name: str) -> dict[str, object]:
    """The ``config.json`` of a checkpoint; of the hub only that file is fetched."""
    is_fetched = not is_at_hand(name) and is_hub_id(name)
    place = fetch("drafter", name, [CONFIG]).folder if is_fetched else find_drafter(name).folder
    return read_fields(config_file(place))
