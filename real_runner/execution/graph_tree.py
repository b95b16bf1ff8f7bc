"""A tree as a pass of fixed size: what goes in and what comes out, at addresses that never change."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from simlab.arrays import Bools, Longs
from simlab.tree import DraftTree

NO_PARENT = -1
"""Of the root, and of rows that are no nodes; no choice is looked up there."""


@dataclass(slots=True, eq=False)
class TreePass:
    """A pass over a tree of up to R nodes.

    Attributes:
        nodes: int64 ``[3, R]``: tokens, absolute positions, parents.
        ancestors: bool ``[R, R]``, a node itself counted.
        choices: int64 ``[R]``, the target's own token after each node.
        are_laws: bool ``[]``, whether every row of logits is a law.
        logits: float32 ``[R, V]``; None where the choices are all that is asked for.
        features: ``[1, R, taps x H]``; None without a drafter.
    """

    nodes: Tensor
    ancestors: Tensor
    choices: Tensor
    are_laws: Tensor
    logits: Tensor | None = None
    features: Tensor | None = None

    @property
    def num_rows(self) -> int:
        """R, the rows of the pass, padding counted."""
        return len(self.choices)


def empty_pass(num_rows: int, device: torch.device) -> TreePass:
    """A pass of so many rows, without logits and features."""
    return TreePass(
        torch.zeros(3, num_rows, dtype=torch.int64, device=device),
        torch.eye(num_rows, dtype=torch.bool, device=device),
        torch.zeros(num_rows, dtype=torch.int64, device=device),
        torch.ones((), dtype=torch.bool, device=device),
    )


def rows_of(tree: DraftTree, position: int, num_rows: int) -> tuple[Longs, Bools]:
    """A tree whose root stands at an absolute position, as the nodes and ancestors of a pass.

    Rows behind the nodes hold token 0 at the root's position and see the text before it and themselves.

    Returns:
        int64 ``[3, R]`` and bool ``[R, R]``.
    """
    num = tree.num_nodes
    nodes, ancestors = np.zeros((3, num_rows), np.int64), np.eye(num_rows, dtype=np.bool_)
    nodes[1], nodes[2] = position, NO_PARENT
    nodes[0, :num], nodes[1, :num], nodes[2, 1:num] = tree.tokens, position + tree.depths(), tree.parents[1:]
    ancestors[:num, :num] = tree.ancestor_mask()
    return nodes, ancestors


def accepted_path(held: TreePass) -> tuple[Tensor, Tensor]:
    """The nodes that are the target's own choices from the root down, found on the device.

    Returns:
        Rows int64 ``[R + 1]``: the node at each depth as far as any was accepted, behind that the row of the same
        number; and the number of accepted nodes, the root counted, int64 ``[1]``.
    """
    tokens, positions, parents = held.nodes
    rows = torch.arange(held.num_rows, device=tokens.device)
    # A node is accepted when it and all its ancestors are what the target chose after their parents.
    is_chosen = (tokens == held.choices[parents.clamp(min=0)]) & (parents >= 0) | (rows == 0)
    accepted = ~(held.ancestors & ~is_chosen).any(dim=1)
    # One at each depth; the last place takes all that were not accepted.
    places = torch.where(accepted, positions - positions[0], held.num_rows)
    path = torch.arange(held.num_rows + 1, device=tokens.device).scatter(0, places, rows)
    return path, accepted.sum().view(1)
