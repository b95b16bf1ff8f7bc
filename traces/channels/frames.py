"""The rows of a channel to polars columns and back."""

from collections.abc import Sequence

import numpy as np
import polars as pl

from simlab.arrays import Bools, Floats, Ints, Longs, read_only
from simlab.channels import BRANCHES, FEATURES, POOL, BranchRows, FeatureRows, MadeRows, TransitionRows
from simlab.traces.channels.columns import (
    BranchColumns,
    ChannelColumns,
    FeatureColumns,
    PoolColumns,
    TransitionColumns,
)
from simlab.traces.format.frames import column_of, floats_of, ints_of, key_columns, lists_of
from simlab.traces.format.records import SequenceRecord
from simlab.traces.format.schema import Schema, channel_schema


def channel_frame(
    texts: Sequence[SequenceRecord], parts: Sequence[ChannelColumns], kind: str, width: int
) -> pl.DataFrame:
    """The rows of ``channel-NAME-NNNN.parquet``.

    Args:
        texts: of the shard.
        parts: the columns of each.
        kind: of the channel.
        width: of its columns, as `ChannelInfo` has it.
    """
    schema = channel_schema(kind, width)
    columns = key_columns(texts, [len(record.text) - 1 for record in texts], schema)
    if kind == POOL:
        columns += _pool_columns([one for one in parts if isinstance(one, PoolColumns)], schema)
    elif kind == FEATURES:
        values = [one.rows.values for one in parts if isinstance(one, FeatureColumns)]
        columns.append(column_of("values", values, schema["values"]))
    elif kind == BRANCHES:
        columns += _branch_columns([one for one in parts if isinstance(one, BranchColumns)], schema)
    else:
        columns += _transition_columns([one for one in parts if isinstance(one, TransitionColumns)], schema)
    return pl.DataFrame(columns)


def _transition_columns(parts: Sequence[TransitionColumns], schema: Schema) -> list[pl.Series]:
    rows = [one.rows for one in parts]
    above = [(one.previous, one.num_rows[:, 1:]) for one in rows]
    ids = [(one.ids.ravel(), one.num_rows * np.int32(one.ids.shape[1])) for one in rows]
    log_probs = [(one.log_probs.ravel(), one.num_rows * np.int32(one.ids.shape[1])) for one in rows]
    outside = [(one.outside_log_mass, one.rows.num_rows) for one in parts]
    num_previous = [one.num_rows.astype(np.uint8) for one in rows]
    return [
        column_of("num_previous", num_previous, schema["num_previous"]),
        lists_of("previous", above, schema["previous"]),
        lists_of("ids", ids, schema["ids"]),
        lists_of("log_probs", log_probs, schema["log_probs"]),
        lists_of("outside_log_mass", outside, schema["outside_log_mass"]),
    ]


def _pool_columns(parts: Sequence[PoolColumns], schema: Schema) -> list[pl.Series]:
    sizes = [one.rows.sizes.astype(np.int32)[:, np.newaxis] for one in parts]
    names = ("tokens", "parents", "log_probs", "expanded")
    found = [
        lists_of(name, [(getattr(one.rows, name), num) for one, num in zip(parts, sizes, strict=True)], schema[name])
        for name in names
    ]
    labels = [(one.target_log_probs, num) for one, num in zip(parts, sizes, strict=True)]
    column = lists_of("target_log_probs", labels, schema["target_log_probs"])
    known = pl.Series("known", np.concatenate([np.empty(0, np.bool_), *(one.labelled for one in parts)]))
    nulled = pl.when(known).then(column).otherwise(None).alias(column.name)
    return [*found, pl.select(nulled).to_series().cast(column.dtype)]


def _branch_columns(parts: Sequence[BranchColumns], schema: Schema) -> list[pl.Series]:
    rows = [one.rows for one in parts]
    # Every root has all branches, so there is no padding behind its lengths.
    lengths = [(one.lengths.ravel(), np.ones_like(one.lengths)) for one in rows]
    left = [one.depth - one.lengths for one in rows]
    ids = [(one.ids.ravel(), num * np.int32(one.ids.shape[1])) for one, num in zip(rows, left, strict=True)]
    scores = [(one.log_probs.ravel(), num * np.int32(one.ids.shape[1])) for one, num in zip(rows, left, strict=True)]
    outside = [(one.outside_log_mass, num) for one, num in zip(parts, left, strict=True)]
    return [
        lists_of("lengths", lengths, schema["lengths"]),
        lists_of("ids", ids, schema["ids"]),
        lists_of("log_probs", scores, schema["log_probs"]),
        lists_of("outside_log_mass", outside, schema["outside_log_mass"]),
    ]


def flat_branches(rows: pl.DataFrame) -> tuple[Ints, Ints, Floats]:
    """lengths, ids and log_probs, one root after the other."""
    flat = ints_of(_flat(rows["lengths"])), ints_of(_flat(rows["ids"])), floats_of(_flat(rows["log_probs"]))
    return read_only(flat[0]), read_only(flat[1]), read_only(flat[2])


def flat_transitions(rows: pl.DataFrame) -> tuple[Ints, Ints, Ints, Floats]:
    """num_rows int32 ``[N, D]``, and previous, ids and log_probs one row after the other."""
    flat = ints_of(_flat(rows["previous"])), ints_of(_flat(rows["ids"])), floats_of(_flat(rows["log_probs"]))
    previous, ids, log_probs = flat
    return read_only(ints_of(rows["num_previous"])), read_only(previous), read_only(ids), read_only(log_probs)


def flat_pools(rows: pl.DataFrame) -> tuple[Longs, Ints, Ints, Floats, Bools]:
    """sizes int64 ``[N]``, and tokens, parents, log_probs and expanded one node after the other."""
    sizes = list_lengths(rows["tokens"])
    expanded = _flat(rows["expanded"])
    if expanded.null_count():
        raise ValueError("the column expanded must not be null")
    return (
        read_only(sizes),
        read_only(ints_of(_flat(rows["tokens"]))),
        read_only(ints_of(_flat(rows["parents"]))),
        read_only(floats_of(_flat(rows["log_probs"]))),
        read_only(np.asarray(expanded.to_numpy(), np.bool_)),
    )


def channel_columns_of(rows: pl.DataFrame, kept: MadeRows) -> ChannelColumns:
    """All columns of a channel.

    Args:
        rows: of a shard.
        kept: what a replay reads of these.
    """
    if isinstance(kept, TransitionRows):
        return TransitionColumns(kept, floats_of(_flat(rows["outside_log_mass"])))
    if isinstance(kept, BranchRows):
        return BranchColumns(kept, floats_of(_flat(rows["outside_log_mass"])))
    if isinstance(kept, FeatureRows):
        return FeatureColumns(kept)
    labels = rows["target_log_probs"]
    labelled = labels.is_not_null().to_numpy()
    if (list_lengths(labels)[labelled] != kept.sizes[labelled]).any():
        raise ValueError("target_log_probs must be as long as tokens, or null")
    values = np.zeros(len(kept.tokens), np.float32)
    values[np.repeat(labelled, kept.sizes)] = floats_of(_flat(labels))
    return PoolColumns(kept, values, labelled)


def list_lengths(column: pl.Series) -> Longs:
    """int64 ``[rows]``, the length of each list; -1 where there is none."""
    return np.asarray(column.list.len().cast(pl.Int64).fill_null(-1).to_numpy(), np.int64)


def _flat(lists: pl.Series) -> pl.Series:
    """All lists one after the other; of an empty one polars would make a null."""
    return lists.filter(lists.list.len() > 0).explode()
