"""The rounds of a router on whole texts at once, from the layers of its routes."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from simlab.arrays import Bools, Ints, Longs, Shorts
from simlab.columns import TextRounds
from simlab.jit import kernel
from simlab.policies.orders.node_order import NEVER
from simlab.policies.orders.walk import num_accepted
from simlab.policies.routing.cut_rule import NO_ROUND


class RouteTrees(NamedTuple):
    """What the trees of one route hold at each root.

    Attributes:
        insertions: uint16 ``[R, D]``, the place of each node of the true path, as in an `OrderLayer`.
        num_drafted: int32 ``[R]``, the size of its tree.
        num_asked: int32 ``[R]``, branches that its round pays for; None: it pays for what is declared.
    """

    insertions: Shorts
    num_drafted: Ints
    num_asked: Ints | None = None


def no_trees(num_roots: int) -> RouteTrees:
    """Those of a route that drafts nothing."""
    return RouteTrees(np.empty((num_roots, 0), np.uint16), np.zeros(num_roots, np.int32))


def deepest_of(trees: Sequence[RouteTrees]) -> int:
    """The most tokens that a round of any of these can accept."""
    return max(int(one.insertions.shape[1]) for one in trees)


def accepted_by(trees: Sequence[RouteTrees]) -> Longs:
    """How many tokens a round by each route accepts at each root, int64 ``[routes, R]``."""
    return np.stack([(one.insertions <= one.num_drafted[:, None]).sum(axis=1) for one in trees]).astype(np.int64)


def walk_routes(trees: Sequence[RouteTrees], routes: Ints, firsts: Longs) -> TextRounds:
    """The rounds of a router.

    Args:
        trees: of each route, of the same roots.
        routes: int32 ``[R, A]``, as `simlab.policies.routing.routed_policy.RouteRule.routes_of` gives them.
        firsts: int64 ``[S + 1]``, the first root of each text, and R.
    """
    insertions = np.full((len(trees), int(firsts[-1]), deepest_of(trees)), NEVER, np.uint16)
    for place, one in enumerate(trees):
        insertions[place, :, : one.insertions.shape[1]] = one.insertions
    drafted = np.stack([one.num_drafted for one in trees]).astype(np.int32)
    visited, ends = _walk(insertions, drafted, np.ascontiguousarray(routes), firsts)
    roots, accepted, taken = visited
    asked = None
    if any(one.num_asked is not None for one in trees):
        # A route that asks for nothing pays what it declares, and its entry is not read.
        each = [np.zeros(len(one.num_drafted), np.int32) if one.num_asked is None else one.num_asked for one in trees]
        asked = np.stack(each)[taken, roots].astype(np.int64)
    return TextRounds(roots, drafted[taken, roots].astype(np.int64), accepted, ends, asked, taken)


@kernel
def _walk(insertions: Shorts, num_drafted: Ints, routes: Ints, firsts: Longs) -> tuple[Longs, Longs]:
    """int64 ``[3, N]``, root, accepted tokens and route of each round; int64 ``[S]``, where those of a text end."""
    visited, ends = np.empty((3, insertions.shape[1]), np.int64), np.empty(firsts.size - 1, np.int64)
    number = 0
    for text in range(firsts.size - 1):
        root, before = firsts[text], NO_ROUND
        while root < firsts[text + 1]:
            row, column = min(root, routes.shape[0] - 1), min(before - NO_ROUND, routes.shape[1] - 1)
            taken = routes[row, column]
            accepted = num_accepted(insertions[taken], root, int(num_drafted[taken, root]))
            visited[0, number], visited[1, number], visited[2, number] = root, accepted, taken
            number += 1
            before = accepted
            root += accepted + 1
        ends[text] = number
    return visited[:, :number].copy(), ends


@kernel
def missed_tokens(is_used: Bools, committed: Longs, ends: Longs) -> Longs:
    """What a drafter has missed of the text when it runs again: it catches up, which takes time.

    Tokens of the round before are not among them: every drafter reads those. Neither is the prompt.

    Args:
        is_used: bool ``[N]``, rounds in which it runs.
        committed: int64 ``[N]``, tokens that each round added.
        ends: int64 ``[S]``, where the rounds of each text end.

    Returns:
        int64 ``[N]``, 0 where it does not run.
    """
    missed, start = np.zeros(is_used.size, np.int64), 0
    for text in range(ends.size):
        unread = np.int64(0)
        for place in range(start, ends[text]):
            if is_used[place]:
                missed[place] = unread - committed[place - 1] if place > start else 0
                unread = np.int64(0)
            unread += committed[place]
        start = ends[text]
    return missed
