"""Records to polars columns and back."""

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import polars as pl

from simlab.arrays import Bools, Floats, Ints, read_only
from simlab.draft import Prompt
from simlab.recorded import DraftRows
from simlab.traces.format.records import DraftColumns, SequenceRecord, TokenRows
from simlab.traces.format.schema import draft_schema, sequences_schema, tokens_schema

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
    return [_sequence_of(*one) for one in zip(others, *tokens, strict=True)]


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
    for column in ("outside_log_mass", "entropy"):
        columns.append(column_of(column, [getattr(part, column) for part in parts], schema[column]))
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
    there = pl.Series("there", np.concatenate([mask for _, mask in parts]).ravel())
    nulled = pl.select(pl.when(there).then(flat).otherwise(None).alias(name)).to_series()
    return nulled.reshape((-1, depth)).cast(dtype)


def token_rows_of(rows: pl.DataFrame, lengths: Sequence[int]) -> Iterator[TokenRows]:
    """The target's rows of each sequence, ``lengths`` rows each."""
    top_ids = ints_of(rows["top_ids"])
    floats = {name: floats_of(rows[name]) for name in _FIRST_TOKEN_ROW[1:]}
    for start, stop in spans(lengths):
        parts = {name: column[start:stop] for name, column in floats.items()}
        yield TokenRows(top_ids=top_ids[start:stop], **parts)


def draft_rows_of(rows: pl.DataFrame) -> tuple[DraftRows, Bools]:
    """What a replay reads, of all sequences one after the other, and where a true rank is stored rather than null."""
    ids, log_probs = ints_of(rows["ids"].explode()), floats_of(rows["log_probs"].explode())
    counts, ranks = ints_of(rows["counts"]), ints_of(rows["true_rank"], null=-1)
    valid = rows["true_rank"].explode().is_not_null().to_numpy().reshape(ranks.shape)
    entropies = read_only(floats_of(rows["entropy"]))
    kept = DraftRows(read_only(ids), read_only(log_probs), read_only(counts), read_only(ranks), entropies)
    return kept, valid


def parts_of(rows: DraftRows, lengths: Sequence[int]) -> Iterator[DraftRows]:
    """The rows of each sequence, ``lengths`` of them each."""
    starts = rows.starts()
    for first, last in spans(lengths):
        yield rows.part(first, last, starts)


def draft_columns_of(
    rows: pl.DataFrame, kept: DraftRows, valid: Bools, lengths: Sequence[int]
) -> Iterator[DraftColumns]:
    """All columns of a draft set for each sequence, ``lengths`` rows each.

    Args:
        rows: of all of them.
        kept: what `draft_rows_of` makes of these.
        valid: likewise.
        lengths: of each sequence.
    """
    context_length = ints_of(rows["context_length"])
    outside_log_mass, entropy = floats_of(rows["outside_log_mass"]), floats_of(rows["entropy"])
    true_log_prob = floats_of(rows["true_log_prob"], null=0)
    for (start, stop), part in zip(spans(lengths), parts_of(kept, lengths), strict=True):
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


def floats_of(column: pl.Series, null: int | None = None) -> Floats:
    """A column as float32, shaped as by `ints_of`."""
    return np.asarray(_values(column, null), dtype=np.float32)


def _values(column: pl.Series, null: int | None) -> npt.NDArray[np.generic]:
    """The values of a column, with something in place of nulls; None: there must be none."""
    flat = column.explode() if isinstance(column.dtype, pl.Array) else column
    if column.null_count() or (null is None and flat.null_count()):
        raise ValueError(f"the column {column.name} must not be null")
    values = flat.to_numpy() if null is None else flat.fill_null(null).to_numpy()
    return values.reshape(len(column), column.dtype.size) if isinstance(column.dtype, pl.Array) else values
