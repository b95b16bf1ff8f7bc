"""The ``adapter_config.json`` of a gated adapter, in the layout of PEFT; nothing here needs torch.

PEFT's fields say what its own code would run: a plain LoRA of these products. What makes it gated, whose it is and how
many masks it has stands in fields of simlab's own, which PEFT does not know.
"""

from collections.abc import Iterator, Mapping
from typing import NoReturn

from simlab.errors import ModelError
from simlab.real_runner.adapters.config import MODULES, AdapterConfig
from simlab.real_runner.checkpoints.fields import integer, number
from simlab.real_runner.checkpoints.layout import Fields, Layout

ADAPTER_CONFIG, ADAPTER_WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
"""The files of it, as PEFT names them."""

MASKS = "mask_embeddings"
"""The tensor of the masks' embeddings."""

PREFIX = "base_model.model.model."
"""What stands before the names of a decoder's modules."""

_FIELD, _OWN = "simlab_gated", "simlab"


def is_adapter(fields: Fields) -> bool:
    """Whether these are the fields of a gated adapter."""
    return _FIELD in fields


def adapter_from_json(fields: Fields) -> AdapterConfig | None:
    """The adapter of a checkpoint; None where it is another one."""
    if not is_adapter(fields):
        return None
    if fields[_FIELD] is not True:
        raise ModelError(
            f"this adapter has {_FIELD} {fields[_FIELD]}, and changed at all rows it is another model; merge it"
        )
    own = fields.get(_OWN)
    if not isinstance(own, Mapping) or not isinstance(own.get("target_digest"), str):
        raise ModelError(f"this adapter's {_OWN} does not say whose it is; train it again")
    modules = fields.get("target_modules")
    if not isinstance(modules, list) or sorted(map(str, modules)) != sorted(_short_names()):
        raise ModelError(f"an adapter changes {', '.join(_short_names())} of every layer; this one {modules}")
    unusual = [name for name in ("use_rslora", "use_dora", "fan_in_fan_out") if fields.get(name)]
    if unusual or fields.get("bias", "none") != "none":
        raise ModelError(f"this adapter asks for {', '.join(unusual) or 'biases'}, which simlab does not run")
    return AdapterConfig(
        rank=integer(fields.get("r")),
        alpha=number(fields.get("lora_alpha")),
        num_masks=integer(own.get("num_masks")),
        target_digest=str(own["target_digest"]),
        num_layers=integer(own.get("num_layers")),
        hidden_size=integer(own.get("hidden_size")),
        vocab_size=integer(own.get("vocab_size")),
    )


def adapter_to_json(config: AdapterConfig, target: str) -> dict[str, object]:
    """The fields of an adapter.

    Args:
        config: of it.
        target: the name of its target.
    """
    return {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": target,
        "r": config.rank,
        "lora_alpha": config.alpha,
        "lora_dropout": 0.0,
        "bias": "none",
        "inference_mode": True,
        "target_modules": list(_short_names()),
        _FIELD: True,
        _OWN: {
            name: getattr(config, name)
            for name in ("num_masks", "target_digest", "num_layers", "hidden_size", "vocab_size")
        },
    }


def adapter_tensor_names(config: AdapterConfig) -> Iterator[str]:
    """The tensors that every adapter of a configuration has, as they are named on disk."""
    yield MASKS
    yield from (f"{PREFIX}{name}.lora_{side}.weight" for name in config.module_names() for side in "AB")


def _short_names() -> tuple[str, ...]:
    return tuple(name.rpartition(".")[2] for name in MODULES)


def no_block_drafter(fields: Fields) -> NoReturn:
    """Refuse an adapter where a DFlash drafter is wanted."""
    raise ModelError(
        "this is an adapter with which a target drafts for itself, and no DFlash drafter, which is wanted here; record "
        "with it alone, `simlab record --draft CHECKPOINT`"
    )


ADAPTER = Layout(
    name="peft",
    field=_FIELD,
    recognises=is_adapter,
    reads=no_block_drafter,
    named_target=lambda fields: None if (name := fields.get("base_model_name_or_path")) is None else str(name),
    described=lambda fields: "PEFT, gated",
    tap_offset=None,
    counting="",
)
