"""A training run on disk: one file that holds everything needed to go on, there or in another run."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from simlab.errors import ModelError, TraceError
from simlab.real_runner.checkpoints.files import write_tensors
from simlab.real_runner.train.trainer import CurvePoint, Trainer, point_of, row_of
from simlab.traces.format.documents import check_digest, json_fields, with_digest

STATE = "state.safetensors"
_NOTE = "training"


@dataclass(frozen=True, slots=True)
class _Note:
    """What a state says beside its tensors."""

    plan: str
    step: int
    curve: tuple[CurvePoint, ...]


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
    note, tensors = _read_state(folder, "start over in another --out")
    if note.plan != plan_text(trainer):
        raise ModelError(
            f"{folder} holds a training run with other settings; resume with the settings it began with, "
            "or choose another --out"
        )
    _restore(trainer, tensors)
    trainer.step = note.step
    return list(note.curve)


def take_over(trainer: Trainer, folder: Path) -> None:
    """Begin with the float32 weights and the optimiser's moments that another run ended with."""
    _, tensors = _read_state(folder, f"delete {folder / STATE} to go on from the weights alone")
    shapes = {name: tensor.shape for name, tensor in tensors.items() if name.startswith("weight.")}
    if shapes != {f"weight.{name}": parameter.shape for name, parameter in trainer.trained.named_parameters()}:
        raise ModelError(
            f"the training state in {folder} is not of the drafter beside it; delete {folder / STATE} to go on from "
            "the weights alone"
        )
    _restore(trainer, tensors)


def _read_state(folder: Path, remedy: str) -> tuple[_Note, dict[str, Tensor]]:
    try:
        with safe_open(folder / STATE, framework="pt") as file:
            fields = json_fields(file.metadata()[_NOTE], STATE)
            check_digest(fields)
            note = _Note(fields.text("plan"), fields.integer("step"), tuple(map(point_of, fields.objects("curve"))))
            return note, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
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
