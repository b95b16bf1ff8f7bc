"""All paths of candidates within a limit of cost, depth after depth."""

import numpy as np

from simlab.arrays import Ints
from simlab.jit import inlined_kernel
from simlab.policies.edges.children import ELSEWHERE, SPINE, Children

_NODE, _NOWHERE = -1, -2


@inlined_kernel
def gather_paths(children: Children, kind: int, first: int, last: int, limit: int, sums: Ints) -> tuple[int, int, int]:
    """The costs of the paths below one node: shorter ones first, those of a depth as their parents and lists are.

    Args:
        children: the candidates.
        kind: of the node, `SPINE` or `ELSEWHERE`.
        first: its depth.
        last: the paths end at this depth or before it; below ``first``.
        limit: so much a path may cost, from the node on.
        sums: int32, to be filled.

    Returns:
        How many there are; where those of depth ``last`` begin; which of these has first candidates alone and is so on
        the spine, or a negative number. If they do not fit, the first is one more than the size of ``sums``, which is
        full of paths within the limit.
    """
    costs, number, begin, end, spine = children.costs, 0, _NODE, 0, _NODE if kind == SPINE else _NOWHERE
    for depth in range(first, last):
        above, spine = spine, _NOWHERE
        for parent in range(begin, end):
            base, first_child, own = np.int32(0), number, SPINE if parent == above else ELSEWHERE
            if parent != _NODE:
                base = sums[parent]
            left, start = np.int32(limit - base), children.starts[own, depth]
            for index in range(start, children.ends[own, depth]):
                if costs[index] > left:
                    break
                if number == sums.size:
                    return number + 1, 0, _NOWHERE
                sums[number] = base + costs[index]
                number += 1
            if parent == above:
                spine = _first_candidate(children, start, first_child, number)
        begin, end = end, number
    return number, begin, spine


@inlined_kernel
def _first_candidate(children: Children, start: int, first: int, end: int) -> int:
    """Which of the children of a node is the drafter's first candidate."""
    for number in range(first, end):
        if children.ranks[start + number - first] == 0:
            return number
    return _NOWHERE
