"""Drafter checkpoints on disk: ``config.json`` and safetensors beside it. No code of a checkpoint is run."""

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from simlab.arrays import read_only
from simlab.errors import ModelError
from simlab.real_runner.adapters.config import AdapterConfig
from simlab.real_runner.checkpoints.contents import (
    checkpoint_digest,
    config_file,
    packaged_checkpoints,
    read_fields,
    stored_tensors,
)
from simlab.real_runner.checkpoints.fields import EMBEDDING, HEAD, IGNORED, MASK, OFFSETS
from simlab.real_runner.checkpoints.networks.adapter import no_block_drafter
from simlab.real_runner.checkpoints.networks.eagle3 import no_drafter
from simlab.real_runner.checkpoints.networks.router import no_drafter_but_router
from simlab.real_runner.checkpoints.networks.taps import ScorerConfig, scorer_to_json
from simlab.real_runner.checkpoints.networks.treeflash import (
    HEAD_PREFIX,
    HeadConfig,
    head_to_json,
)
from simlab.real_runner.checkpoints.parts import CheckpointParts, parts_of
from simlab.real_runner.checkpoints.weights import (
    StoredTensor,
    draft_ids,
)
from simlab.real_runner.checkpoints.zlab import config_to_json
from simlab.real_runner.drafters.dense import Outputs
from simlab.real_runner.drafters.dflash import DFlashDrafter
from simlab.real_runner.drafters.eagle3_config import Eagle3Config
from simlab.real_runner.drafters.vocabulary import DraftVocabulary
from simlab.real_runner.heads.router.config import RouterConfig
from simlab.real_runner.heads.taps import TapsScorer
from simlab.real_runner.heads.taps_pool import PoolReach
from simlab.real_runner.heads.treeflash import TreeFlashHead
from simlab.real_runner.targets.hub_files import CONFIG, WHOLE, ModelFiles, fetch_drafter, is_hub_id
from simlab.traces.format.files import write_beside


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
    content = save(tensors, None if note is None else dict([note]))
    write_beside(path, lambda file: file.write(content))


def write_json(path: Path, value: object) -> None:
    """Write readable JSON beside the path and rename it into place."""
    write_text(path, json.dumps(value, indent=1) + "\n")


def write_text(path: Path, text: str) -> None:
    """Write text beside the path and rename it into place."""
    write_beside(path, lambda file: file.write(text.encode()))


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
    if isinstance(parts.head, Eagle3Config):
        no_drafter({})
    if isinstance(parts.head, AdapterConfig):
        no_block_drafter({})
    if isinstance(parts.head, RouterConfig):
        no_drafter_but_router({})
    if config is None:
        raise ModelError(
            f"{folder} holds a head or scorer alone, which drafts beside the drafter that it was trained for; name "
            "that drafter"
        )
    drafter = DFlashDrafter(config if tap_offset is None else config.with_tap_offset(tap_offset))
    tensors = loaded_tensors(
        folder, {name: one for name, one in stored.items() if name not in {*IGNORED, OFFSETS, MASK}}
    )
    embedding, head = tensors.pop(EMBEDDING, None), tensors.pop(HEAD, None)
    drafter.load_state_dict(tensors)
    if embedding is not None:
        drafter.embed_tokens = nn.Embedding.from_pretrained(embedding)
    own = draft_ids(config, stored, folder)
    if own is not None:
        assert head is not None
        ids, rising = own
        if not rising:
            order = np.argsort(ids)
            ids, head = ids[order], head[torch.from_numpy(order)]
        drafter.vocabulary = DraftVocabulary(read_only(ids.astype(np.int32)), config.vocab_size)
    if head is not None:
        drafter.lm_head = nn.Linear(config.hidden_size, len(head), bias=False)
        drafter.lm_head.weight = nn.Parameter(head)
    return drafter.to(device, dtype).eval().requires_grad_(False)


def load_head(place: Path, drafter: Outputs, digest: str, dtype: torch.dtype, device: str = "cpu") -> TreeFlashHead:
    """Read a first-order head, alone or beside the drafter that it was released with.

    Args:
        place: as `load_drafter` takes it.
        drafter: which the head is to correct.
        digest: `checkpoint_digest` of that drafter's checkpoint.
        dtype: in which it runs.
        device: as torch names it.

    Raises:
        ModelError: files are missing or damaged, there is no head, or it belongs to another drafter.
    """
    parts = checked_parts(place)
    if not isinstance(parts.head, HeadConfig):
        raise ModelError(f"{place} has no head: it is a drafter alone, whose candidates stand in its draft set")
    if (parts.head.extends or checkpoint_digest(place)) != digest:
        own = "the drafter beside it" if parts.head.extends is None else f"the drafter of sha256 {parts.head.extends}"
        raise _foreign("head", place, own, digest)
    if parts.head.hidden_size != drafter.config.hidden_size:
        raise ModelError(
            f"the head in {place} is {parts.head.hidden_size} wide and its drafter {drafter.config.hidden_size}; train "
            "it again"
        )
    head = TreeFlashHead(parts.head.hidden_size, parts.head.inner_size)
    head.load_state_dict(loaded_tensors(place, parts.head_tensors))
    return head.to(device, dtype).eval().requires_grad_(False)


def save_head(head: TreeFlashHead, folder: Path, digest: str, dtype: torch.dtype = torch.bfloat16) -> None:
    """Write a head alone; each file is written beside and renamed.

    Args:
        head: to be written.
        folder: which is made.
        digest: `checkpoint_digest` of its drafter's checkpoint.
        dtype: of the weights.
    """
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {
        HEAD_PREFIX + name: tensor.detach().to("cpu", dtype).contiguous() for name, tensor in head.state_dict().items()
    }
    write_tensors(folder / WHOLE, tensors, ("format", "pt"))
    write_json(folder / CONFIG, head_to_json(HeadConfig(head.hidden_size, head.inner_size, digest)))


def load_scorer(place: Path, drafter: DFlashDrafter, digest: str, device: str = "cpu") -> tuple[TapsScorer, PoolReach]:
    """Read a TAPS scorer, float32, and of which pools it was trained.

    Args:
        place: as `load_drafter` takes it.
        drafter: whose candidates it is to score.
        digest: `checkpoint_digest` of that drafter's checkpoint.
        device: as torch names it.

    Raises:
        ModelError: files are missing or damaged, there is no scorer, or it belongs to another drafter.
    """
    parts = checked_parts(place)
    config = parts.head
    if not isinstance(config, ScorerConfig):
        raise ModelError(f"{place} has no TAPS scorer; `simlab inspect {place}` says what it is")
    if config.extends != digest:
        raise _foreign("scorer", place, f"the drafter of sha256 {config.extends}", digest)
    theirs = drafter.config.hidden_size, drafter.config.depth
    if (config.sizes.hidden_size, config.sizes.depth) != theirs:
        raise ModelError(
            f"the scorer in {place} is {config.sizes.hidden_size} wide and {config.sizes.depth} deep, and its drafter "
            f"{theirs[0]} and {theirs[1]}; train it again"
        )
    scorer = TapsScorer(config.sizes)
    scorer.load_state_dict(loaded_tensors(place, parts.head_tensors))
    return scorer.float().to(device).eval().requires_grad_(False), config.reach


def save_scorer(scorer: TapsScorer, folder: Path, digest: str, reach: PoolReach) -> None:
    """Write a scorer, float32; each file is written beside and renamed.

    Args:
        scorer: to be written.
        folder: which is made.
        digest: `checkpoint_digest` of its drafter's checkpoint.
        reach: of the pools that it was trained on.
    """
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {
        name: tensor.detach().to("cpu", torch.float32).contiguous() for name, tensor in scorer.state_dict().items()
    }
    write_tensors(folder / WHOLE, tensors, ("format", "pt"))
    write_json(folder / CONFIG, scorer_to_json(ScorerConfig(scorer.sizes, reach, digest)))


def _foreign(what: str, place: Path, own: str, digest: str) -> ModelError:
    return ModelError(
        f"the {what} in {place} belongs to {own}, and the drafter here has the sha256 {digest}; give that drafter, "
        f"or train a {what} for this one"
    )


def checked_parts(place: Path) -> CheckpointParts:
    """What a checkpoint consists of, seen to fit its configuration."""
    parts = parts_of(read_fields(config_file(place)), stored_tensors(place))
    parts.check(place)
    return parts


def loaded_tensors(folder: Path, wanted: Mapping[str, StoredTensor]) -> dict[str, Tensor]:
    """Some tensors of a checkpoint under the names that they are asked for by, file after file.

    Raises:
        ModelError: a file cannot be read.
    """
    tensors: dict[str, Tensor] = {}
    try:
        for path in dict.fromkeys(one.file for one in wanted.values()):
            with safe_open(path, framework="pt") as file:
                tensors |= {name: file.get_tensor(one.name) for name, one in wanted.items() if one.file == path}
    except (ValueError, SafetensorError, OSError) as error:
        raise ModelError(f"the weights in {folder} cannot be read ({error}); fetch or train it again") from error
    return tensors
