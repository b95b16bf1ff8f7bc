"""Reading the rows of a channel of one shard, and refusing what does not fit the texts."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import polars as pl

from simlab.arrays import Bools, Floats, Ints, Longs, read_only
from simlab.channels import BRANCHES, FEATURES, POOL, BranchRows, FeatureRows, MadeRows, PoolRows, TransitionRows
from simlab.errors import TraceError
from simlab.recorded import DraftRows
from simlab.traces.channels.checks import (
    CHANNEL_WORDS,
    branch_fault,
    branches_of,
    pool_fault,
    transition_fault,
    transition_shape,
)
from simlab.traces.channels.columns import (
    BranchColumns,
    ChannelColumns,
    FeatureColumns,
    PoolColumns,
    TransitionColumns,
    columns_part,
)
from simlab.traces.format.checks import Fault, firsts_of, refuse
from simlab.traces.format.files import channel_file
from simlab.traces.format.frames import SequenceRecord, column_of, floats_of, ints_of, key_columns, lists_of, spans
from simlab.traces.format.manifest import Manifest
from simlab.traces.format.schema import Schema, channel_schema, replay_channel_schema
from simlab.traces.format.shards import damage_named, read_rows

# The rows of a channel to polars columns and back.


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
        columns += _pool_columns([part for part in parts if isinstance(part, PoolColumns)], schema)
    elif kind == FEATURES:
        values = [part.rows.values for part in parts if isinstance(part, FeatureColumns)]
        columns.append(column_of("values", values, schema["values"]))
    elif kind == BRANCHES:
        columns += _branch_columns([part for part in parts if isinstance(part, BranchColumns)], schema)
    else:
        columns += _transition_columns([part for part in parts if isinstance(part, TransitionColumns)], schema)
    return pl.DataFrame(columns)


def _transition_columns(parts: Sequence[TransitionColumns], schema: Schema) -> list[pl.Series]:
    rows = [part.rows for part in parts]
    above = [(row.previous, row.num_rows[:, 1:]) for row in rows]
    ids = [(row.ids.ravel(), row.num_rows * np.int32(row.ids.shape[1])) for row in rows]
    log_probs = [(row.log_probs.ravel(), row.num_rows * np.int32(row.ids.shape[1])) for row in rows]
    outside = [(part.outside_log_mass, part.rows.num_rows) for part in parts]
    num_previous = [row.num_rows.astype(np.uint8) for row in rows]
    return [
        column_of("num_previous", num_previous, schema["num_previous"]),
        lists_of("previous", above, schema["previous"]),
        lists_of("ids", ids, schema["ids"]),
        lists_of("log_probs", log_probs, schema["log_probs"]),
        lists_of("outside_log_mass", outside, schema["outside_log_mass"]),
    ]


def _pool_columns(parts: Sequence[PoolColumns], schema: Schema) -> list[pl.Series]:
    sizes = [part.rows.sizes.astype(np.int32)[:, np.newaxis] for part in parts]
    names = ("tokens", "parents", "log_probs", "expanded")
    found = [
        lists_of(name, [(getattr(part.rows, name), num) for part, num in zip(parts, sizes, strict=True)], schema[name])
        for name in names
    ]
    labels = [(part.target_log_probs, num) for part, num in zip(parts, sizes, strict=True)]
    column = lists_of("target_log_probs", labels, schema["target_log_probs"])
    known = pl.Series("known", np.concatenate([np.empty(0, np.bool_), *(part.labelled for part in parts)]))
    return [*found, pl.select(pl.when(known).then(column).alias(column.name)).to_series()]


def _branch_columns(parts: Sequence[BranchColumns], schema: Schema) -> list[pl.Series]:
    rows = [part.rows for part in parts]
    # Every root has all branches, so there is no padding behind its lengths.
    lengths = [(row.lengths.ravel(), np.ones_like(row.lengths)) for row in rows]
    left = [row.depth - row.lengths for row in rows]
    ids = [(row.ids.ravel(), num * np.int32(row.ids.shape[1])) for row, num in zip(rows, left, strict=True)]
    scores = [(row.log_probs.ravel(), num * np.int32(row.ids.shape[1])) for row, num in zip(rows, left, strict=True)]
    outside = [(part.outside_log_mass, num) for part, num in zip(parts, left, strict=True)]
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


def read_channel_rows(
    place: str | Path,
    manifest: Manifest,
    channel: str,
    shard: int,
    texts: Sequence[SequenceRecord],
    base: DraftRows | None = None,
) -> MadeRows:
    """What a replay reads of a channel, for all texts of a shard.

    Args:
        place: a folder, or its address.
        manifest: of the trace.
        channel: its name; one that this simlab reads.
        shard: its number.
        texts: of the shard.
        base: the rows of the draft set that it extends, of the same shard, to compare with; None: they are not at hand.

    Raises:
        TraceError: the file is missing, damaged, or of other texts.
    """
    info = manifest.channels[channel]
    schema = replay_channel_schema(info.kind, info.width)
    return _read(place, manifest, channel, shard, texts, schema, base)[1]


def read_channel_columns(
    place: str | Path,
    manifest: Manifest,
    channel: str,
    shard: int,
    texts: Sequence[SequenceRecord],
    base: DraftRows | None = None,
) -> list[ChannelColumns]:
    """All columns of a channel, for each text of a shard; arguments as of `read_channel_rows`.

    Raises:
        TraceError: the file is missing, damaged, or of other texts.
    """
    info = manifest.channels[channel]
    schema = channel_schema(info.kind, info.width)
    rows, kept = _read(place, manifest, channel, shard, texts, schema, base)
    with damage_named(place, channel_file(channel, shard)):
        columns = channel_columns_of(rows, kept)
    return [columns_part(columns, first, last) for first, last in spans([len(record.text) - 1 for record in texts])]


def _read(
    place: str | Path,
    manifest: Manifest,
    channel: str,
    shard: int,
    texts: Sequence[SequenceRecord],
    schema: Schema,
    base: DraftRows | None,
) -> tuple[pl.DataFrame, MadeRows]:
    info, name = manifest.channels[channel], channel_file(channel, shard)
    lengths, where = [len(record.text) - 1 for record in texts], f"{name} in {place}"
    if info.kind == POOL:
        rows = read_rows(place, manifest, name, schema, texts, lengths)
        sizes = list_lengths(rows["tokens"])
        _check_lists(rows, dict.fromkeys(("tokens", "parents", "log_probs", "expanded"), sizes), where)
        with damage_named(place, name):
            flat = flat_pools(rows)
        _refuse(pool_fault(flat, info, manifest.vocab_size), texts, where)
        with damage_named(place, name):
            return rows, PoolRows(*flat)
    if info.kind == FEATURES:
        rows = read_rows(place, manifest, name, schema, texts, lengths)
        with damage_named(place, name):
            return rows, FeatureRows(read_only(floats_of(rows["values"]).reshape(len(rows), info.width)))
    if info.kind == BRANCHES:
        return _read_branches(place, manifest, channel, shard, texts, schema)
    shape = transition_shape(info, manifest)
    num_rows, width, _ = shape
    num = int(num_rows.sum())
    rows = read_rows(place, manifest, name, schema, texts, lengths, sum(lengths) * num * width)
    lists = {"previous": num - 1, "ids": num * width, "log_probs": num * width, "outside_log_mass": num}
    expected = {one: np.full(len(rows), length) for one, length in lists.items() if one in schema}
    _check_lists(rows, expected, where)
    with damage_named(place, name):
        found, previous, ids, log_probs = flat_transitions(rows)
        if (found != num_rows).any():
            raise ValueError(f"num_previous must be {num_rows.tolist()} in each row")
        ids, log_probs = ids.reshape(-1, width), log_probs.reshape(-1, width)
    _refuse(transition_fault(previous, ids, log_probs, base, shape), texts, where)
    with damage_named(place, name):
        return rows, TransitionRows(found, previous, ids, log_probs)


def _read_branches(
    place: str | Path,
    manifest: Manifest,
    channel: str,
    shard: int,
    texts: Sequence[SequenceRecord],
    schema: Schema,
) -> tuple[pl.DataFrame, MadeRows]:
    info, name = manifest.channels[channel], channel_file(channel, shard)
    roots, where = [len(record.text) - 1 for record in texts], f"{name} in {place}"
    count, depth, width = (info.setting(one) for one in ("branches", "depth", "top_k"))
    behind = branches_of(info, manifest)
    num = sum(depth - length for length in behind)
    rows = read_rows(place, manifest, name, schema, texts, roots, sum(roots) * num * width)
    lists = {"lengths": count, "ids": num * width, "log_probs": num * width, "outside_log_mass": num}
    _check_lists(rows, {one: np.full(len(rows), length) for one, length in lists.items() if one in schema}, where)
    with damage_named(place, name):
        lengths, ids, log_probs = flat_branches(rows)
        lengths, ids, log_probs = lengths.reshape(-1, count), ids.reshape(-1, width), log_probs.reshape(-1, width)
        if (lengths != np.array(behind)).any():
            raise ValueError(f"lengths must be {behind[0]} to {behind[-1]} in each row")
    _refuse(branch_fault(ids, log_probs, num, manifest.vocab_size), texts, where)
    with damage_named(place, name):
        return rows, BranchRows(lengths, depth, ids, log_probs)


def _refuse(fault: Fault, texts: Sequence[SequenceRecord], where: str) -> None:
    refuse(fault, firsts_of(texts), texts, where, CHANNEL_WORDS)


def _check_lists(rows: pl.DataFrame, expected: Mapping[str, Longs], where: str) -> None:
    for name, lengths in expected.items():
        if lengths.min(initial=0) < 0 or (list_lengths(rows[name]) != lengths).any():
            raise TraceError(
                f"{where}: the lists of {name} are not as long as they must be. The file is damaged or of another "
                "trace; copy it again, or record again."
            )
