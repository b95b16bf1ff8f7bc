"""Drafter checkpoints on disk: ``config.json`` and safetensors beside it. No code of a checkpoint is run."""

import json
import os
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor, nn

from simlab.arrays import read_only
from simlab.errors import ModelError
from simlab.real_runner.checkpoints.layouts import read_config
from simlab.real_runner.checkpoints.tensor_names import (
    BESIDE_THE_LAYERS,
    EMBEDDING,
    HEAD,
    IGNORED,
    MASK,
    OFFSETS,
    check_names,
)
from simlab.real_runner.checkpoints.zlab import config_to_json
from simlab.real_runner.drafters.dflash import DFlashDrafter
from simlab.real_runner.drafters.vocabulary import DraftVocabulary, vocabulary_of
from simlab.real_runner.targets.hub_files import (
    CONFIG,
    WHOLE,
    ModelFiles,
    fetch_drafter,
    files_digest,
    is_hub_id,
    weight_names,
)


def save_drafter(drafter: DFlashDrafter, folder: Path, dtype: torch.dtype = torch.bfloat16) -> None:
    """Write a checkpoint in the published layout; each file is written beside and renamed."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {name: tensor.detach().to("cpu", dtype).contiguous() for name, tensor in drafter.state_dict().items()}
    write_tensors(folder / "model.safetensors", tensors, ("format", "pt"))
    write_json(folder / "config.json", config_to_json(drafter.config))


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
_PARTS = "model-*-of-*.safetensors"


def find_drafter(name: str) -> ModelFiles:
    """The files of the packaged drafter, of a local one, or of one fetched from the hub.

    Raises:
        ModelError: there is none of that name.
    """
    if name == PACKAGED:
        return ModelFiles(Path(str(files("simlab.real_runner"))) / "data" / PACKAGED, "")
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


def checkpoint_files(place: Path) -> tuple[Path, ...]:
    """``config.json`` and the files with weights, whether or not they are there.

    Args:
        place: the folder, or the one file with weights beside its ``config.json``.

    Raises:
        ModelError: the index cannot be read.
    """
    if place.suffix == ".safetensors":
        return place.parent / CONFIG, place
    parts = sorted(place.glob(_PARTS))
    if parts and not (place / WHOLE).is_file():
        return place / CONFIG, *parts
    return place / CONFIG, *(place / name for name in weight_names(place))


def checkpoint_digest(place: Path) -> str:
    """sha256 over the contents of a checkpoint's files, in order.

    Raises:
        ModelError: the index cannot be read.
    """
    return files_digest(checkpoint_files(place))


def read_fields(config: Path) -> dict[str, object]:
    """The JSON object of a ``config.json``.

    Raises:
        ModelError: it is missing, or no JSON object.
    """
    try:
        fields = json.loads(config.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise _lacking(config) from error
    except (ValueError, OSError) as error:
        raise _unreadable(config.parent, error) from error
    if not isinstance(fields, dict):
        raise ModelError(f"the drafter's config.json in {config.parent} is not a JSON object; fetch or train it again")
    return fields


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
    config_file, *weights = checkpoint_files(folder)
    config = read_config(read_fields(config_file))
    tensors = _read_tensors(folder, weights)
    drafter = DFlashDrafter(config if tap_offset is None else config.with_tap_offset(tap_offset))
    own = {name: tensors.pop(name) for name in BESIDE_THE_LAYERS if name in tensors}
    layers = {name: tensor for name, tensor in tensors.items() if name not in IGNORED}
    check_names(config, {*layers, *own}, folder)
    try:
        drafter.load_state_dict(layers)
    except RuntimeError as error:
        reason = str(error).strip().splitlines()[-1].strip()
        raise ModelError(f"the drafter's weights in {folder} do not fit its config.json: {reason}") from error
    _add_own(drafter, own, folder)
    return drafter.to(device, dtype).eval().requires_grad_(False)


def _read_tensors(folder: Path, weights: Sequence[Path]) -> dict[str, Tensor]:
    tensors: dict[str, Tensor] = {}
    for path in weights:
        if not path.is_file():
            raise _lacking(path)
        try:
            tensors |= load_file(path)
        except (ValueError, SafetensorError, OSError) as error:
            raise _unreadable(folder, error) from error
    return tensors


def _lacking(path: Path) -> ModelError:
    return ModelError(
        f"the drafter folder {path.parent} has no {path.name}; expected config.json and model.safetensors"
    )


def _unreadable(folder: Path, error: Exception) -> ModelError:
    return ModelError(f"the drafter in {folder} cannot be read ({error}); fetch or train it again")


def _add_own(drafter: DFlashDrafter, own: dict[str, Tensor], folder: Path) -> None:
    """Give a drafter what its checkpoint holds beside the layers.

    Raises:
        ModelError: sizes differ from those of its configuration, or the map of its vocabulary contradicts it.
    """
    config = drafter.config
    size = config.draft_vocab_size or config.vocab_size
    embedding, head = own.get(EMBEDDING), own.get(HEAD)
    for name, tensor, rows in ((EMBEDDING, embedding, config.vocab_size), (HEAD, head, size)):
        if tensor is not None and tuple(tensor.shape) != (rows, config.hidden_size):
            raise ModelError(
                f"{name} in {folder} is {list(tensor.shape)}; its config.json makes it {[rows, config.hidden_size]}"
            )
    offsets = own.get(OFFSETS)
    if config.draft_vocab_size is None and offsets is not None and (len(offsets) != size or bool(offsets.any())):
        raise ModelError(
            f"the drafter in {folder} holds, beside those of DFlash, a d2t for {len(offsets)} tokens, and its "
            "config.json names no draft_vocab_size; fetch it again"
        )
    if embedding is not None:
        drafter.embed_tokens = nn.Embedding.from_pretrained(embedding)
    if config.draft_vocab_size is not None:
        assert head is not None
        ids, rising = vocabulary_of(offsets, own.get(MASK), size, config.vocab_size)
        if not rising:
            ids, order = ids.sort()
            head = head[order]
        drafter.vocabulary = DraftVocabulary(read_only(ids.to(torch.int32).numpy()), config.vocab_size)
    if head is not None:
        drafter.lm_head = nn.Linear(config.hidden_size, size, bias=False)
        drafter.lm_head.weight = nn.Parameter(head)
