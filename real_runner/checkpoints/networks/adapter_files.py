"""Gated adapters on disk, as PEFT lays them out; no code of a checkpoint is run."""

from pathlib import Path

import torch

from simlab.errors import ModelError
from simlab.real_runner.adapters.config import AdapterConfig
from simlab.real_runner.adapters.gated import GatedAdapter
from simlab.real_runner.checkpoints.files import checked_parts, loaded_tensors, write_json, write_tensors
from simlab.real_runner.checkpoints.networks.adapter import (
    ADAPTER_CONFIG,
    ADAPTER_WEIGHTS,
    MASKS,
    PREFIX,
    adapter_to_json,
)
from simlab.real_runner.targets.model import Target


def load_adapter(place: Path, target: Target) -> GatedAdapter:
    """Read an adapter, in the dtype of its target and where that is.

    Args:
        place: the folder.
        target: whose it is to be.

    Raises:
        ModelError: files are missing or damaged, it is no adapter, or another target's.
    """
    parts = checked_parts(place)
    config = parts.head
    if not isinstance(config, AdapterConfig):
        raise ModelError(f"{place} has no adapter of a target; `simlab inspect {place}` says what it is")
    adapter = GatedAdapter(config, target)
    try:
        adapter.load_state_dict(
            {_own_name(name): one for name, one in loaded_tensors(place, parts.head_tensors).items()}
        )
    except RuntimeError as error:
        reason = str(error).strip().splitlines()[-1].strip()
        raise ModelError(f"the tensors in {place} are not of an adapter of {target.name} ({reason})") from error
    return adapter.to(target.device, target.dtype).eval().requires_grad_(False)


def save_adapter(adapter: GatedAdapter, target: str, folder: Path, dtype: torch.dtype = torch.bfloat16) -> None:
    """Write an adapter; each file is written beside and renamed.

    Args:
        adapter: to be written.
        target: the name of its target.
        folder: which is made.
        dtype: of the weights.
    """
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {
        name if name == MASKS else PREFIX + name: one.detach().to("cpu", dtype).contiguous()
        for name, one in adapter.state_dict().items()
    }
    write_tensors(folder / ADAPTER_WEIGHTS, tensors, ("format", "pt"))
    write_json(folder / ADAPTER_CONFIG, adapter_to_json(adapter.config, target))


def _own_name(name: str) -> str:
    return name.removeprefix(PREFIX)
