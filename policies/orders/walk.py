"""From places in the order of nodes to rounds: how a policy of nested trees goes through texts.

Where the target drafts for itself some nodes carry masks. Samragh and others 2025, "Your LLM Knows the Future", arXiv
2507.11851, whose linear and quadratic decoding are the two ends of one number: the masks stand behind the first nodes
in the order in which they enter. Where the last accepted node is one of these, the next root has a draft at no further
pass. Where it is not, the next round drafts nothing: it is a pass of the root with masks behind it, commits one token,
and gives the next root a draft.
"""

import numpy as np

from simlab.arrays import Ints, Longs, Shorts
from simlab.columns import TextRounds
from simlab.jit import inlined_kernel, kernel

EVERY_NODE = 1 << 30
"""As the last node that carries masks: every root has a draft, as where a drafter makes it."""


def walk_layer(
    insertions: Shorts, num_drafted: Ints, firsts: Longs, masked: int = EVERY_NODE, first_draft: bool = True
) -> TextRounds:
    """The rounds of trees that hold the first nodes of an order.

    Args:
        insertions: uint16 ``[R, D]``, the place of each node of the true path at each root, from 1; they rise.
        num_drafted: int32 ``[R]``, the size of the tree at each root, where it has a draft.
        firsts: int64 ``[S + 1]``, the first root of each text, and R.
        masked: the number of the last node that carries masks, the root's being 0; -1: none does.
        first_draft: whether the first root of a text has a draft: masks stand behind the prompt.
    """
    visited, ends = _walk(insertions, num_drafted, firsts, masked, first_draft)
    return TextRounds(visited[0], visited[1], visited[2], ends)


@inlined_kernel
def num_accepted(insertions: Shorts, root: int, num_drafted: int) -> int:
    """How many nodes of the true path are in the tree of a root."""
    accepted = 0
    while accepted < insertions.shape[1] and insertions[root, accepted] <= num_drafted:
        accepted += 1
    return accepted


@kernel
def _walk(insertions: Shorts, num_drafted: Ints, firsts: Longs, masked: int, first_draft: bool) -> tuple[Longs, Longs]:
    """int64 ``[3, N]``: the root, drafted and accepted tokens of each round; and where those of each text end."""
    visited, ends = np.empty((3, insertions.shape[0]), np.int64), np.empty(firsts.size - 1, np.int64)
    number = 0
    for text in range(firsts.size - 1):
        root, has_draft = firsts[text], 1 if first_draft else 0
        while root < firsts[text + 1]:
            drafted = int(num_drafted[root]) if has_draft == 1 else 0
            accepted = num_accepted(insertions, root, drafted) if has_draft == 1 else 0
            last = np.int64(insertions[root, accepted - 1]) if accepted > 0 else np.int64(0)
            has_draft = 1 if has_draft == 0 or last <= masked else 0
            visited[0, number], visited[1, number], visited[2, number] = root, drafted, accepted
            number += 1
            root += accepted + 1
        ends[text] = number
    return visited[:, :number].copy(), ends
