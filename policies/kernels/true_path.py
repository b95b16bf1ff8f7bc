"""Where the true path is in a tree whose nodes are in order."""

from simlab.arrays import Ints, Shorts
from simlab.jit import kernel
from simlab.policies.kernels.take_in_order import PARENTS, RANKS


@kernel
def insert_true_path(tree: Ints, true_ranks: Ints, insertions: Shorts) -> None:
    """The places of the nodes of the true path.

    Args:
        tree: int32 ``[4, N + 1]`` or more rows, as `simlab.policies.kernels.take_in_order` has them.
        true_ranks: int32 ``[D]``, of the true tokens; -1 where a token is none of the drafter's, and behind the text.
        insertions: uint16 ``[D]``, to be filled as far as the tree holds the path.
    """
    depth, here = 0, 0
    for node in range(1, tree.shape[1]):
        if depth == true_ranks.size:
            break
        if tree[PARENTS, node] == here and tree[RANKS, node] == true_ranks[depth]:
            insertions[depth] = node
            depth += 1
            here = node
