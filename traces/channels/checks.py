"""The invariants of a channel, one sequence at a time; ``docs/reference/trace_format.md`` lists them."""

from collections.abc import Iterator

import numpy as np

from simlab.arrays import Bools, Floats, Ints, Longs, Shorts
from simlab.channels import TRANSITIONS, BranchRows, PoolRows, TransitionRows
from simlab.channels.rows import WHOLE_CHAIN
from simlab.grid import LOWEST
from simlab.jit import borrowing_kernel
from simlab.recorded import DraftRows, RecordedSequence
from simlab.traces.channels.columns import (
    ChannelColumns,
    FeatureColumns,
    ListedColumns,
)
from simlab.traces.format.checks import (
    ID,
    MASS_TOLERANCE,
    MOST_NUMBERS,
    TWICE,
    WHOLE,
    WORDS,
    Fault,
    candidates_fault,
    fault_words,
)
from simlab.traces.format.manifest import Manifest
from simlab.traces.format.manifest_entries import ChannelInfo

# The invariants that every read of a channel is held to, in one compiled pass; the writer and `simlab inspect` look at
# more.


_BASE, _PARENT, _EXPANDED, _DEEP, _CHILDREN = range(16, 21)

CHANNEL_WORDS = {
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


def transition_fault(
    previous: Ints,
    ids: Ints,
    log_probs: Floats,
    base: DraftRows | None,
    shape: tuple[Ints, int, int],
) -> Fault:
    """Why a replay could not trust transitions.

    Args:
        previous: int32 ``[R (S - 1)]``, of all these texts.
        ids: int32 ``[R S, W]``.
        log_probs: float32, the same.
        base: the rows of the draft set that they extend; None where these were not read.
        shape: as `transition_shape` gives it.
    """
    num_rows, _, vocab_size = shape
    nothing = np.empty(0, np.int32)
    return _first_transition_fault(
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


def pool_fault(flat: tuple[Longs, Ints, Ints, Floats, Bools], info: ChannelInfo, vocab_size: int) -> Fault:
    """Why a replay could not trust pools.

    Args:
        flat: sizes, tokens, parents, log_probs and expanded, of all these texts.
        info: what the manifest says of them.
        vocab_size: of the target.
    """
    depths = np.zeros(int(flat[0].max(initial=0)), np.int32)
    seen = np.zeros(vocab_size, np.uint16)
    return _first_pool_fault(*flat, info.setting("depth"), info.setting("top_k"), vocab_size, depths, seen)


def branches_of(info: ChannelInfo, manifest: Manifest) -> range:
    """Behind how many tokens of the chain each root of a channel of branches has one."""
    assert info.extends is not None
    first = manifest.draft_sets[info.extends].depth if info.setting(WHOLE_CHAIN) == 1 else 0
    return range(first, first + info.setting("branches"))


def branch_fault(ids: Ints, log_probs: Floats, num_rows: int, vocab_size: int) -> Fault:
    """Why a replay could not trust branches.

    Args:
        ids: int32 ``[R S, K]``, of all these texts.
        log_probs: float32, the same.
        num_rows: S, the rows of each root.
        vocab_size: of the target.
    """
    return _first_branch_fault(ids, log_probs, num_rows, vocab_size, np.zeros(vocab_size, np.uint16))


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
    if rows.kind != info.kind:
        yield f"expected {info.kind}; got {rows.kind}"
        return
    if len(rows) != len(recorded.text) - 1:
        yield f"expected {len(recorded.text) - 1} rows, one for each root; got {len(rows)}"
        return
    if isinstance(columns, ListedColumns):
        if isinstance(columns.rows, BranchRows):
            yield from _branch_problems(columns.rows, info, manifest)
        elif recorded.rows is None:
            raise ValueError(f"{TRANSITIONS} are checked beside the rows of the draft set that they extend")
        else:
            yield from _transition_problems(columns.rows, info, manifest, recorded.rows)
        yield from _outside_problems(columns.rows.log_probs, columns.outside_log_mass)
        return
    if isinstance(columns, FeatureColumns):
        if columns.rows.values.shape[1] != info.width:
            yield f"every root has {info.width} features; got {columns.rows.values.shape[1]}"
        return
    labels = columns.target_log_probs
    if not ((labels >= LOWEST) & (labels <= 0)).all():
        yield f"target_log_probs must lie from {LOWEST:g} to 0"
    yield from _pool_problems(columns.rows, info, manifest.vocab_size)


def _transition_problems(rows: TransitionRows, info: ChannelInfo, manifest: Manifest, base: DraftRows) -> Iterator[str]:
    shape = transition_shape(info, manifest)
    num_rows, width, _ = shape
    if rows.num_rows.shape[1] != len(num_rows) or (rows.num_rows != num_rows).any():
        yield f"every root has {' + '.join(map(str, num_rows.tolist()))} rows; got others"
        return
    if rows.ids.shape[1] != width:
        yield f"every row has {width} candidates; got {rows.ids.shape[1]}"
        return
    yield from fault_words(transition_fault(rows.previous, rows.ids, rows.log_probs, base, shape), CHANNEL_WORDS)


def _branch_problems(rows: BranchRows, info: ChannelInfo, manifest: Manifest) -> Iterator[str]:
    behind = branches_of(info, manifest)
    if rows.lengths.shape[1] != len(behind) or (rows.lengths != np.array(behind)).any():
        yield f"every root has branches behind {behind[0]} to {behind[-1]} tokens; got others"
        return
    if rows.depth != info.setting("depth") or rows.ids.shape[1] != info.setting("top_k"):
        yield (
            f"branches go to the depth {info.setting('depth')} with {info.setting('top_k')} candidates a row; got "
            f"{rows.depth} and {rows.ids.shape[1]}"
        )
        return
    num_rows = sum(rows.depth - length for length in behind)
    yield from fault_words(branch_fault(rows.ids, rows.log_probs, num_rows, manifest.vocab_size), CHANNEL_WORDS)


def _outside_problems(log_probs: Floats, outside: Floats) -> Iterator[str]:
    """Those of the mass of each row of candidates, ``[S, W]``, that is not kept."""
    if not ((outside >= LOWEST) & (outside <= 0)).all():
        yield f"outside_log_mass must lie from {LOWEST:g} to 0"
        return
    mass = np.exp(log_probs.astype(np.float64)).sum(axis=1) + np.exp(outside.astype(np.float64))
    if (np.abs(mass - 1) > MASS_TOLERANCE).any():
        yield "kept and outside mass of a row must add up to 1"


def _pool_problems(rows: PoolRows, info: ChannelInfo, vocab_size: int) -> Iterator[str]:
    flat = rows.sizes, rows.tokens, rows.parents, rows.log_probs, rows.expanded
    fault = pool_fault(flat, info, vocab_size)
    yield from fault_words(fault, CHANNEL_WORDS)
    if fault[0] != WHOLE:
        return
    # A number for each node and, before those of its pool, one for the root.
    root = np.repeat(np.arange(len(rows)), rows.sizes)
    first = np.concatenate([[0], np.cumsum(rows.sizes)])[:-1] + np.arange(len(rows))
    mass = np.bincount(first[root] + rows.parents, np.exp(rows.log_probs.astype(np.float64)))
    if (mass > 1 + MASS_TOLERANCE).any():
        yield "the children of a node have more than the whole mass"
