"""Ids of what a trace holds: hashes of decoded columns, whatever the shards and file bytes are.

Each sequence has a digest of its own, so that ids are made shard by shard in little memory.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import fields

import numpy as np
import numpy.typing as npt

from simlab.ids import content_id
from simlab.traces.format.records import DraftColumns, SequenceRecord


def text_digest(record: SequenceRecord) -> str:
    """sha256 of one sequence: its prompt, its text, and the target's rows."""
    if record.tokens is None:
        raise ValueError("the digest of a text covers its token rows; read them too")
    prompt = record.prompt
    digest = hashlib.sha256()
    facts = [record.index, prompt.prompt_id, prompt.dataset, prompt.turn, prompt.sample, record.seed]
    digest.update(content_id([*facts, record.stop_reason]).encode())
    add_array(digest, "prompt_token_ids", prompt.token_ids)
    add_array(digest, "text_token_ids", record.text)
    for entry in fields(record.tokens):
        add_array(digest, entry.name, getattr(record.tokens, entry.name))
    return digest.hexdigest()


def draft_digest(draft: DraftColumns) -> str:
    """sha256 of one drafter's rows of one sequence; nulls count as rank -1 and log-prob 0."""
    digest = hashlib.sha256()
    nulled = {
        "true_rank": np.where(draft.valid, draft.true_rank, -1).astype(np.int32),
        "true_log_prob": np.where(draft.has_true_log_prob, draft.true_log_prob, 0).astype(np.float32),
    }
    for entry in fields(draft):
        add_array(digest, entry.name, nulled.get(entry.name, getattr(draft, entry.name)))
    return digest.hexdigest()


def text_id(digests: Sequence[str]) -> str:
    """The id of the texts and the target's rows, from the digests of all sequences in order."""
    return content_id({"text": list(digests)})


def draft_id(text: str, producer_digest: str, digests: Sequence[str]) -> str:
    """The id of a draft set, from the text's id, the drafter's digest and those of all sequences."""
    return content_id({"text_id": text, "producer": producer_digest, "rows": list(digests)})


def add_array(digest: "hashlib._Hash", name: str, array: npt.NDArray[np.generic]) -> None:
    """Add name, dtype, shape, and the elements in row order, little-endian."""
    digest.update(f"{name} {array.dtype.name} {list(array.shape)}\n".encode())
    digest.update(np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<")).data)
