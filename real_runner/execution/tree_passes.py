"""A tree as a pass of fixed size: what goes in and what comes out, at addresses that never change."""

from dataclasses import dataclass

import torch
from torch import Tensor

from simlab.arrays import Bools, Ints, Longs
from simlab.jit import kernel
from simlab.tree import DraftTree

NO_PARENT = -1
"""Of the root, and of rows that are no nodes; no choice is looked up there."""


def on_host(like: Tensor) -> Tensor:
    """Memory of the host that a device copies to and from by itself; beside a CPU any memory."""
    return torch.zeros(like.shape, dtype=like.dtype, pin_memory=like.device.type == "cuda")


class HostRows:
    """The host's side of a pass: the tree goes in, choices come out. Copies are part of the captured work."""

    def __init__(self, nodes: Tensor, ancestors: Tensor, choices: Tensor, are_laws: Tensor) -> None:
        self.nodes, self.ancestors, self.choices, self.are_laws = map(on_host, (nodes, ancestors, choices, are_laws))
        self._nodes, self._ancestors = self.nodes.numpy(), self.ancestors.numpy()

    def put(self, tree: DraftTree, position: int, num_masks: int = 0, noise: Longs | None = None) -> int:
        """A tree whose root stands at an absolute position; its depth.

        Rows behind the nodes hold token 0 at the root's position and see the text before it and themselves.

        Args:
            tree: of at most as many nodes as there are choices.
            position: of its root.
            num_masks: k: rows behind the choices hold a chain of so many masks behind each node in turn, and behind the
                root where there are more of these than nodes.
            noise: int64 ``[N, k]``, tokens that stand in place of the first masks.
        """
        num_rows = len(self.choices)
        deepest = _put(tree.tokens, tree.parents, position, self._nodes, self._ancestors, num_rows, num_masks)
        if noise is not None:
            self._nodes[0, num_rows : num_rows + noise.size] = noise.ravel()
        return int(deepest)


@kernel
def _put(
    tokens: Ints, parents: Ints, position: int, nodes: Longs, ancestors: Bools, num_rows: int, num_masks: int
) -> int:
    deepest = 0
    for row in range(num_rows):
        ancestors[row] = False
        nodes[0, row], nodes[1, row], nodes[2, row] = 0, position, NO_PARENT
        if row < tokens.size:
            nodes[0, row] = tokens[row]
            if row > 0:
                parent = parents[row]
                nodes[1, row], nodes[2, row] = nodes[1, parent] + 1, parent
                ancestors[row] = ancestors[parent]
                deepest = max(deepest, nodes[1, row] - position)
        ancestors[row, row] = True
    for row in range(num_rows, nodes.shape[1]):
        group, slot = (row - num_rows) // num_masks, (row - num_rows) % num_masks
        above = row - 1 if slot > 0 else group if group < tokens.size else 0
        nodes[0, row], nodes[1, row], nodes[2, row] = 0, nodes[1, above] + 1, NO_PARENT
        ancestors[row] = ancestors[above]
        ancestors[row, row] = True
    return deepest


@dataclass(slots=True, eq=False)
class TreePass:
    """A pass over a tree of up to R nodes, and M masks behind them.

    Attributes:
        nodes: int64 ``[3, R + M]``: tokens, absolute positions, parents.
        ancestors: bool ``[R + M, R + M]``, a row itself counted.
        choices: int64 ``[R]``, the target's own token after each node.
        are_laws: bool ``[]``, whether every row of logits is a law.
        host: what the pass reads from the host and leaves there.
        logits: float32 ``[R, V]``; None where the choices are all that is asked for.
        states: ``[R, H]``, after the final norm; None where they are not asked for.
        features: ``[1, R, taps x H]``; None where no layer is tapped.
        slots: int64 ``[M]``, which of the k masks behind its node each is; None: there are none.
        masked: twice ``[M, H]``, states of the masks, before and after the final norm.
    """

    nodes: Tensor
    ancestors: Tensor
    choices: Tensor
    are_laws: Tensor
    host: HostRows
    logits: Tensor | None = None
    states: Tensor | None = None
    features: Tensor | None = None
    slots: Tensor | None = None
    masked: tuple[Tensor, ...] = ()

    @property
    def num_rows(self) -> int:
        """R, the rows of nodes, padding counted."""
        return len(self.choices)


def empty_pass(num_rows: int, device: torch.device, num_masks: int = 0) -> TreePass:
    """A pass of so many rows of nodes, and of masks behind them, without what else may be asked for."""
    nodes = torch.zeros(3, num_rows + num_masks, dtype=torch.int64, device=device)
    ancestors = torch.eye(num_rows + num_masks, dtype=torch.bool, device=device)
    choices = torch.zeros(num_rows, dtype=torch.int64, device=device)
    are_laws = torch.ones((), dtype=torch.bool, device=device)
    return TreePass(nodes, ancestors, choices, are_laws, HostRows(nodes, ancestors, choices, are_laws))


def accepted_path(nodes: Tensor, ancestors: Tensor, choices: Tensor) -> tuple[Tensor, Tensor]:
    """The nodes that are the target's own choices from the root down, found on the device.

    Arguments as in `TreePass`, of nodes alone.

    Returns:
        Rows int64 ``[R + 1]``: the node at each depth as far as any was accepted, behind that the row of the same
        number; and the number of accepted nodes, the root counted, int64 ``[1]``.
    """
    tokens, positions, parents = nodes
    num_rows = len(tokens)
    rows = torch.arange(num_rows, device=tokens.device)
    # A node is accepted when it and all its ancestors are what the target chose after their parents.
    is_chosen = (tokens == choices[parents.clamp(min=0)]) & (parents >= 0) | (rows == 0)
    accepted = ~(ancestors & ~is_chosen).any(dim=1)
    # One at each depth; the last place takes all that were not accepted.
    slots = torch.where(accepted, positions - positions[0], num_rows)
    path = torch.arange(num_rows + 1, device=tokens.device).scatter(0, slots, rows)
    return path, accepted.sum().view(1)


def keep_accepted(
    nodes: Tensor,
    ancestors: Tensor,
    choices: Tensor,
    rows: Tensor,
    features: Tensor | None,
    fresh: Tensor | None,
    num_kept: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Move what was accepted into place.

    Returns:
        Where that began, the next root, its position, and the row of the last accepted node, int64 ``[1]`` each.
    """
    path, num_accepted = accepted_path(nodes, ancestors, choices)
    kept, start = path[:num_kept], nodes[1, :1]
    moved = rows.index_select(3, start + kept)
    rows.index_copy_(3, start + torch.arange(num_kept, device=rows.device), moved)
    if fresh is not None and features is not None:
        fresh[:, :num_kept] = features.index_select(1, kept)
    last = path[num_accepted - 1]
    # Behind the end of a text nothing was chosen; what is drafted there is not looked at.
    return start.clone(), choices[last].clamp(min=0), start + num_accepted, last
