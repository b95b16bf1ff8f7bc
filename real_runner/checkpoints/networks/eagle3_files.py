"""EAGLE-3 heads on disk, in the released names of tensors; no code of a checkpoint is run."""

from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from simlab.arrays import read_only
from simlab.errors import ModelError
from simlab.real_runner.checkpoints.fields import EMBEDDING, HEAD, IGNORED, MASK, OFFSETS
from simlab.real_runner.checkpoints.files import checked_parts, loaded_tensors, write_json, write_tensors
from simlab.real_runner.checkpoints.networks.eagle3 import eagle3_to_json
from simlab.real_runner.checkpoints.weights import draft_ids
from simlab.real_runner.drafters.vocabulary import DraftVocabulary
from simlab.real_runner.heads.eagle3.head import Eagle3Config, Eagle3Head
from simlab.real_runner.targets.hub_files import CONFIG, WHOLE


def load_eagle3(place: Path, dtype: torch.dtype, device: str = "cpu") -> Eagle3Head:
    """Read an EAGLE-3 head.

    Args:
        place: the folder, or the one file with weights beside its ``config.json``.
        dtype: in which it runs.
        device: as torch names it.

    Raises:
        ModelError: files are missing or damaged, it is no such head, or the weights do not fit the configuration.
    """
    parts = checked_parts(place)
    config, stored = parts.head, parts.head_tensors
    if not isinstance(config, Eagle3Config):
        raise ModelError(f"{place} has no EAGLE-3 head; `simlab inspect {place}` says what it is")
    tensors = loaded_tensors(place, {name: stored[name] for name in stored if name not in {*IGNORED, OFFSETS, MASK}})
    embedding, lm_head = tensors.pop(EMBEDDING, None), tensors.pop(HEAD, None)
    head = Eagle3Head(config)
    head.load_state_dict(tensors)
    if embedding is not None:
        head.embed_tokens = nn.Embedding.from_pretrained(embedding)
    own = draft_ids(config, stored, place)
    if own is not None:
        ids, rising = own
        if not rising:
            order = np.argsort(ids)
            ids, lm_head = ids[order], None if lm_head is None else lm_head[torch.from_numpy(order)]
        head.vocabulary = DraftVocabulary(read_only(ids.astype(np.int32)), config.vocab_size)
    if lm_head is not None:
        head.lm_head = nn.Linear(config.hidden_size, len(lm_head), bias=False)
        head.lm_head.weight = nn.Parameter(lm_head)
    return head.to(device, dtype).eval().requires_grad_(False)


def save_eagle3(head: Eagle3Head, folder: Path, dtype: torch.dtype = torch.bfloat16) -> None:
    """Write a head in the released layout; each file is written beside and renamed.

    Args:
        head: to be written.
        folder: which is made.
        dtype: of the weights.
    """
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {name: one.detach().to("cpu", dtype).contiguous() for name, one in head.state_dict().items()}
    if head.vocabulary is not None:
        tensors |= _vocabulary(head.vocabulary)
    write_tensors(folder / WHOLE, tensors, ("format", "pt"))
    write_json(folder / CONFIG, eagle3_to_json(head.config))


def _vocabulary(own: DraftVocabulary) -> dict[str, Tensor]:
    """``d2t`` int64 ``[V_d]``, target id minus own id, and ``t2d`` bool ``[V]``."""
    ids = torch.from_numpy(own.target_ids.astype(np.int64))
    mask = torch.zeros(own.target_vocab_size, dtype=torch.bool)
    mask[ids] = True
    return {OFFSETS: ids - torch.arange(len(ids)), MASK: mask}
