"""Records to polars columns and back."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from simlab.arrays import Bools, Floats, Ints, read_only
from simlab.draft import Prompt
from simlab.ids import content_id
from simlab.recorded import DraftRows, RecordedSequence
from simlab.traces.format.schema import draft_schema, sequences_schema, tokens_schema

# What a recorder hands over for each sequence: plain numpy arrays, checked where they enter, and the ids they give.
#
# Ids are hashes of decoded columns, whatever the shards and file bytes are. Each sequence has a digest of its own, so
# that ids are made shard by shard in little memory.


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
        entropy: float32 ``[T - 1, D]``, nats, over the drafter's full vocabulary; NaN, stored as null, where candidates
            alone are known.
        true_rank: int32 ``[T - 1, D]``, kept or not; -1 outside the drafter's vocabulary, or where it is not known.
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
    """sha256 of one sequence: its prompt, its text, and the target's rows, where the trace has any."""
    prompt = record.prompt
    digest = hashlib.sha256()
    facts = [record.index, prompt.prompt_id, prompt.dataset, prompt.turn, prompt.sample, record.seed]
    digest.update(content_id([*facts, record.stop_reason]).encode())
    add_array(digest, "prompt_token_ids", prompt.token_ids)
    add_array(digest, "text_token_ids", record.text)
    for entry in () if record.tokens is None else fields(record.tokens):
        add_array(digest, entry.name, getattr(record.tokens, entry.name))
    return digest.hexdigest()


def draft_digest(draft: DraftColumns) -> str:
    """sha256 of one drafter's rows of one sequence; nulls count as rank -1, log-prob 0 and entropy 0."""
    digest = hashlib.sha256()
    nulled = {
        "entropy": np.nan_to_num(draft.entropy, nan=0.0),
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


_FIRST_TOKEN_ROW = ("top_ids", "top_log_probs", "log_prob", "entropy", "log_normaliser", "decision_gap")


def sequences_frame(records: Sequence[SequenceRecord]) -> pl.DataFrame:
    """The rows of ``sequences.parquet``."""
    columns = {
        "sequence": [record.index for record in records],
        "prompt_id": [record.prompt.prompt_id for record in records],
        "dataset": [record.prompt.dataset for record in records],
        "turn": [record.prompt.turn for record in records],
        "sample": [record.prompt.sample for record in records],
        "seed": [record.seed for record in records],
        "prompt_token_ids": [record.prompt.token_ids.tolist() for record in records],
        "text_token_ids": [record.text.tolist() for record in records],
        "stop_reason": [record.stop_reason for record in records],
    }
    return pl.DataFrame(columns, schema=sequences_schema())


def sequences_of(rows: pl.DataFrame) -> list[SequenceRecord]:
    """The texts out of ``sequences.parquet``, without their other rows."""
    empty = [name for name in rows.columns if rows[name].null_count()]
    if empty:
        raise ValueError(f"the column {empty[0]} must not be null")
    lists = ("prompt_token_ids", "text_token_ids")
    tokens = (_token_ids(rows[name]) for name in lists)
    others = rows.drop(lists).iter_rows(named=True)
    return [_sequence_of(*row) for row in zip(others, *tokens, strict=True)]


def _sequence_of(row: dict[str, object], prompt_ids: Ints, text: Ints) -> SequenceRecord:
    prompt = Prompt(
        prompt_id=str(row["prompt_id"]),
        dataset=str(row["dataset"]),
        turn=int(str(row["turn"])),
        sample=int(str(row["sample"])),
        token_ids=prompt_ids,
    )
    return SequenceRecord(
        index=int(str(row["sequence"])),
        prompt=prompt,
        seed=int(str(row["seed"])),
        text=text,
        stop_reason=str(row["stop_reason"]),
    )


def _token_ids(lists: pl.Series) -> list[Ints]:
    """Each list as an array; all are parts of one."""
    lengths = lists.list.len().to_numpy().astype(np.int64)
    flat = read_only(ints_of(lists.filter(lists.list.len() > 0).explode()))
    if len(flat) != lengths.sum():
        raise ValueError(f"the column {lists.name} must not be null")
    return [flat[start:stop] for start, stop in spans(lengths.tolist())]


def tokens_frame(records: Sequence[SequenceRecord], vocab_size: int) -> pl.DataFrame:
    """The rows of ``tokens-NNNN.parquet``."""
    schema = tokens_schema(vocab_size)
    parts = [record.tokens for record in records if record.tokens is not None]
    columns = key_columns(records, [len(record.text) for record in records], schema)
    for name in _FIRST_TOKEN_ROW:
        columns.append(column_of(name, [getattr(part, name) for part in parts], schema[name]))
    return pl.DataFrame(columns)


def draft_frame(records: Sequence[SequenceRecord], name: str, depth: int) -> pl.DataFrame:
    """The rows of ``draft-NAME-NNNN.parquet``."""
    schema = draft_schema(depth)
    parts = [record.drafts[name] for record in records]
    columns = key_columns(records, [len(record.text) - 1 for record in records], schema)
    columns.append(column_of("context_length", [part.context_length for part in parts], schema["context_length"]))
    columns.append(column_of("counts", [part.counts.astype(np.uint16) for part in parts], schema["counts"]))
    columns.append(lists_of("ids", [(part.ids, part.counts) for part in parts], schema["ids"]))
    columns.append(lists_of("log_probs", [(part.log_probs, part.counts) for part in parts], schema["log_probs"]))
    columns.append(column_of("outside_log_mass", [part.outside_log_mass for part in parts], schema["outside_log_mass"]))
    entropies = [(part.entropy, ~np.isnan(part.entropy)) for part in parts]
    columns.append(_with_nulls("entropy", entropies, schema["entropy"], depth))
    ranks = [(part.true_rank, part.valid) for part in parts]
    log_probs = [(part.true_log_prob, part.has_true_log_prob) for part in parts]
    columns.append(_with_nulls("true_rank", ranks, schema["true_rank"], depth))
    columns.append(_with_nulls("true_log_prob", log_probs, schema["true_log_prob"], depth))
    return pl.DataFrame(columns)


def key_columns(
    records: Sequence[SequenceRecord], lengths: Sequence[int], schema: dict[str, pl.DataType]
) -> list[pl.Series]:
    """The columns ``sequence`` and ``position``, so many rows of each text."""
    indices = [np.full(num, record.index, np.int32) for record, num in zip(records, lengths, strict=True)]
    positions = [np.arange(num, dtype=np.int32) for num in lengths]
    return [
        column_of("sequence", indices, schema["sequence"]),
        column_of("position", positions, schema["position"]),
    ]


def column_of(name: str, parts: Sequence[npt.NDArray[np.generic]], dtype: pl.DataType) -> pl.Series:
    """A column of one value a row, or of arrays of one width, from its parts."""
    if sum(map(len, parts)) == 0:
        return pl.Series(name, [], dtype=dtype)
    return pl.Series(name, np.concatenate(parts)).cast(dtype)


def lists_of(name: str, parts: Sequence[tuple[npt.NDArray[np.generic], Ints]], dtype: pl.DataType) -> pl.Series:
    """A column of lists, from flat parts with the lengths of what each row lists, ``[rows, any]``."""
    lengths = np.concatenate([np.empty(0, np.int64), *(counts.sum(axis=1, dtype=np.int64) for _, counts in parts)])
    if len(lengths) == 0:
        return pl.Series(name, [], dtype=dtype)
    values = np.concatenate([flat for flat, _ in parts])
    if lengths.min() == 0:
        # A group without a value would be left out.
        return pl.Series(name, np.split(values, np.cumsum(lengths)[:-1]), dtype=dtype).cast(dtype)
    row = pl.Series("row", np.repeat(np.arange(len(lengths), dtype=np.int32), lengths)).set_sorted()
    grouped = pl.DataFrame([row, pl.Series(name, values)]).group_by("row", maintain_order=True).agg(name)
    return grouped[name].cast(dtype)


def _with_nulls(
    name: str, parts: Sequence[tuple[npt.NDArray[np.generic], Bools]], dtype: pl.DataType, depth: int
) -> pl.Series:
    if sum(len(values) for values, _ in parts) == 0:
        return pl.Series(name, [], dtype=dtype)
    flat = pl.Series(name, np.concatenate([values for values, _ in parts]).ravel())
    known = pl.Series("there", np.concatenate([mask for _, mask in parts]).ravel())
    nulled = pl.select(pl.when(known).then(flat).otherwise(None).alias(name)).to_series()
    return nulled.reshape((-1, depth)).cast(dtype)


def token_rows_of(rows: pl.DataFrame, lengths: Sequence[int]) -> Iterator[TokenRows]:
    """The target's rows of each sequence, ``lengths`` rows each."""
    top_ids = ints_of(rows["top_ids"])
    floats = {name: floats_of(rows[name]) for name in _FIRST_TOKEN_ROW[1:]}
    for start, stop in spans(lengths):
        parts = {name: column[start:stop] for name, column in floats.items()}
        yield TokenRows(top_ids=top_ids[start:stop], **parts)


def draft_rows_of(rows: pl.DataFrame) -> tuple[DraftRows, Bools]:
    """What a replay reads, of all sequences one after the other, and where a true rank is stored rather than null.

    Entropies that are null are NaN; `simlab.traces.format.checks` says where they may be.
    """
    ids, log_probs = ints_of(rows["ids"].explode()), floats_of(rows["log_probs"].explode())
    counts, ranks = ints_of(rows["counts"]), ints_of(rows["true_rank"], null=-1)
    valid = rows["true_rank"].explode().is_not_null().to_numpy().reshape(ranks.shape)
    entropies = read_only(floats_of(rows["entropy"], null=np.nan))
    decoded = DraftRows(read_only(ids), read_only(log_probs), read_only(counts), read_only(ranks), entropies)
    return decoded, valid


def parts_of(rows: DraftRows, lengths: Sequence[int]) -> Iterator[DraftRows]:
    """The rows of each sequence, ``lengths`` of them each."""
    starts = rows.starts()
    for first, last in spans(lengths):
        yield rows.part(first, last, starts)


def draft_columns_of(
    rows: pl.DataFrame, decoded: DraftRows, valid: Bools, lengths: Sequence[int]
) -> Iterator[DraftColumns]:
    """All columns of a draft set for each sequence, ``lengths`` rows each.

    Args:
        rows: of all of them.
        decoded: what `draft_rows_of` makes of these.
        valid: the same.
        lengths: of each sequence.
    """
    context_length = ints_of(rows["context_length"])
    assert decoded.entropies is not None
    outside_log_mass, entropy = floats_of(rows["outside_log_mass"]), decoded.entropies
    true_log_prob = floats_of(rows["true_log_prob"], null=0)
    for (start, stop), part in zip(spans(lengths), parts_of(decoded, lengths), strict=True):
        yield DraftColumns(
            context_length=context_length[start:stop],
            counts=part.counts,
            ids=part.ids,
            log_probs=part.log_probs,
            outside_log_mass=outside_log_mass[start:stop],
            entropy=entropy[start:stop],
            true_rank=part.true_ranks,
            true_log_prob=true_log_prob[start:stop],
            valid=valid[start:stop],
        )


def spans(lengths: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Where each of some stretches begins and ends that lie side by side."""
    start = 0
    for num in lengths:
        yield start, start + num
        start += num


def ints_of(column: pl.Series, null: int | None = None) -> Ints:
    """A column as int32, ``[rows]`` or, for arrays of a fixed width, ``[rows, width]``."""
    return np.asarray(_values(column, null), dtype=np.int32)


def floats_of(column: pl.Series, null: float | None = None) -> Floats:
    """A column as float32, shaped as by `ints_of`."""
    return np.asarray(_values(column, null), dtype=np.float32)


def _values(column: pl.Series, null: float | None) -> npt.NDArray[np.generic]:
    """The values of a column, with something in place of nulls; None: there must be none."""
    flat = column.explode() if isinstance(column.dtype, pl.Array) else column
    if column.null_count() or (null is None and flat.null_count()):
        raise ValueError(f"the column {column.name} must not be null")
    values = flat.to_numpy() if null is None else flat.fill_null(null).to_numpy()
    return values.reshape(len(column), column.dtype.size) if isinstance(column.dtype, pl.Array) else values
