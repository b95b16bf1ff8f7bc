"""The invariants of a channel, one sequence at a time; ``docs/reference/trace_format.md`` lists them."""

from collections.abc import Iterator

import numpy as np

from simlab.arrays import Doubles, Floats, Ints, Longs
from simlab.channels import TRANSITIONS, PoolRows, kind_of
from simlab.channels.rows import node_depths
from simlab.grid import LOWEST, to_grid
from simlab.recorded import DraftRows, RecordedSequence
from simlab.traces.channels.columns import (
    BranchColumns,
    ChannelColumns,
    FeatureColumns,
    TransitionColumns,
)
from simlab.traces.channels.row_checks import branches_of, transition_shape
from simlab.traces.format.checks import MASS_TOLERANCE
from simlab.traces.format.manifest import Manifest
from simlab.traces.format.manifest_entries import ChannelInfo


def find_channel_problem(
    recorded: RecordedSequence, columns: ChannelColumns, info: ChannelInfo, manifest: Manifest
) -> str | None:
    """The first broken invariant of a channel's rows of a sequence, in words; None where all hold.

    Args:
        recorded: the text, with the rows of the draft set that the channel extends.
        columns: its rows.
        info: what the manifest says of the channel.
        manifest: of the trace.
    """
    problem = next(_problems(recorded, columns, info, manifest), None)
    return None if problem is None else f"sequence {recorded.index}: {problem}"


def _problems(
    recorded: RecordedSequence, columns: ChannelColumns, info: ChannelInfo, manifest: Manifest
) -> Iterator[str]:
    rows = columns.rows
    if kind_of(rows) != info.kind:
        yield f"expected {info.kind}; got {kind_of(rows)}"
        return
    if len(rows) != len(recorded.text) - 1:
        yield f"expected {len(recorded.text) - 1} rows, one for each root; got {len(rows)}"
        return
    if isinstance(columns, TransitionColumns):
        if recorded.rows is None:
            raise ValueError(f"{TRANSITIONS} are checked beside the rows of the draft set that they extend")
        yield from _transition_problems(columns, info, manifest, recorded.rows)
        return
    if isinstance(columns, BranchColumns):
        yield from _branch_problems(columns, info, manifest)
        return
    if isinstance(columns, FeatureColumns):
        if columns.rows.values.shape[1] != info.width:
            yield f"every root has {info.width} features; got {columns.rows.values.shape[1]}"
        return
    labels = columns.target_log_probs
    if not ((labels >= LOWEST) & (labels <= 0)).all():
        yield f"target_log_probs must lie from {LOWEST:g} to 0"
    yield from _pool_problems(columns.rows, info, manifest.vocab_size)


def _transition_problems(
    columns: TransitionColumns, info: ChannelInfo, manifest: Manifest, base: DraftRows
) -> Iterator[str]:
    num_rows, width, vocab_size = transition_shape(info, manifest)
    rows = columns.rows
    if rows.num_rows.shape[1] != len(num_rows) or (rows.num_rows != num_rows).any():
        yield f"every root has {' + '.join(map(str, num_rows.tolist()))} rows; got others"
        return
    if rows.ids.shape[1] != width:
        yield f"every row has {width} candidates; got {rows.ids.shape[1]}"
        return
    first = [marginals.first_ranks(int(num_rows[-1])) for marginals in base.rows()]
    above = [one.ids[: one.offsets[-2]] for one in first]
    if not np.array_equal(rows.previous, np.concatenate([np.empty(0, np.int32), *above])):
        yield "previous are not the first tokens of its draft set at the depth above"
    lists = np.repeat(np.arange(len(rows.ids)), width)
    yield from _candidate_problems(rows.ids.ravel(), rows.log_probs.ravel(), lists, vocab_size)
    yield from _outside_problems(rows.log_probs.ravel(), columns.outside_log_mass, lists)


def _branch_problems(columns: BranchColumns, info: ChannelInfo, manifest: Manifest) -> Iterator[str]:
    rows, behind = columns.rows, branches_of(info, manifest)
    if rows.lengths.shape[1] != len(behind) or (rows.lengths != np.array(behind)).any():
        yield f"every root has branches behind {behind[0]} to {behind[-1]} tokens; got others"
        return
    if rows.depth != info.setting("depth") or rows.ids.shape[1] != info.setting("top_k"):
        yield (
            f"branches go to the depth {info.setting('depth')} with {info.setting('top_k')} candidates a row; got "
            f"{rows.depth} and {rows.ids.shape[1]}"
        )
        return
    lists = np.repeat(np.arange(len(rows.ids)), rows.ids.shape[1])
    yield from _candidate_problems(rows.ids.ravel(), rows.log_probs.ravel(), lists, manifest.vocab_size)
    yield from _outside_problems(rows.log_probs.ravel(), columns.outside_log_mass, lists)


def _outside_problems(log_probs: Floats, outside: Floats, lists: Longs) -> Iterator[str]:
    """Those of the mass of each row that is not kept."""
    if not ((outside >= LOWEST) & (outside <= 0)).all():
        yield f"outside_log_mass must lie from {LOWEST:g} to 0"
        return
    mass = _mass(log_probs, lists) + np.exp(outside.astype(np.float64))
    if (np.abs(mass - 1) > MASS_TOLERANCE).any():
        yield "kept and outside mass of a row must add up to 1"


def _pool_problems(rows: PoolRows, info: ChannelInfo, vocab_size: int) -> Iterator[str]:
    """Those that pools in memory can have; most of their order was checked when they were made."""
    root = np.repeat(np.arange(len(rows)), rows.sizes)
    parents, top_k, most = rows.parents.astype(np.int64), info.setting("top_k"), info.setting("depth")
    if ((np.diff(parents) < 0) & (root[1:] == root[:-1])).any():
        yield "parents must not fall from one node to the next"
        return
    depths = np.concatenate([np.empty(0, np.int32), *(node_depths(pool.parents) for pool in rows.rows())])
    if (depths > most).any() or rows.expanded[depths == most].any():
        yield f"nodes stand at most {most} deep, and are not expanded there"
    # A number for each node and, before those of its pool, one for the root.
    first = np.concatenate([[0], np.cumsum(rows.sizes)])[:-1] + np.arange(len(rows))
    above, inner = first[root] + parents, np.ones(len(rows) + len(root), np.bool_)
    inner[np.arange(len(root)) + root + 1] = rows.expanded
    if top_k and (np.bincount(above, minlength=len(inner))[inner] != top_k).any():
        yield f"the root and each expanded node have {top_k} children"
    yield from _candidate_problems(rows.tokens, rows.log_probs, above, vocab_size)
    if (_mass(rows.log_probs, above) > 1 + MASS_TOLERANCE).any():
        yield "the children of a node have more than the whole mass"


def _candidate_problems(ids: Ints, log_probs: Floats, lists: Longs, vocab_size: int) -> Iterator[str]:
    """Those of candidates that stand one list after the other; ``lists`` int64 has the number of each one's."""
    if ids.size == 0:
        return
    if ids.min() < 0 or ids.max() >= vocab_size:
        yield f"ids outside 0 ... {vocab_size - 1}"
        return
    if not np.array_equal(to_grid(log_probs), log_probs):
        yield "log_probs must lie on the grid of 2**-16"
    step = np.diff(log_probs)
    if ((lists[1:] == lists[:-1]) & ((step > 0) | ((step == 0) & (np.diff(ids) <= 0)))).any():
        yield "candidates must stand in the order of log-prob descending, then id"
    keys = lists * vocab_size + ids
    if len(np.unique(keys)) != len(keys):
        yield "the same id is listed twice"


def _mass(log_probs: Floats, lists: Longs) -> Doubles:
    mass: Doubles = np.bincount(lists, np.exp(log_probs.astype(np.float64))).astype(np.float64)
    return mass
