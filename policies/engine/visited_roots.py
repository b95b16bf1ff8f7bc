"""Fixed budgets on many texts: only the roots that some budget comes to are looked at, each once.

Rounds are added up as they are met, so that a thousand budgets take no more memory than one.
"""

from typing import NamedTuple

import numpy as np

from simlab.arrays import Bools, Doubles, Ints, Longs, Shorts
from simlab.cost import StageTable, add_seconds
from simlab.jit import borrowing_kernel, kernel
from simlab.policies.edges.correction import Correction
from simlab.policies.kernels.true_places import (
    EdgeScores,
    Workspace,
    find_corrected_true_places,
    find_mapped_true_places,
    find_true_places,
    num_kept_paths,
    workspace_for,
)
from simlab.policies.orders.walk import num_accepted
from simlab.recorded import Roots
from simlab.totals import ACCEPTED, CLIPPED, COMMITTED, COUNTS, DRAFTED, ROUNDS

_NUM_COUNTS = len(COUNTS)


class KnownRoots(NamedTuple):
    """What is known of each root.

    Attributes:
        insertions: uint16 ``[R, D]``.
        num_available: int32 ``[R]``.
        is_known: bool ``[R]``.
    """

    insertions: Shorts
    num_available: Ints
    is_known: Bools


def no_known_roots(roots: Roots) -> KnownRoots:
    """What is known before any root was met, with arrays to be filled."""
    num = len(roots.places)
    return KnownRoots(np.empty(roots.counts.shape, np.uint16), np.zeros(num, np.int32), np.zeros(num, np.bool_))


def sum_budgets(
    roots: Roots, edges: EdgeScores, most: int, budgets: Ints, known: KnownRoots, contexts: Longs, table: StageTable
) -> tuple[Longs, Doubles]:
    """The sums over the rounds of trees of several budgets on each text.

    Args:
        roots: of all texts.
        edges: without counts of the text; read where something is not known yet.
        most: places above it are not told apart; no budget that ever reads what is known is larger.
        budgets: int32 ``[B]``, drafted tokens.
        known: from roots that were met before; filled for those that are met.
        contexts: int64 ``[R]``, tokens before each root.
        table: what rounds cost, for every budget and context that there is; of no stage: nothing.

    Returns:
        int64 ``[B, S, C]``, the `simlab.totals.COUNTS`; float64 ``[B, S, P]``, seconds of each stage of the table.
    """
    return _sums_of_budgets(roots, *edges, most, budgets, known, contexts, table)


@kernel
def _sums_of_budgets(
    roots: Roots,
    top_k: int,
    edge_map: Doubles | None,
    correction: Correction | None,
    most: int,
    budgets: Ints,
    known: KnownRoots,
    contexts: Longs,
    table: StageTable,
) -> tuple[Longs, Doubles]:
    shape = (budgets.size, roots.firsts.size - 1)
    sums, seconds = np.zeros((*shape, _NUM_COUNTS), np.int64), np.zeros((*shape, table.seconds.shape[2]), np.float64)
    workspace = workspace_for(roots, top_k, most)
    _sum_budgets(roots, top_k, edge_map, correction, most, budgets, known, contexts, table, workspace, sums, seconds)
    return sums, seconds


@borrowing_kernel
def _sum_budgets(
    roots: Roots,
    top_k: int,
    edge_map: Doubles | None,
    correction: Correction | None,
    most: int,
    budgets: Ints,
    known: KnownRoots,
    contexts: Longs,
    table: StageTable,
    workspace: Workspace,
    sums: Longs,
    seconds: Doubles,
) -> None:
    """`sum_budgets`; what is None is not even compiled."""
    insertions, available, is_known, firsts = known.insertions, known.num_available, known.is_known, roots.firsts
    for text in range(firsts.size - 1):
        last = firsts[text + 1]
        for place in range(budgets.size):
            rounds, drafted, accepted, clipped, root = 0, 0, 0, 0, firsts[text]
            while root < last:
                if not is_known[root]:
                    is_known[root] = True
                    if correction is not None:
                        find_corrected_true_places(roots, top_k, correction, text, root, most, workspace, insertions)
                    elif edge_map is not None:
                        find_mapped_true_places(roots, top_k, edge_map, root, most, workspace, insertions)
                    else:
                        find_true_places(roots, top_k, root, most, workspace, insertions)
                    available[root] = num_kept_paths(roots.counts, root, top_k, most)
                now_drafted = int(min(available[root], budgets[place]))
                now_accepted = num_accepted(insertions, root, now_drafted)
                if table.seconds.shape[2] > 0:
                    add_seconds(table, int(contexts[root]), now_drafted, seconds[place, text])
                rounds, drafted, accepted = rounds + 1, drafted + now_drafted, accepted + now_accepted
                root += now_accepted + 1
                clipped += root > last
            row = sums[place, text]
            row[ROUNDS], row[DRAFTED], row[ACCEPTED] = rounds, drafted, accepted
            row[COMMITTED], row[CLIPPED] = last - firsts[text], clipped


@kernel
def sum_rounds(roots: Longs, num_drafted: Longs, num_accepted: Longs, ends: Longs, firsts: Longs) -> Longs:
    """The sums over rounds of each text.

    Args:
        roots: int64 ``[N]``, where each round starts.
        num_drafted: int64 ``[N]``.
        num_accepted: int64 ``[N]``.
        ends: int64 ``[S]``, where the rounds of each text end.
        firsts: int64 ``[S + 1]``, the first root of each text.

    Returns:
        int64 ``[S, C]``, the `simlab.totals.COUNTS`.
    """
    sums, start = np.zeros((ends.size, _NUM_COUNTS), np.int64), 0
    for text in range(ends.size):
        for place in range(start, ends[text]):
            left = firsts[text + 1] - roots[place]
            sums[text, ROUNDS] += 1
            sums[text, DRAFTED] += num_drafted[place]
            sums[text, ACCEPTED] += num_accepted[place]
            sums[text, COMMITTED] += min(num_accepted[place] + 1, left)
            sums[text, CLIPPED] += num_accepted[place] == left
        start = ends[text]
    return sums
