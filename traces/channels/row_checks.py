"""The invariants that every read of a channel is held to, in one compiled pass.

`simlab.traces.channels.checks` has all of them, in numpy, for the writer and for `simlab inspect`; what breaks one of
these there breaks it here, and what is whole there is whole here.
"""

from collections.abc import Sequence

import numpy as np

from simlab.arrays import Bools, Floats, Ints, Longs, Shorts
from simlab.channels.rows import WHOLE_CHAIN
from simlab.jit import borrowing_kernel
from simlab.recorded import DraftRows
from simlab.traces.format.manifest import Manifest
from simlab.traces.format.manifest_entries import ChannelInfo
from simlab.traces.format.records import SequenceRecord
from simlab.traces.format.row_checks import ID, MOST_NUMBERS, TWICE, WHOLE, WORDS, candidates_fault, firsts_of, refuse

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
        log_probs: float32, likewise.
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
        log_probs: float32, likewise.
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
    for place in range(previous.size):
        if previous[place] != base_ids[place]:
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
