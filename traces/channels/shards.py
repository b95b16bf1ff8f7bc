"""Reading the rows of a channel of one shard, and refusing what does not fit the texts."""

from collections.abc import Mapping, Sequence

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
    ChannelColumns,
    FeatureColumns,
    ListedColumns,
    PoolColumns,
    columns_part,
)
from simlab.traces.format.checks import Fault, firsts_of, refuse
from simlab.traces.format.files import channel_file
from simlab.traces.format.frames import SequenceRecord, column_of, floats_of, ints_of, key_columns, lists_of, spans
from simlab.traces.format.schema import Schema, channel_schema, replay_channel_schema
from simlab.traces.format.shards import Shard, damage_named, read_rows

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
    else:
        columns += _listed_columns([part for part in parts if isinstance(part, ListedColumns)], schema)
    return pl.DataFrame(columns)


def _listed_columns(
    parts: Sequence[ListedColumns[TransitionRows] | ListedColumns[BranchRows]], schema: Schema
) -> list[pl.Series]:
    """The columns of transitions or branches, each row a list of as many candidates."""
    above = [row for row in (part.rows for part in parts) if isinstance(row, TransitionRows)]
    beside = [row for row in (part.rows for part in parts) if isinstance(row, BranchRows)]
    # Every root has all branches, so there is no padding behind its lengths.
    lengths = [row.num_rows for row in above] + [row.depth - row.lengths for row in beside]
    columns = []
    if "num_previous" in schema:
        columns += [column_of("num_previous", [row.num_rows.astype(np.uint8) for row in above], schema["num_previous"])]
        columns += [lists_of("previous", [(row.previous, row.num_rows[:, 1:]) for row in above], schema["previous"])]
    else:
        behind = [(row.lengths.ravel(), np.ones_like(row.lengths)) for row in beside]
        columns += [lists_of("lengths", behind, schema["lengths"])]
    for name in ("ids", "log_probs"):
        arrays = [getattr(part.rows, name) for part in parts]
        flat = [(array.ravel(), num * np.int32(array.shape[1])) for array, num in zip(arrays, lengths, strict=True)]
        columns.append(lists_of(name, flat, schema[name]))
    outside = [(part.outside_log_mass, num) for part, num in zip(parts, lengths, strict=True)]
    return [*columns, lists_of("outside_log_mass", outside, schema["outside_log_mass"])]


def _pool_columns(parts: Sequence[PoolColumns], schema: Schema) -> list[pl.Series]:
    sizes = [part.rows.sizes.astype(np.int32)[:, np.newaxis] for part in parts]
    names = ("tokens", "parents", "log_probs", "expanded")
    columns = [
        lists_of(name, [(getattr(part.rows, name), num) for part, num in zip(parts, sizes, strict=True)], schema[name])
        for name in names
    ]
    labels = [(part.target_log_probs, num) for part, num in zip(parts, sizes, strict=True)]
    column = lists_of("target_log_probs", labels, schema["target_log_probs"])
    known = pl.Series("known", np.concatenate([np.empty(0, np.bool_), *(part.labelled for part in parts)]))
    return [*columns, pl.select(pl.when(known).then(column).alias(column.name)).to_series()]


def flat_pools(rows: pl.DataFrame) -> tuple[Longs, Ints, Ints, Floats, Bools]:
    """sizes int64 ``[N]``, and tokens, parents, log_probs and expanded one node after the other."""
    sizes = list_lengths(rows["tokens"])
    expanded = _flat(rows["expanded"])
    if expanded.null_count():
        raise ValueError("the column expanded must not be null")
    return (
        read_only(sizes),
        _ints(rows["tokens"]),
        _ints(rows["parents"]),
        read_only(floats_of(_flat(rows["log_probs"]))),
        read_only(np.asarray(expanded.to_numpy(), np.bool_)),
    )


def channel_columns_of(rows: pl.DataFrame, made: MadeRows) -> ChannelColumns:
    """All columns of a channel.

    Args:
        rows: of a shard.
        made: what a replay reads of these.
    """
    if isinstance(made, TransitionRows):
        return ListedColumns(made, floats_of(_flat(rows["outside_log_mass"])))
    if isinstance(made, BranchRows):
        return ListedColumns(made, floats_of(_flat(rows["outside_log_mass"])))
    if isinstance(made, FeatureRows):
        return FeatureColumns(made)
    labels = rows["target_log_probs"]
    labelled = labels.is_not_null().to_numpy()
    if (list_lengths(labels)[labelled] != made.sizes[labelled]).any():
        raise ValueError("target_log_probs must be as long as tokens, or null")
    values = np.zeros(len(made.tokens), np.float32)
    values[np.repeat(labelled, made.sizes)] = floats_of(_flat(labels))
    return PoolColumns(made, values, labelled)


def list_lengths(column: pl.Series) -> Longs:
    """int64 ``[rows]``, the length of each list; -1 where there is none."""
    return np.asarray(column.list.len().cast(pl.Int64).fill_null(-1).to_numpy(), np.int64)


def _flat(lists: pl.Series) -> pl.Series:
    """All lists one after the other; of an empty one polars would make a null."""
    return lists.filter(lists.list.len() > 0).explode()


def read_channel_rows(shard: Shard, channel: str, base: DraftRows | None = None) -> MadeRows:
    """What a replay reads of a channel, for all texts of a shard.

    Args:
        shard: of the trace.
        channel: its name; one that this simlab reads.
        base: the rows of the draft set that it extends, of the same shard, to compare with; None: they are not at hand.

    Raises:
        TraceError: the file is missing, damaged, or of other texts.
    """
    info = shard.manifest.channels[channel]
    return _read(shard, channel, replay_channel_schema(info.kind, info.width), base)[1]


def read_channel_columns(shard: Shard, channel: str, base: DraftRows | None = None) -> list[ChannelColumns]:
    """All columns of a channel, for each text of a shard; arguments as of `read_channel_rows`.

    Raises:
        TraceError: the file is missing, damaged, or of other texts.
    """
    info = shard.manifest.channels[channel]
    rows, made = _read(shard, channel, channel_schema(info.kind, info.width), base)
    with damage_named(shard.location, channel_file(channel, shard.number)):
        columns = channel_columns_of(rows, made)
    return [columns_part(columns, first, last) for first, last in spans(shard.num_roots)]


def _read(shard: Shard, channel: str, schema: Schema, base: DraftRows | None) -> tuple[pl.DataFrame, MadeRows]:
    location, manifest, lengths = shard.location, shard.manifest, shard.num_roots
    info, name = manifest.channels[channel], channel_file(channel, shard.number)
    where = f"{name} in {location}"
    if info.kind == POOL:
        rows = read_rows(shard, name, schema, lengths)
        sizes = list_lengths(rows["tokens"])
        _check_lists(rows, dict.fromkeys(("tokens", "parents", "log_probs", "expanded"), sizes), where)
        with damage_named(location, name):
            flat = flat_pools(rows)
        _refuse(pool_fault(flat, info, manifest.vocab_size), shard.texts, where)
        with damage_named(location, name):
            return rows, PoolRows(*flat)
    if info.kind == FEATURES:
        rows = read_rows(shard, name, schema, lengths)
        with damage_named(location, name):
            return rows, FeatureRows(read_only(floats_of(rows["values"]).reshape(len(rows), info.width)))
    is_behind, vocab_size = info.kind == BRANCHES, manifest.vocab_size
    if is_behind:
        behind, width = np.array(branches_of(info, manifest)), info.setting("top_k")
        num = int((info.setting("depth") - behind).sum())
        lists = {"lengths": len(behind)}
    else:
        shape = transition_shape(info, manifest)
        num_rows, width, _ = shape
        num = int(num_rows.sum())
        lists = {"previous": num - 1}
    rows = read_rows(shard, name, schema, lengths, sum(lengths) * num * width)
    lists |= {"ids": num * width, "log_probs": num * width, "outside_log_mass": num}
    _check_lists(
        rows, {column: np.full(len(rows), length) for column, length in lists.items() if column in schema}, where
    )
    with damage_named(location, name):
        ids, log_probs = _ints(rows["ids"]).reshape(-1, width), read_only(floats_of(_flat(rows["log_probs"])))
        log_probs = log_probs.reshape(-1, width)
        if is_behind:
            listed = _ints(rows["lengths"]).reshape(-1, len(behind))
            if (listed != behind).any():
                raise ValueError(f"lengths must be {behind[0]} to {behind[-1]} in each row")
            fault = branch_fault(ids, log_probs, num, vocab_size)
        else:
            listed, previous = read_only(ints_of(rows["num_previous"])), _ints(rows["previous"])
            if (listed != num_rows).any():
                raise ValueError(f"num_previous must be {num_rows.tolist()} in each row")
            fault = transition_fault(previous, ids, log_probs, base, shape)
    _refuse(fault, shard.texts, where)
    with damage_named(location, name):
        if is_behind:
            return rows, BranchRows(listed, info.setting("depth"), ids, log_probs)
        return rows, TransitionRows(listed, previous, ids, log_probs)


def _ints(lists: pl.Series) -> Ints:
    return read_only(ints_of(_flat(lists)))


def _refuse(fault: Fault, texts: Sequence[SequenceRecord], where: str) -> None:
    refuse(fault, firsts_of(texts), texts, where, CHANNEL_WORDS)


def _check_lists(rows: pl.DataFrame, expected: Mapping[str, Longs], where: str) -> None:
    for name, lengths in expected.items():
        if lengths.min(initial=0) < 0 or (list_lengths(rows[name]) != lengths).any():
            raise TraceError(
                f"{where}: the lists of {name} are not as long as they must be. The file is damaged or of another "
                "trace; copy it again, or record again."
            )
