"""Weights and JSON of checkpoints on disk, as torch writes and reads them; no code of a checkpoint is run."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from simlab.arrays import read_only
from simlab.errors import ModelError
from simlab.real_runner.checkpoints.fields import EMBEDDING, HEAD, IGNORED, MASK, OFFSETS
from simlab.real_runner.checkpoints.weights import StoredTensor, draft_ids
from simlab.real_runner.drafters.dense import Fitted, MadeFor
from simlab.real_runner.drafters.vocabulary import DraftVocabulary
from simlab.real_runner.targets.hub_files import CONFIG, WHOLE
from simlab.traces.format.files import write_beside


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


def loaded_tensors(folder: Path, wanted: Mapping[str, StoredTensor]) -> dict[str, Tensor]:
    """Some tensors of a checkpoint under the names that they are asked for by, file after file.

    Raises:
        ModelError: a file cannot be read.
    """
    tensors: dict[str, Tensor] = {}
    try:
        for path in dict.fromkeys(tensor.file for tensor in wanted.values()):
            with safe_open(path, framework="pt") as file:
                tensors |= {
                    name: file.get_tensor(tensor.name) for name, tensor in wanted.items() if tensor.file == path
                }
    except (ValueError, SafetensorError, OSError) as error:
        raise ModelError(f"the weights in {folder} cannot be read ({error}); fetch or train it again") from error
    return tensors


def write_checkpoint(
    folder: Path,
    tensors: Mapping[str, Tensor],
    dtype: torch.dtype,
    config: object,
    names: tuple[str, str] = (WHOLE, CONFIG),
) -> None:
    """Write a checkpoint; each file is written beside and renamed.

    Args:
        folder: which is made.
        tensors: by the names that the file is to have.
        dtype: of the weights.
        config: the fields of the ``config.json``.
        names: of the two files.
    """
    folder.mkdir(parents=True, exist_ok=True)
    whole = {name: _stored(tensor, dtype) for name, tensor in tensors.items()}
    write_tensors(folder / names[0], whole, ("format", "pt"))
    write_json(folder / names[1], config)


def _stored(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """A tensor as it is written: weights in one dtype, and whole numbers as they are."""
    return tensor.detach().to("cpu", dtype if tensor.is_floating_point() else tensor.dtype).contiguous()


class _Loaded(Fitted[MadeFor], Protocol[MadeFor]):
    """What drafts for one target, as far as it is loaded."""

    def load_state_dict(self, tensors: Mapping[str, Any], /) -> object: ...


def load_weights(drafter: _Loaded[MadeFor], location: Path, stored: Mapping[str, StoredTensor]) -> None:
    """Read a drafter's weights, and its own embedding, tokens and output head, where it has them.

    Its tokens are put in the order of the target's ids.

    Args:
        drafter: made from the configuration of the checkpoint.
        location: where that lies.
        stored: its tensors by name.
    """
    tensors = loaded_tensors(location, {name: stored[name] for name in stored if name not in {*IGNORED, OFFSETS, MASK}})
    embedding, lm_head = tensors.pop(EMBEDDING, None), tensors.pop(HEAD, None)
    drafter.load_state_dict(tensors)
    if embedding is not None:
        drafter.embed_tokens = nn.Embedding.from_pretrained(embedding)
    own = draft_ids(drafter.config, stored, location)
    if own is not None:
        ids, rising = own
        if not rising:
            order = np.argsort(ids)
            ids, lm_head = ids[order], None if lm_head is None else lm_head[torch.from_numpy(order)]
        drafter.vocabulary = DraftVocabulary(read_only(ids.astype(np.int32)), drafter.config.vocab_size)
    if lm_head is not None:
        drafter.lm_head = nn.Linear(lm_head.shape[1], len(lm_head), bias=False)
        drafter.lm_head.weight = nn.Parameter(lm_head)
