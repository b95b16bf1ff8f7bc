"""Drafter checkpoints on disk: ``config.json`` and ``model.safetensors``."""

import json
import os
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor

from simlab.errors import ModelError
from simlab.real_runner.dflash import DFlashDrafter
from simlab.real_runner.dflash_config import config_from_json


def save_drafter(drafter: DFlashDrafter, folder: Path, dtype: torch.dtype = torch.bfloat16) -> None:
    """Write a checkpoint in the published layout; each file is written beside and renamed."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {name: tensor.detach().to("cpu", dtype).contiguous() for name, tensor in drafter.state_dict().items()}
    write_tensors(folder / "model.safetensors", tensors, ("format", "pt"))
    write_json(folder / "config.json", drafter.config.to_json())


def write_tensors(path: Path, tensors: dict[str, Tensor], note: tuple[str, str] | None = None) -> None:
    """Write a safetensors file beside the path and rename it into place.

    note: one name and text for the header. One only: safetensors writes several in no fixed order,
    and the same content would have other bytes.
    """
    _write(path, save(tensors, None if note is None else dict([note])))


def write_json(path: Path, value: object) -> None:
    """Write readable JSON beside the path and rename it into place."""
    write_text(path, json.dumps(value, indent=1) + "\n")


def write_text(path: Path, text: str) -> None:
    """Write text beside the path and rename it into place."""
    _write(path, text.encode())


def _write(path: Path, content: bytes) -> None:
    half = path.with_name(path.name + ".partial")
    with half.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    half.rename(path)


PACKAGED = "dflash-smollm2-135m"


@dataclass(frozen=True, slots=True)
class FoundDrafter:
    """Where a drafter's files lie, and the revision they are of (empty for a folder)."""

    folder: Path
    revision: str


def find_drafter(name: str) -> FoundDrafter:
    """The folder of the packaged drafter, of a local one, or of one fetched from the hub.

    Raises:
        ModelError: there is none of that name.
    """
    if name == PACKAGED:
        return FoundDrafter(Path(__file__).parent / "data" / PACKAGED, "")
    if Path(name).is_dir():
        return FoundDrafter(Path(name), "")
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError

    try:
        folder = Path(snapshot_download(name, allow_patterns=["config.json", "model.safetensors"]))
    except (OSError, HFValidationError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        raise ModelError(
            f"the drafter {name!r} could not be found ({reason}); expected {PACKAGED!r}, a folder with config.json "
            "and model.safetensors, or a Hugging Face id"
        ) from error
    return FoundDrafter(folder, folder.name)


def load_drafter(folder: Path, dtype: torch.dtype, device: str = "cpu") -> DFlashDrafter:
    """Read a checkpoint folder.

    Raises:
        ModelError: files are missing or damaged, or the weights do not fit the configuration.
    """
    try:
        fields = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        tensors = load_file(folder / "model.safetensors")
    except FileNotFoundError as error:
        raise ModelError(
            f"the drafter folder {folder} has no {Path(error.filename or 'model.safetensors').name}; "
            "expected config.json and model.safetensors"
        ) from error
    except (ValueError, SafetensorError, OSError) as error:
        raise ModelError(f"the drafter in {folder} cannot be read ({error}); fetch or train it again") from error
    if not isinstance(fields, dict):
        raise ModelError(f"the drafter's config.json in {folder} is not a JSON object; fetch or train it again")
    drafter = DFlashDrafter(config_from_json(fields))
    _check_names(set(drafter.state_dict()), set(tensors), folder)
    try:
        drafter.load_state_dict(tensors)
    except RuntimeError as error:
        reason = str(error).strip().splitlines()[-1].strip()
        raise ModelError(f"the drafter's weights in {folder} do not fit its config.json: {reason}") from error
    return drafter.to(device, dtype).eval().requires_grad_(False)


def _check_names(expected: set[str], found: set[str], folder: Path) -> None:
    missing, foreign = sorted(expected - found), sorted(found - expected)
    if missing or foreign:
        shown = ", ".join((missing or foreign)[:3])
        what = "lacks" if missing else "holds, beside those of DFlash,"
        raise ModelError(f"the drafter in {folder} {what} {shown}; simlab runs plain DFlash checkpoints only")
