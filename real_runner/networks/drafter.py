"""Drafter checkpoints on disk: ``config.json`` and safetensors beside it. No code of a checkpoint is run."""

from pathlib import Path

import torch
from torch import nn

from simlab.errors import ModelError
from simlab.real_runner.checkpoints.contents import config_file, packaged_checkpoints
from simlab.real_runner.checkpoints.fields import EMBEDDING, HEAD, IGNORED, MASK, OFFSETS
from simlab.real_runner.checkpoints.files import loaded_tensors, own_vocabulary, write_checkpoint
from simlab.real_runner.checkpoints.zlab import config_to_json
from simlab.real_runner.drafters.config import check_sizes
from simlab.real_runner.drafters.dflash import DFlashDrafter
from simlab.real_runner.networks.known import read_config, read_fields
from simlab.real_runner.networks.parts import checked_parts
from simlab.real_runner.targets.hub_files import ModelFiles, fetch_drafter, is_hub_id
from simlab.real_runner.targets.model import Target


def save_drafter(drafter: DFlashDrafter, folder: Path, dtype: torch.dtype = torch.bfloat16) -> None:
    """Write a checkpoint in the published layout; each file is written beside and renamed."""
    write_checkpoint(folder, drafter.state_dict(), dtype, config_to_json(drafter.config))


PACKAGED = "dflash-smollm2-135m"
"""The drafter that comes with simlab."""


def find_drafter(name: str) -> ModelFiles:
    """The files of a packaged drafter, head or scorer, of a local one, or of one fetched from the hub.

    Raises:
        ModelError: there is none of that name.
    """
    packaged = packaged_checkpoints()
    if name in packaged:
        return ModelFiles(packaged[name], "")
    if Path(name).is_dir() or name.endswith(".safetensors"):
        return ModelFiles(Path(name), "")
    if Path(name).is_file():
        raise ModelError(f"{name} is no safetensors file; simlab reads a drafter's weights from no other kind")
    if not is_hub_id(name):
        raise ModelError(
            f"the drafter {name!r} could not be found: there is nothing of that name; expected {PACKAGED!r}, a folder "
            "with config.json and model.safetensors, such a file beside its config.json, or a Hugging Face id such as "
            "ORG/NAME"
        )
    return fetch_drafter(name)


def load_drafter(folder: Path, dtype: torch.dtype, device: str = "cpu", tap_offset: int | None = None) -> DFlashDrafter:
    """Read a checkpoint, in any of the layouts.

    Args:
        folder: with ``config.json`` and the weights, or the one file with weights beside its ``config.json``.
        dtype: in which it runs.
        device: as torch names it.
        tap_offset: what to add to its layer numbers (see `DFlashConfig`); None: as its format has it.

    Raises:
        ModelError: files are missing or damaged, or the weights do not fit the configuration.
    """
    parts = checked_parts(folder)
    config, stored = parts.drafter, parts.drafter_tensors
    if config is None:
        # Its layout refuses it, in words of its own.
        config = read_config(read_fields(config_file(folder)))
    drafter = DFlashDrafter(config if tap_offset is None else config.with_tap_offset(tap_offset))
    tensors = loaded_tensors(
        folder, {name: one for name, one in stored.items() if name not in {*IGNORED, OFFSETS, MASK}}
    )
    embedding, head = tensors.pop(EMBEDDING, None), tensors.pop(HEAD, None)
    drafter.load_state_dict(tensors)
    if embedding is not None:
        drafter.embed_tokens = nn.Embedding.from_pretrained(embedding)
    drafter.vocabulary, drafter.lm_head = own_vocabulary(config, stored, head, folder)
    return drafter.to(device, dtype).eval().requires_grad_(False)


def check_fit(target: Target, drafter: DFlashDrafter) -> None:
    """Refuse a drafter that was made for another target."""
    check_sizes(drafter.config, target.name, target.num_layers, target.embedding.embedding_dim, target.vocab_size)
