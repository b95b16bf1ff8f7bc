"""A draft tree as one pass of the target under a mask of its own, and the walk down the tree after it."""

from collections.abc import Collection

import numpy as np
import torch
from torch import Tensor

from simlab.real_runner.decoding.decoded import Choose, RunningText, chooser
from simlab.real_runner.targets.model import Target
from simlab.sampling.choice import Sampling
from simlab.tree import DraftTree


class TreeMask:
    """The mask of one text's trees. Before the root all is visible and nothing needs to be written.

    Room is doubled when it runs out, so a round makes nothing that grows with the text.
    """

    def __init__(self, target: Target) -> None:
        self._heads_per_group = target.heads_per_group
        self._held = torch.zeros(1, 1, 0, 0, dtype=target.dtype, device=target.device)
        self._last = self._held

    def of(self, tree: DraftTree, position: int) -> Tensor:
        """What is added to the scores below a root at an absolute position: 0 where a token is visible, -inf elsewhere.

        Each node sees the text before the root, its ancestors and itself.

        Returns:
            ``[1, 1, heads_per_group x (N + 1), position + N + 1]``, a view that the next call overwrites.
        """
        num_rows, stop = self._heads_per_group * tree.num_nodes, position + tree.num_nodes
        self._last.zero_()
        if num_rows > self._held.shape[2] or stop > self._held.shape[3]:
            rows, columns = max(num_rows, self._held.shape[2]), max(2 * stop, self._held.shape[3])
            self._held = self._held.new_zeros(1, 1, rows, columns)
        hidden = torch.zeros(tree.num_nodes, tree.num_nodes, dtype=self._held.dtype)
        hidden.masked_fill_(~torch.from_numpy(tree.ancestor_mask()), float("-inf"))
        self._last = self._held[:, :, :num_rows, position:stop]
        self._last.copy_(hidden.repeat(self._heads_per_group, 1))
        return self._held[:, :, :num_rows, :stop]


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


Walked = tuple[tuple[int, ...], tuple[int, ...]]
"""How far the target goes down a tree: see `follow`."""


def walk(target: Target, logits: Tensor, sampling: Sampling, text: RunningText, tree: DraftTree) -> Walked:
    """Follow the choices that the target makes of its logits ``[N + 1, V]`` at the nodes of a text's tree."""
    choose = chooser(target, logits, sampling, text.key)
    return follow(tree, choose, text.position, text.num_left, text.stop_token_ids)


def follow(tree: DraftTree, choose: Choose, position: int, num_left: int, stop_token_ids: Collection[int]) -> Walked:
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
