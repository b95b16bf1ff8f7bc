"""Where the true path is in the best-first tree of one root, whatever scores its edges."""

from typing import NamedTuple

import numpy as np

from simlab.arrays import Doubles, Floats, Ints, Longs, Shorts
from simlab.grid import STEPS_PER_NAT
from simlab.jit import borrowing_kernel, inlined_kernel, kernel
from simlab.policies.edges.children import SPINE, Children, fill_costs, fill_marginal, room_for_children
from simlab.policies.edges.correction import Correction, fit_weights
from simlab.policies.edges.rank_classes import fill_mapped, mapped_limit
from simlab.policies.edges.text_counts import token_before
from simlab.policies.kernels.corrected_insertion import Room as CorrectedRoom
from simlab.policies.kernels.corrected_insertion import corrected_insertions_into, room_to_count
from simlab.policies.kernels.gather import gather_paths
from simlab.policies.kernels.insertion import Room, insertions_into, room_for_places
from simlab.recorded import Roots


class EdgeScores(NamedTuple):
    """What the edges of best-first trees are scored with.

    Attributes:
        top_k: ranks that are read at each depth.
        edge_map: as in `simlab.policies.edges.models.EdgeModel`; None: no map.
        correction: of a 3-gram; None: none.
    """

    top_k: int
    edge_map: Doubles | None
    correction: Correction | None


class Desk(NamedTuple):
    """Room to work in.

    Attributes:
        children: for the candidates of a root.
        room: to count in.
        corrected_room: to count in where a 3-gram corrects the scores.
        guess: int64 ``[1]``, a limit of costs to begin with; it changes how long things take and nothing else.
    """

    children: Children
    room: Room
    corrected_room: CorrectedRoom
    guess: Longs


@kernel
def desk_for(roots: Roots, top_k: int, most: int) -> Desk:
    """Room for any of these roots, and places up to ``most``."""
    num_depths, widest = roots.counts.shape[1], _widest(roots.counts, top_k)
    children, room = room_for_children(num_depths, widest), room_for_places(num_depths, most)
    return Desk(children, room, room_to_count(num_depths, widest), np.full(1, 4 * STEPS_PER_NAT, np.int64))


@kernel
def _widest(counts: Ints, top_k: int) -> int:
    """The most candidates at any depth that are read."""
    return int(min(max(counts.max(), 1), top_k)) if counts.size > 0 else 1


@inlined_kernel
def look_plain(roots: Roots, top_k: int, root: int, most: int, desk: Desk, insertions: Shorts) -> None:
    """The places of the true path at one root, by the drafter's own scores.

    Args:
        roots: of all texts.
        top_k: ranks that are read at each depth.
        root: one of the roots.
        most: places above it are `simlab.policies.kernels.insertion.NEVER`.
        desk: for as many.
        insertions: uint16 ``[R, D]``; the row of the root is filled.
    """
    counts, true_ranks, start = roots.counts[root], roots.true_ranks[root], roots.starts[root]
    limit = _limit(roots.log_probs, counts, true_ranks, start, top_k, most)
    fill_costs(desk.children, roots.log_probs, counts, start, top_k, limit)
    insertions_into(desk.children, true_ranks, most, desk.room, insertions[root], limit)


@borrowing_kernel
def look_mapped(
    roots: Roots, top_k: int, edge_map: Doubles, root: int, most: int, desk: Desk, insertions: Shorts
) -> None:
    """The same after a map. It takes long, so only as many candidates are sent through it as the first nodes need."""
    counts, true_ranks, start, children = roots.counts[root], roots.true_ranks[root], roots.starts[root], desk.children
    highest = mapped_limit(roots.log_probs, counts, true_ranks, start, top_k, edge_map)
    limit = min(highest, desk.guess[0])
    fill_mapped(children, roots.ids, roots.log_probs, counts, start, top_k, edge_map, limit)
    while limit < highest:
        number, _, _ = gather_paths(children, SPINE, 0, counts.size, limit, desk.room.other)
        if number > most:
            desk.guess[0] = limit - limit // 32
            break
        limit = min(highest, limit + limit // 4 + STEPS_PER_NAT // 4)
        desk.guess[0] = limit
        fill_mapped(children, roots.ids, roots.log_probs, counts, start, top_k, edge_map, limit)
    insertions_into(children, true_ranks, most, desk.room, insertions[root], limit)


@borrowing_kernel
def look_corrected(
    roots: Roots, top_k: int, correction: Correction, text: int, root: int, most: int, desk: Desk, insertions: Shorts
) -> None:
    """The same where a 3-gram corrects the scores; the text is counted up to the root, if its counts are read."""
    children, room = desk.children, desk.corrected_room
    fill_marginal(children, roots.ids, roots.log_probs, roots.counts[root], roots.starts[root], top_k)
    fit_weights(correction, children)
    before, token = token_before(roots, text, root), int(roots.tokens[roots.places[root]])
    ranks, found = roots.true_ranks[root], insertions[root]
    corrected_insertions_into(children, correction, before, token, ranks, ranks.size, most, room, found)


@inlined_kernel
def _limit(log_probs: Floats, counts: Ints, true_ranks: Ints, start: int, top_k: int, most: int) -> int:
    """What the true path costs as far as it may be among the first nodes; -1 where its first token is not.

    All paths that have a smaller or equal rank at each depth come before it.
    """
    limit, num_equal, num_before = -1, 1, 0
    for depth in range(counts.size):
        rank = true_ranks[depth]
        if not 0 <= rank < min(counts[depth], top_k):
            break
        num_equal *= rank + 1
        num_before += num_equal
        if num_before > most:
            break
        limit = max(limit, 0) + int(log_probs[start + rank] * np.float32(-STEPS_PER_NAT))
        start += counts[depth]
    return limit


@inlined_kernel
def num_kept_paths(counts: Ints, root: int, top_k: int, most: int) -> int:
    """How many candidates there are below a root, at most so many."""
    total, level = 0, 1
    for depth in range(counts.shape[1]):
        level = min(level * min(counts[root, depth], top_k), most)
        total = min(total + level, most)
    return total
