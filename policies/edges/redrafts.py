"""A chain, and what a second drafter says behind its likely rejections: D²SD's boundaries, and lists of candidates."""

from typing import NamedTuple

import numpy as np

from simlab.arrays import Floats, Ints, Longs
from simlab.grid import LOWEST, STEPS_PER_NAT, weight_scalar
from simlab.jit import borrowing_kernel, kernel
from simlab.policies.edges.correction import cost_of
from simlab.policies.edges.lattice import LEAF, Lattice, lattice_of_size

NO_TOKEN = -1
"""In place of a token, where the drafter kept no candidate at a depth; the chain ends there."""

_WEIGHT_UNITS = 2.0**40


class BranchLists(NamedTuple):
    """The chain and the branches at some roots, as kernels read them.

    Attributes:
        chain_ids: int32 ``[N, D]``, the first candidate of each depth, or `NO_TOKEN`.
        chain_log_probs: float32 ``[N, D]``.
        likely: int32 ``[N, C]``, as `likely_rejections` has them; -1 behind the last.
        rows: int64 ``[N, D + 1]``, the first row of the branch behind so many tokens of the chain; -1: none is read.
        ids: int32 ``[S, K]``, a row for each of the depths behind a branch's beginning, branch after branch.
        log_probs: float32 ``[S, K]``.
        depth: the last depth of every branch.
        top_k: so many candidates of each row are read.
    """

    chain_ids: Ints
    chain_log_probs: Floats
    likely: Ints
    rows: Longs
    ids: Ints
    log_probs: Floats
    depth: int
    top_k: int


@kernel
def likely_rejections(log_probs: Floats, count: int, whole: bool) -> Ints:
    """How many tokens of a chain are most probably accepted before one is rejected, the likeliest first.

    The chain is rejected right behind its first i tokens with the probability r(i), the product of their probabilities
    times 1 less the next one's. As everywhere path probabilities are multiples of 2**-40, and r(i) is a difference of
    two. Of equal ones the smaller i comes first.

    Args:
        log_probs: float32 ``[D]``, of the chain's tokens, on the grid.
        count: of so many boundaries i < D at most.
        whole: whether D itself, behind which the chain has nothing more, is listed besides.

    Returns:
        int32 ``[min(count, D)]``, or one more.
    """
    depth, reached, score = log_probs.size, 1.0, 0.0
    chances = np.empty(depth + 1, np.int64)
    for length in range(depth):
        score += log_probs[length]
        behind = weight_scalar(score)
        chances[length] = np.int64((reached - behind) * _WEIGHT_UNITS)
        reached = behind
    chances[depth] = np.int64(reached * _WEIGHT_UNITS)
    chosen = np.argsort(-chances[:depth], kind="mergesort")[:count].astype(np.int32)
    if not whole:
        return chosen
    index = 0
    while index < chosen.size and chances[chosen[index]] >= chances[depth]:
        index += 1
    return np.concatenate((chosen[:index], np.array([depth], np.int32), chosen[index:]))


@borrowing_kernel
def chain_length(chain_ids: Ints) -> int:
    """How many tokens a chain int32 ``[D]`` has."""
    length = 0
    while length < chain_ids.size and chain_ids[length] != NO_TOKEN:
        length += 1
    return length


@kernel
def rows_read(
    chain_ids: Ints, chain_log_probs: Floats, lengths: Ints, starts: Longs, depth: int, count: int, whole: bool
) -> tuple[Ints, Longs]:
    """The branches that are read at some roots, and where their rows begin.

    Args:
        chain_ids: int32 ``[N, D]``, as `BranchLists` has them.
        chain_log_probs: float32 ``[N, D]``.
        lengths: int32 ``[N, B]``, of the branches that there are, rising; -1 behind the last.
        starts: int64 ``[N]``, the first row of each root.
        depth: the last depth of every branch.
        count: boundaries whose branches are read.
        whole: whether the branch behind the whole chain is read besides.

    Returns:
        ``likely`` and ``rows`` of `BranchLists`.
    """
    num_roots, num_depths = chain_ids.shape
    likely = np.full((num_roots, min(count, num_depths) + whole), -1, np.int32)
    rows = np.full((num_roots, num_depths + 1), -1, np.int64)
    for root in range(num_roots):
        length = chain_length(chain_ids[root])
        depths = likely_rejections(chain_log_probs[root, :length], count, whole)
        for index in range(depths.size):
            likely[root, index] = depths[index]
        row = starts[root]
        for column in range(lengths.shape[1]):
            here = lengths[root, column]
            if here < 0:
                break
            for likely_depth in depths:
                if likely_depth == here:
                    rows[root, here] = row
            row += depth - here
    return likely, rows


@kernel
def empty_branch_lattice(lists: BranchLists) -> Lattice:
    """A lattice to be filled by any of these roots."""
    width, num_depths = min(lists.top_k, lists.ids.shape[1]) + 1, lists.chain_ids.shape[1]
    num = num_depths + lists.likely.shape[1] * lists.depth + 1
    return lattice_of_size(num * width, num)


@borrowing_kernel
def fill_branches(lattice: Lattice, lists: BranchLists, root: int) -> int:
    """The lists of one root: one for each token of the chain, and behind each branch's first one for each depth more.

    Where a branch stands behind i tokens, the list there has the chain's own next token with its probability c, and
    the other candidates of the branch's first row with what is left: 1 - c times their share of the row without that
    token. So a branch says what follows if the chain is rejected there. Where no branch is read the chain's token
    stands alone.

    Args:
        lattice: from `empty_branch_lattice`.
        lists: chain and branches.
        root: one of their roots.

    Returns:
        How many lists there are.
    """
    num_chain = chain_length(lists.chain_ids[root])
    lattice.starts[0] = lattice.ends[0] = 0
    if num_chain == 0:
        return 1
    rows = lists.rows[root]
    num, end, last = num_chain, 0, num_chain - 1
    for length in range(num_chain):
        row, more = rows[length], lists.depth - length - 1
        behind = num if row >= 0 and more > 0 else LEAF
        lattice.starts[length] = end
        end = _fill_boundary(lattice, lists, root, length, row, behind, end)
        lattice.ends[length] = end
        lattice.below[_place_of_chain(lattice, lists, root, length)] = length + 1 if length < last else LEAF
        if behind != LEAF:
            num, end = _fill_rows(lattice, lists, row + 1, more, num, end)
    if rows[num_chain] >= 0:
        lattice.below[_place_of_chain(lattice, lists, root, last)] = num
        num, end = _fill_rows(lattice, lists, rows[num_chain], lists.depth - num_chain, num, end)
    return num


@borrowing_kernel
def _place_of_chain(lattice: Lattice, lists: BranchLists, root: int, length: int) -> int:
    """Where the chain's token behind its first ``length`` tokens stands."""
    index = lattice.starts[length]
    while lattice.tokens[index] != lists.chain_ids[root, length]:
        index += 1
    return int(index)


@borrowing_kernel
def _fill_boundary(
    lattice: Lattice, lists: BranchLists, root: int, length: int, row: int, behind: int, start: int
) -> int:
    """The list behind the first ``length`` tokens of the chain; where it ends.

    Args:
        lattice: to be filled.
        lists: chain and branches.
        root: one of their roots.
        length: of the beginning of the chain.
        row: the branch's first row; -1: none is read.
        behind: the list that lies below its other candidates.
        start: where the list begins.
    """
    token, log_prob = lists.chain_ids[root, length], np.float64(lists.chain_log_probs[root, length])
    end = _insert(lattice, start, start, token, cost_of(log_prob), LEAF)
    if row >= 0:
        width, own = min(lists.top_k, lists.ids.shape[1]), 0.0
        for rank in range(width):
            if lists.ids[row, rank] == token:
                own = np.exp(np.float64(lists.log_probs[row, rank]))
        left, others = 1.0 - np.exp(log_prob), 1.0 - own
        scale = np.log(left) - np.log(others) if left > 0.0 and others > 0.0 else LOWEST
        for rank in range(width):
            if lists.ids[row, rank] != token:
                cost = cost_of(scale + np.float64(lists.log_probs[row, rank]))
                end = _insert(lattice, start, end, lists.ids[row, rank], cost, behind)
    for index in range(start, end):
        lattice.ranks[index] = index - start
    return end


@borrowing_kernel
def _insert(lattice: Lattice, start: int, end: int, token: int, cost: int, below: int) -> int:
    """Put a candidate into a list behind all that cost as much or less; where the list ends now."""
    index = end
    while index > start and lattice.costs[index - 1] > cost:
        lattice.costs[index], lattice.tokens[index] = lattice.costs[index - 1], lattice.tokens[index - 1]
        lattice.below[index] = lattice.below[index - 1]
        index -= 1
    lattice.costs[index], lattice.tokens[index], lattice.below[index] = cost, token, below
    return end + 1


@borrowing_kernel
def _fill_rows(lattice: Lattice, lists: BranchLists, row: int, count: int, num: int, end: int) -> tuple[int, int]:
    """A list for each of some rows, one below the other; how many lists and candidates there are then."""
    width = min(lists.top_k, lists.ids.shape[1])
    for offset in range(count):
        below = num + 1 if offset + 1 < count else LEAF
        lattice.starts[num] = end
        for rank in range(width):
            lattice.tokens[end] = lists.ids[row + offset, rank]
            lattice.costs[end] = np.int32(lists.log_probs[row + offset, rank] * np.float32(-STEPS_PER_NAT))
            lattice.ranks[end], lattice.below[end] = rank, below
            end += 1
        lattice.ends[num] = end
        num += 1
    return num, end


@borrowing_kernel
def true_branch_reach(lists: BranchLists, root: int, text: Ints) -> int:
    """How many true tokens behind a root one beginning of the chain and its branch hold.

    Args:
        lists: chain and branches.
        root: one of their roots.
        text: int32, the true tokens behind it.
    """
    num_chain, reach = chain_length(lists.chain_ids[root]), 0
    width = min(lists.top_k, lists.ids.shape[1])
    for length in range(min(num_chain, text.size) + 1):
        reach, depth, row = max(reach, length), length, lists.rows[root, length]
        while row >= 0 and depth < min(lists.depth, text.size):
            rank = 0
            while rank < width and lists.ids[row, rank] != text[depth]:
                rank += 1
            if rank == width:
                break
            row, depth = row + 1, depth + 1
        reach = max(reach, depth)
        if length < num_chain and (length == text.size or lists.chain_ids[root, length] != text[length]):
            break
    return reach
