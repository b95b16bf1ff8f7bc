"""Routers' networks on disk; no code of a checkpoint is run."""

from pathlib import Path

import torch

from simlab.errors import ModelError
from simlab.real_runner.checkpoints.files import checked_parts, loaded_tensors, write_json, write_tensors
from simlab.real_runner.checkpoints.networks.router import router_to_json
from simlab.real_runner.heads.router.config import RouterConfig
from simlab.real_runner.heads.router.network import RouterNetwork
from simlab.real_runner.targets.hub_files import CONFIG, WHOLE


def load_router(place: Path, device: str = "cpu") -> RouterNetwork:
    """Read a router's network, float32.

    Args:
        place: the folder, or the one file with weights beside its ``config.json``.
        device: as torch names it.

    Raises:
        ModelError: files are missing or damaged, it is no such network, or the weights do not fit the configuration.
    """
    parts = checked_parts(place)
    if not isinstance(parts.head, RouterConfig):
        raise ModelError(f"{place} has no router's network; `simlab inspect {place}` says what it is")
    network = RouterNetwork(parts.head)
    network.load_state_dict(loaded_tensors(place, parts.head_tensors))
    return network.float().to(device).eval().requires_grad_(False)


def save_router(network: RouterNetwork, folder: Path) -> None:
    """Write a network, float32; each file is written beside and renamed.

    Args:
        network: to be written.
        folder: which is made.
    """
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {
        name: tensor.detach().to("cpu", torch.float32).contiguous() for name, tensor in network.state_dict().items()
    }
    write_tensors(folder / WHOLE, tensors, ("format", "pt"))
    write_json(folder / CONFIG, router_to_json(network.config))
