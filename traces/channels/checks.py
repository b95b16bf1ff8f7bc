"""The invariants of a channel, one sequence at a time; ``docs/reference/trace_format.md`` lists them."""

from collections.abc import Iterator, Sequence

import numpy as np

from simlab.arrays import Bools, Doubles, Floats, Ints, Longs, Shorts
from simlab.channels import TRANSITIONS, PoolRows, kind_of
from simlab.channels.rows import WHOLE_CHAIN, node_depths
from simlab.grid import LOWEST, to_grid
from simlab.jit import borrowing_kernel
from simlab.recorded import DraftRows, RecordedSequence
from simlab.traces.channels.columns import (
    BranchColumns,
    ChannelColumns,
    FeatureColumns,
    TransitionColumns,
)
from simlab.traces.format.checks import (
    ID,
    MASS_TOLERANCE,
    MOST_NUMBERS,
    TWICE,
    WHOLE,
    WORDS,
    candidates_fault,
    firsts_of,
    refuse,
)
from simlab.traces.format.frames import SequenceRecord
from simlab.traces.format.manifest import Manifest
from simlab.traces.format.manifest_entries import ChannelInfo

# The invariants that every read of a channel is held to, in one compiled pass.
#
# `simlab.traces.channels.checks` has all of them, in numpy, for the writer and for `simlab inspect`; what breaks one of
# these there breaks it here, and what is whole there is whole here.


_BASE, _PARENT, _EXPANDED, _DEEP, _CHILDREN = range(16, 21)

_WORDS = {
    **WORDS,
    _BASE: "previous are not the first tokens of its draft set at the depth above",
    _PARENT: "parents must stand before their children and must not fall",
    _EXPANDED: "a node has children and is not expanded",
    _DEEP: "a node stands deeper than the setting depth, or is expanded at it",
    _CHILDREN: "the root and each expanded node have as many children as the setting top_k says",
}


def transition_shape(info: ChannelInfo, manifest: Manifest) -> tuple[Ints, int, int]:
    """What each root of transitions has.

    Args:
        info: what the manifest says of them.
        manifest: of the trace.

    Returns:
        int32 ``[D]``, the rows of each depth; the candidates of a row; the ids that a candidate can have.
    """
    assert info.extends is not None
    base = manifest.draft_sets[info.extends]
    num_rows = np.full(info.setting("depth"), min(info.setting("previous"), base.num_proposable), np.int32)
    num_rows[0] = 1
    return num_rows, min(info.setting("top_k"), base.num_proposable), base.vocab_size


def check_transition_rows(
    previous: Ints,
    ids: Ints,
    log_probs: Floats,
    base: DraftRows | None,
    texts: Sequence[SequenceRecord],
    shape: tuple[Ints, int, int],
    where: str,
) -> None:
    """Refuse transitions that a replay could not trust.

    Args:
        previous: int32 ``[R (S - 1)]``, of all these texts.
        ids: int32 ``[R S, W]``.
        log_probs: float32, the same.
        base: the rows of the draft set that they extend; None where these were not read.
        texts: whose roots they are.
        shape: as `transition_shape` gives it.
        where: the file, for the message.
    """
    num_rows, _, vocab_size = shape
    nothing = np.empty(0, np.int32)
    found = _first_transition_fault(
        previous,
        ids,
        log_probs,
        num_rows,
        nothing if base is None else base.ids,
        np.empty((0, 0), np.int32) if base is None else base.counts,
        np.empty(0, np.int64) if base is None else base.starts(),
        vocab_size,
        np.zeros(vocab_size, np.uint16),
    )
    refuse(found, firsts_of(texts), texts, where, _WORDS)


def check_pool_rows(
    flat: tuple[Longs, Ints, Ints, Floats, Bools],
    texts: Sequence[SequenceRecord],
    info: ChannelInfo,
    vocab_size: int,
    where: str,
) -> None:
    """Refuse pools that a replay could not trust.

    Args:
        flat: sizes, tokens, parents, log_probs and expanded, of all these texts.
        texts: whose roots they are.
        info: what the manifest says of them.
        vocab_size: of the target.
        where: the file, for the message.
    """
    depths = np.zeros(int(flat[0].max(initial=0)), np.int32)
    seen = np.zeros(vocab_size, np.uint16)
    found = _first_pool_fault(*flat, info.setting("depth"), info.setting("top_k"), vocab_size, depths, seen)
    refuse(found, firsts_of(texts), texts, where, _WORDS)


def branches_of(info: ChannelInfo, manifest: Manifest) -> range:
    """Behind how many tokens of the chain each root of a channel of branches has one."""
    assert info.extends is not None
    first = manifest.draft_sets[info.extends].depth if info.setting(WHOLE_CHAIN) == 1 else 0
    return range(first, first + info.setting("branches"))


def check_branch_rows(
    ids: Ints, log_probs: Floats, num_rows: int, texts: Sequence[SequenceRecord], vocab_size: int, where: str
) -> None:
    """Refuse branches that a replay could not trust.

    Args:
        ids: int32 ``[R S, K]``, of all these texts.
        log_probs: float32, the same.
        num_rows: S, the rows of each root.
        texts: whose roots they are.
        vocab_size: of the target.
        where: the file, for the message.
    """
    found = _first_branch_fault(ids, log_probs, num_rows, vocab_size, np.zeros(vocab_size, np.uint16))
    refuse(found, firsts_of(texts), texts, where, _WORDS)


@borrowing_kernel
def _first_branch_fault(ids: Ints, log_probs: Floats, num_rows: int, vocab_size: int, seen: Shorts) -> tuple[int, int]:
    """The first fault and the root that has it."""
    number = 0
    for row in range(ids.shape[0]):
        number = _next_number(number, seen)
        fault = candidates_fault(ids[row], log_probs[row], vocab_size, seen, number)
        if fault != WHOLE:
            return fault, row // num_rows
    return WHOLE, 0


@borrowing_kernel
def _first_transition_fault(
    previous: Ints,
    ids: Ints,
    log_probs: Floats,
    num_rows: Ints,
    base_ids: Ints,
    base_counts: Ints,
    base_starts: Longs,
    vocab_size: int,
    seen: Shorts,
) -> tuple[int, int]:
    """The first fault and the root that has it; there are base rows for each root or for none."""
    num, number, has_base = 0, 0, base_counts.shape[0] > 0
    for depth in range(num_rows.size):
        num += int(np.int64(num_rows[depth]))
    for root in range(ids.shape[0] // num):
        above, low = root * (num - 1), int(base_starts[root]) if has_base else 0
        for depth in range(1, num_rows.size):
            number = _next_number(number, seen)
            end = above + int(np.int64(num_rows[depth]))
            if has_base:
                fault = _base_fault(previous[above:end], base_ids[low : low + end - above])
                low += int(np.int64(base_counts[root, depth - 1]))
            else:
                fault = _tokens_fault(previous[above:end], vocab_size, seen, number)
            if fault != WHOLE:
                return fault, root
            above = end
        for row in range(root * num, (root + 1) * num):
            number = _next_number(number, seen)
            fault = candidates_fault(ids[row], log_probs[row], vocab_size, seen, number)
            if fault != WHOLE:
                return fault, root
    return WHOLE, 0


@borrowing_kernel
def _base_fault(previous: Ints, base_ids: Ints) -> int:
    for index in range(previous.size):
        if previous[index] != base_ids[index]:
            return _BASE
    return WHOLE


@borrowing_kernel
def _tokens_fault(tokens: Ints, vocab_size: int, seen: Shorts, number: int) -> int:
    """The fault of tokens that are to be different ones; ``seen`` has their number at their ids."""
    for token in tokens:
        if token < 0 or token >= vocab_size:
            return ID
        if seen[token] == number:
            return TWICE
        seen[token] = number
    return WHOLE


@borrowing_kernel
def _first_pool_fault(
    sizes: Longs,
    tokens: Ints,
    parents: Ints,
    log_probs: Floats,
    expanded: Bools,
    most_depth: int,
    top_k: int,
    vocab_size: int,
    depths: Ints,
    seen: Shorts,
) -> tuple[int, int]:
    """The first fault and the root that has it; ``top_k`` 0: any number of children."""
    start, number = 0, 0
    for root in range(sizes.size):
        size, node, before, num_groups, num_expanded = int(sizes[root]), 0, -1, 0, 0
        while node < size:
            parent, end = int(np.int64(parents[start + node])), node
            if parent <= before or parent > node:
                return _PARENT, root
            if parent > 0 and not expanded[start + parent - 1]:
                return _EXPANDED, root
            depth = 1 if parent == 0 else int(np.int64(depths[parent - 1])) + 1
            while end < size and parents[start + end] == parent:
                depths[end] = depth
                num_expanded += expanded[start + end]
                end += 1
            if depth > most_depth or (depth == most_depth and expanded[start + node : start + end].any()):
                return _DEEP, root
            number = _next_number(number, seen)
            own = slice(start + node, start + end)
            fault = candidates_fault(tokens[own], log_probs[own], vocab_size, seen, number)
            if fault != WHOLE:
                return fault, root
            if top_k > 0 and end - node != top_k:
                return _CHILDREN, root
            node, before, num_groups = end, parent, num_groups + 1
        if top_k > 0 and num_groups != num_expanded + 1:
            return _CHILDREN, root
        start += size
    return WHOLE, 0


@borrowing_kernel
def _next_number(number: int, seen: Shorts) -> int:
    """The number of the next candidates; where numbers begin again, none was seen."""
    if number + 1 == MOST_NUMBERS:
        seen[:] = 0
        return 1
    return number + 1


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
