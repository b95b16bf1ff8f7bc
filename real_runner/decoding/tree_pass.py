"""A draft tree as one pass of the target, and the walk down the tree after it."""

from collections.abc import Collection

import numpy as np
import torch
from torch import Tensor

from simlab.real_runner.decoding.choice import Choose
from simlab.real_runner.decoding.tree_mask import TreeMask
from simlab.tree import DraftTree


def pass_of(tree: DraftTree, position: int, mask: TreeMask) -> tuple[Tensor, Tensor, Tensor]:
    """What the target reads, sees and where.

    Args:
        tree: of ``N + 1`` nodes.
        position: absolute position of the root; so many tokens lie before it.
        mask: of the text.

    Returns:
        Token ids int64 ``[1, N + 1]``; what `TreeMask.of` gives; absolute positions int64 ``[1, N + 1]``.
    """
    positions = torch.from_numpy(position + tree.depths().astype(np.int64))
    ids, added = torch.from_numpy(tree.tokens.astype(np.int64)), mask.of(tree, position)
    return ids[None].to(added.device), added, positions[None].to(added.device)


def follow(
    tree: DraftTree, choose: Choose, position: int, num_left: int, stop_token_ids: Collection[int]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Follow the target's choices down the tree.

    A stop token, and the last token allowed, end the walk, also where they were drafted.

    Args:
        tree: what was verified.
        choose: the target's choice after a node, at an absolute position.
        position: of the root.
        num_left: tokens that the text may still have, at least 1.
        stop_token_ids: end a text.

    Returns:
        Accepted nodes from the root down, the root left out; and the tokens of the round, which are the
        accepted ones and, where the text goes on or ends at a token that was not drafted, the bonus token.
    """
    path: list[int] = []
    committed: list[int] = []
    here = 0
    while True:
        token = choose(here, position + 1 + len(committed))
        committed.append(token)
        child = np.flatnonzero((tree.parents == here) & (tree.tokens == token))
        if len(child):
            here = int(child[0])
            path.append(here)
        if not len(child) or len(committed) == num_left or token in stop_token_ids:
            return tuple(path), tuple(committed)
