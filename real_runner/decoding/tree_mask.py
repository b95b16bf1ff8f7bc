"""What the nodes of a tree see, kept from round to round and written only where trees differ."""

import torch
from torch import Tensor

from simlab.real_runner.targets.model import Target
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
