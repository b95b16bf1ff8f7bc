"""A training run on disk: one file that holds everything needed to go on, there or in another run."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from simlab.errors import ModelError, TraceError
from simlab.real_runner.checkpoints.files import write_tensors
from simlab.real_runner.drafters.config import DFlashConfig
from simlab.real_runner.drafters.dflash import Attention, DFlashDrafter, Layer, RMSNorm
from simlab.real_runner.targets.model import Target, TargetConfig
from simlab.real_runner.train.trainer import CurvePoint, Trainer, point_of, row_of
from simlab.traces.format.documents import check_digest, json_fields, with_digest

# Where a drafter's training starts: from the target's own last layers.


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


STATE = "state.safetensors"
_NOTE = "training"


def save_state(trainer: Trainer, curve: Sequence[CurvePoint], folder: Path) -> None:
    """Weights, optimiser, step and curve in one file, written beside and renamed."""
    tensors: dict[str, Tensor] = {}
    for name, parameter in trainer.trained.named_parameters():
        tensors[f"weight.{name}"] = parameter.detach().cpu()
        for kind, value in trainer.optimiser.state.get(parameter, {}).items():
            tensors[f"{kind}.{name}"] = value.detach().cpu()
    note = {"step": trainer.step, "plan": plan_text(trainer), "curve": [row_of(point) for point in curve]}
    write_tensors(
        folder / STATE,
        {name: tensor.contiguous() for name, tensor in tensors.items()},
        (_NOTE, json.dumps(with_digest(note))),
    )


def plan_text(trainer: Trainer) -> str:
    """What must agree when a run is taken up again."""
    return json.dumps({"plan": asdict(trainer.plan), **trainer.settings}, sort_keys=True)


def load_state(trainer: Trainer, folder: Path) -> list[CurvePoint]:
    """Take up a run where it was saved; returns its curve so far.

    Raises:
        ModelError: the state is damaged, or of a run with another plan.
    """
    plan, step, curve, tensors = _read_state(folder, "start over in another --out")
    if plan != plan_text(trainer):
        raise ModelError(
            f"{folder} holds a training run with other settings; resume with the settings it began with, "
            "or choose another --out"
        )
    _restore(trainer, tensors)
    trainer.step = step
    return curve


def take_over(trainer: Trainer, folder: Path) -> None:
    """Begin with the float32 weights and the optimiser's moments that another run ended with."""
    *_, tensors = _read_state(folder, f"delete {folder / STATE} to go on from the weights alone")
    shapes = {name: tensor.shape for name, tensor in tensors.items() if name.startswith("weight.")}
    if shapes != {f"weight.{name}": parameter.shape for name, parameter in trainer.trained.named_parameters()}:
        raise ModelError(
            f"the training state in {folder} is not of the drafter beside it; delete {folder / STATE} to go on from "
            "the weights alone"
        )
    _restore(trainer, tensors)


def _read_state(folder: Path, remedy: str) -> tuple[str, int, list[CurvePoint], dict[str, Tensor]]:
    """What must agree, the step, the curve so far, and the tensors."""
    try:
        with safe_open(folder / STATE, framework="pt") as file:
            fields = json_fields(file.metadata()[_NOTE], STATE)
            check_digest(fields)
            curve = [point_of(row) for row in fields.objects("curve")]
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            return fields.text("plan"), fields.integer("step"), curve, tensors
    except (OSError, SafetensorError, KeyError, TypeError, ValueError, TraceError) as error:
        raise ModelError(f"the training state in {folder} cannot be read ({error}); {remedy}") from error


@torch.no_grad()
def _restore(trainer: Trainer, tensors: dict[str, Tensor]) -> None:
    for name, parameter in trainer.trained.named_parameters():
        parameter.copy_(tensors.pop(f"weight.{name}"))
        state = {}
        for kind in ("step", "exp_avg", "exp_avg_sq"):
            if f"{kind}.{name}" in tensors:
                value = tensors[f"{kind}.{name}"]
                state[kind] = value if kind == "step" else value.to(parameter.device)
        if state:
            trainer.optimiser.state[parameter] = state
