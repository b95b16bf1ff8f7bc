"""What a recorder hands over for each sequence: plain numpy arrays, checked where they enter, and the ids they give.

Ids are hashes of decoded columns, whatever the shards and file bytes are. Each sequence has a digest of its own, so
that ids are made shard by shard in little memory.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from simlab.arrays import Bools, Floats, Ints, read_only
from simlab.draft import Prompt
from simlab.ids import content_id
from simlab.recorded import DraftRows, RecordedSequence

STOP_REASONS = ("stop", "length")


@dataclass(frozen=True, slots=True, eq=False)
class TokenRows:
    """The target's law at each emitted token ``j = 0 .. T-1`` (``W = min(16, vocabulary)``).

    Attributes:
        top_ids: int32 ``[T, W]``, the most probable tokens at temperature 1.
        top_log_probs: float32 ``[T, W]``, theirs, never rising.
        log_prob: float32 ``[T]``, of the emitted token at temperature 1.
        entropy: float32 ``[T]``, nats, at temperature 1.
        log_normaliser: float32 ``[T]``, log-sum-exp of the logits over the sampling temperature.
        decision_gap: float32 ``[T]``, how close the choice was; 0 is a tie, never negative.
    """

    top_ids: Ints
    top_log_probs: Floats
    log_prob: Floats
    entropy: Floats
    log_normaliser: Floats
    decision_gap: Floats

    def __post_init__(self) -> None:
        num = len(self.log_prob)
        width = self.top_ids.shape[-1]
        _check(self.top_ids, "top_ids", np.int32, (num, width))
        _check(self.top_log_probs, "top_log_probs", np.float32, (num, width))
        for name in ("log_prob", "entropy", "log_normaliser", "decision_gap"):
            _check(getattr(self, name), name, np.float32, (num,))
        _make_read_only(self)

    @classmethod
    def concatenated(cls, parts: Sequence["TokenRows"]) -> "TokenRows":
        """The rows of consecutive stretches of one text, at least one, put together in their order."""
        return cls(**{entry.name: _joined(parts, entry.name) for entry in fields(cls)})


@dataclass(frozen=True, slots=True, eq=False)
class DraftColumns:
    """One drafter's rows of one sequence, for each root ``t = 0 .. T-2`` and depth ``1 .. D``.

    Attributes:
        context_length: int32 ``[T - 1]``, prompt length + t.
        counts: int32 ``[T - 1, D]``, candidates kept, at least 1.
        ids: int32 ``[sum counts]``, in the order of row, depth, rank.
        log_probs: float32 ``[sum counts]``, on the grid.
        outside_log_mass: float32 ``[T - 1, D]``, log of the mass not kept, from -255 to 0.
        entropy: float32 ``[T - 1, D]``, nats, over the drafter's full vocabulary.
        true_rank: int32 ``[T - 1, D]``, kept or not; -1 outside the drafter's vocabulary.
        true_log_prob: float32 ``[T - 1, D]``, on the grid; for a kept token the number in
            ``log_probs``. Not looked at where the rank is -1.
        valid: bool ``[T - 1, D]``, False past the end of the text, where the two above are not
            looked at and are stored as null.
    """

    context_length: Ints
    counts: Ints
    ids: Ints
    log_probs: Floats
    outside_log_mass: Floats
    entropy: Floats
    true_rank: Ints
    true_log_prob: Floats
    valid: Bools

    def __post_init__(self) -> None:
        num, depth = self.counts.shape
        total = int(self.counts.sum(dtype=np.int64))
        _check(self.context_length, "context_length", np.int32, (num,))
        _check(self.counts, "counts", np.int32, (num, depth))
        _check(self.ids, "ids", np.int32, (total,))
        _check(self.log_probs, "log_probs", np.float32, (total,))
        for name in ("outside_log_mass", "entropy", "true_log_prob"):
            _check(getattr(self, name), name, np.float32, (num, depth))
        _check(self.true_rank, "true_rank", np.int32, (num, depth))
        _check(self.valid, "valid", np.bool_, (num, depth))
        if num and self.counts.min() < 1:
            raise ValueError("every depth of every row must keep at least one candidate")
        _make_read_only(self)

    @classmethod
    def empty(cls, depth: int) -> "DraftColumns":
        """Columns without a row, for a text of one token: no root, ``depth`` depths."""
        return cls(
            context_length=np.empty(0, np.int32),
            counts=np.empty((0, depth), np.int32),
            ids=np.empty(0, np.int32),
            log_probs=np.empty(0, np.float32),
            outside_log_mass=np.empty((0, depth), np.float32),
            entropy=np.empty((0, depth), np.float32),
            true_rank=np.empty((0, depth), np.int32),
            true_log_prob=np.empty((0, depth), np.float32),
            valid=np.empty((0, depth), np.bool_),
        )

    @classmethod
    def concatenated(cls, parts: Sequence["DraftColumns"]) -> "DraftColumns":
        """The rows of several parts of one text, one part after the other.

        Args:
            parts: at least one, all of as many depths.
        """
        return cls(**{entry.name: _joined(parts, entry.name) for entry in fields(cls)})

    @property
    def has_true_log_prob(self) -> Bools:
        """bool ``[T - 1, D]``, where ``true_log_prob`` is stored rather than null."""
        return self.valid & (self.true_rank >= 0)

    def rows(self) -> DraftRows:
        """The part that a replay reads."""
        ranks = np.where(self.valid, self.true_rank, -1).astype(np.int32)
        return DraftRows(self.ids, self.log_probs, self.counts, read_only(ranks), self.entropy)


@dataclass(frozen=True, slots=True, eq=False)
class SequenceRecord:
    """One text of the target with everything recorded along it.

    Attributes:
        index: its place in the trace, from 0.
        seed: of the noise that chose the tokens.
        text: int32 ``[T]``, stop token included.
        stop_reason: ``stop`` or ``length``.
        tokens: None where a reader was not asked for them; a writer needs them.
        drafts: by the name of the draft set.
    """

    index: int
    prompt: Prompt
    seed: int
    text: Ints
    stop_reason: str
    tokens: TokenRows | None = None
    drafts: Mapping[str, DraftColumns] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check(self.text, "text", np.int32, (len(self.text),))
        _check(self.prompt.token_ids, "prompt.token_ids", np.int32, (len(self.prompt.token_ids),))
        if len(self.text) < 1:
            raise ValueError("a recorded text has at least one token")
        if self.stop_reason not in STOP_REASONS:
            raise ValueError(f"stop_reason must be one of {STOP_REASONS}; got {self.stop_reason!r}")
        if self.tokens is not None and len(self.tokens.log_prob) != len(self.text):
            raise ValueError(f"expected {len(self.text)} token rows; got {len(self.tokens.log_prob)}")
        for name, draft in self.drafts.items():
            if len(draft.counts) != len(self.text) - 1:
                raise ValueError(f"expected {len(self.text) - 1} rows of {name!r}; got {len(draft.counts)}")

    def recorded(self, draft: str | None = None) -> RecordedSequence:
        """What a replay reads: the text, and the rows of one draft set if it is named."""
        rows = self.drafts[draft].rows() if draft is not None else None
        return RecordedSequence(self.index, self.prompt, self.text, self.stop_reason, rows)


def _check(array: npt.NDArray[np.generic], name: str, dtype: npt.DTypeLike, shape: tuple[int, ...]) -> None:
    if array.dtype != dtype or array.shape != shape:
        raise ValueError(f"{name} must be {np.dtype(dtype)} {list(shape)}; got {array.dtype} {list(array.shape)}")


def _joined(parts: Sequence[TokenRows] | Sequence[DraftColumns], name: str) -> npt.NDArray[Any]:
    return np.concatenate([getattr(part, name) for part in parts])


def _make_read_only(rows: TokenRows | DraftColumns) -> None:
    for entry in fields(rows):
        object.__setattr__(rows, entry.name, read_only(getattr(rows, entry.name)))


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
