"""Reading the rows of a channel of one shard, and refusing what does not fit the texts."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import polars as pl

from simlab.arrays import Longs, read_only
from simlab.channels import BRANCHES, FEATURES, POOL, BranchRows, FeatureRows, MadeRows, PoolRows, TransitionRows
from simlab.errors import TraceError
from simlab.recorded import DraftRows
from simlab.traces.channels.columns import ChannelColumns, columns_part
from simlab.traces.channels.frames import channel_columns_of, flat_branches, flat_pools, flat_transitions, list_lengths
from simlab.traces.channels.row_checks import (
    branches_of,
    check_branch_rows,
    check_pool_rows,
    check_transition_rows,
    transition_shape,
)
from simlab.traces.format.files import channel_file
from simlab.traces.format.frames import floats_of, spans
from simlab.traces.format.manifest import Manifest
from simlab.traces.format.records import SequenceRecord
from simlab.traces.format.schema import Schema, channel_schema, replay_channel_schema
from simlab.traces.format.shards import damage_named, read_rows


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
        check_pool_rows(flat, texts, info, manifest.vocab_size, where)
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
    check_transition_rows(previous, ids, log_probs, base, texts, shape, where)
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
    check_branch_rows(ids, log_probs, num, texts, manifest.vocab_size, where)
    with damage_named(place, name):
        return rows, BranchRows(lengths, depth, ids, log_probs)


def _check_lists(rows: pl.DataFrame, expected: Mapping[str, Longs], where: str) -> None:
    for name, lengths in expected.items():
        if lengths.min(initial=0) < 0 or (list_lengths(rows[name]) != lengths).any():
            raise TraceError(
                f"{where}: the lists of {name} are not as long as they must be. The file is damaged or of another "
                "trace; copy it again, or record again."
            )
